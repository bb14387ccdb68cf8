"""What an attacker may see: the one thing that every attack is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gleak.runtime.checkpointing import Journal

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn


@dataclass(frozen=True)
class Observation:
    """Everything the attacker has: the server's view of V victims and what the setting grants.

    Args:
        update: for each parameter that the attack reads, what the server computed from what was
            sent; Shape (V, R, *shape).
        sent: for each parameter of which only some values were sent, which; Shape (V, R, *shape).
        model: the architecture with the broadcast parameters, on the device of the update.
        modality: "image" or "tabular".
        input_shape: shape of one sample.
        classes: number of outputs.
        batch_size: samples behind one update.
        mini_batch, local_steps, local_lr, loss, content, epochs: as in
            `gleak.artifacts.update.Update`.
        granted: by grant name, Shape (V, ...); only those the attack's spec asks for.
        victim_ids: Shape (V), each victim's number; with the seed it names its random stream.
        seed: of the attack's own randomness.
        cell_victims: victims of the whole cell, if these are a share of them.
        spec: canonical path of the cell the update comes from.
        secret: what the server remembers of the parameters it crafted; see
            `gleak.artifacts.model.Secret`. Empty where the attack's spec does not ask for it.
        broadcast: parameters before each round, Shape (R, *shape); empty where there is one round,
            at the parameters of the model.
        knowledge: by name ("codec"), the networks that the attacker brings, trained on public data;
            only those the attack's spec asks for, in evaluation mode, on the device of the update.
        journal: where a long attack leaves what it has come to.
        verified_ways: by model of the client, the constructor of dummy gradients that was found to
            be right for this network (see `gleak.matching.choice`); shared by the observations
            that are derived from one.
    """

    update: dict[str, Tensor]
    sent: dict[str, Tensor]
    model: nn.Module
    modality: str
    input_shape: tuple[int, ...]
    classes: int
    batch_size: int
    mini_batch: int
    local_steps: int
    local_lr: float
    loss: str
    content: str
    granted: dict[str, Tensor]
    victim_ids: np.ndarray
    seed: int
    cell_victims: int = 1
    spec: str = ""
    secret: Mapping[str, np.ndarray] = field(default_factory=dict)
    epochs: int = 1
    broadcast: Mapping[str, Tensor] = field(default_factory=dict)
    knowledge: Mapping[str, nn.Module] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    verified_ways: dict[str, Any] = field(default_factory=dict)

    @property
    def victims(self) -> int:
        """How many victims are attacked at once."""
        return len(self.victim_ids)

    @property
    def total_victims(self) -> int:
        """How many victims the cell has, attacked here or elsewhere."""
        return max(self.cell_victims, self.victims)

    @property
    def rounds(self) -> int:
        """How many updates of each victim were observed."""
        return len(next(iter(self.update.values()))[0])

    def of_round(self, number: int) -> Observation:
        """One round alone, at the parameters that were broadcast before it.

        Its random streams are its own, as those of another seed are.
        """
        some = slice(number, number + 1)
        from gleak.models.parameters import independent_copy

        model = independent_copy(self.model)
        for name, parameter in model.named_parameters():
            if name in self.broadcast:
                parameter.data = self.broadcast[name][number].clone()
        return replace(
            self,
            update={name: value[:, some] for name, value in self.update.items()},
            sent={name: value[:, some] for name, value in self.sent.items()},
            model=model,
            seed=self.seed + number,
            epochs=1,
            broadcast={},
        )

    def of_victim(self, row: int) -> Observation:
        """One victim alone."""
        some = slice(row, row + 1)
        return replace(
            self,
            update={name: value[some] for name, value in self.update.items()},
            sent={name: value[some] for name, value in self.sent.items()},
            granted={name: value[some] for name, value in self.granted.items()},
            victim_ids=self.victim_ids[some],
            cell_victims=self.total_victims,
        )
