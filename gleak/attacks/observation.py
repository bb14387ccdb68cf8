"""Observation of the attacker, the only input of every attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gleak.artifacts.protocol import Protocol
from gleak.core.lazy import torch
from gleak.models.parameters import broadcast_state, independent_copy
from gleak.runtime.checkpointing import Journal


@dataclass(frozen=True)
class Observation:
    """Everything that is available to the attacker: the server's view of V victims, and grants.

    Args:
        update: for each parameter that the attack reads, the server's estimate from what was sent;
            Shape (V, R, *shape). On the device of the model if R = 1, else in host memory.
        sent: for each parameter of which only some values were sent, their mask;
            Shape (V, R, *shape).
        model: the architecture with the broadcast parameters, as the clients run it (in
            evaluation mode, but normalising by the batch if they do), on the device of the search.
        modality: "image" or "tabular".
        input_shape: shape of one sample.
        classes: number of outputs.
        protocol: how the clients trained.
        granted: by grant name, Shape (V, ...); only those that the attack's spec requests.
        victim_ids: number of each victim, which with the seed determines its random stream;
            Shape (V).
        seed: of the attack's random numbers.
        cell_victims: number of victims of the whole cell, if these are a part of them.
        spec: canonical path of the cell that the update comes from.
        secret: data that the server keeps about the parameters it crafted; see
            `gleak.artifacts.model.Secret`. Empty if the attack's spec does not request it.
        broadcast: parameters before each round, Shape (R, *shape); empty if there is one round,
            at the parameters of the model.
        knowledge: by name ("codec"), the attacker's networks, trained on public data; only those
            that the attack's spec requests, in evaluation mode, on the device of the model.
        journal: stores the progress of a long attack.
        verified_methods: by model of the client, the constructor of dummy gradients that was
            verified for this network (see `gleak.attacks.matching.choice`); shared by derived
            observations.
        cells: for each parameter that was sent in a code that many values share (rounded values,
            signs), the code; see `gleak.attacks.matching.quantisation_cells.QuantisationCell`.
        bases: for each parameter that was sent as a product of matrices, an orthonormal basis of
            the columns of the first; Shape (V, R, rows, K). On the device of the update.
        received: the server's estimate before `gleak.attacks.observed_direction.as_gradient`
            changed it, like ``update``; empty if it is the same.
        trained: how the clients trained, where ``protocol`` is that of the gradients; None: the
            same.
    """

    update: dict[str, torch.Tensor]
    sent: dict[str, torch.Tensor]
    model: torch.nn.Module
    modality: str
    input_shape: tuple[int, ...]
    classes: int
    protocol: Protocol
    granted: dict[str, torch.Tensor]
    victim_ids: np.ndarray
    seed: int
    cell_victims: int = 1
    spec: str = ""
    secret: Mapping[str, np.ndarray] = field(default_factory=dict)
    broadcast: Mapping[str, torch.Tensor] = field(default_factory=dict)
    knowledge: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    verified_methods: dict[str, Any] = field(default_factory=dict)
    cells: Mapping[str, Any] = field(default_factory=dict)
    bases: Mapping[str, torch.Tensor] = field(default_factory=dict)
    received: Mapping[str, torch.Tensor] = field(default_factory=dict)
    trained: Protocol | None = None

    @property
    def victims(self) -> int:
        """Number of victims that are attacked at once."""
        return len(self.victim_ids)

    @property
    def total_victims(self) -> int:
        """Number of victims of the cell, attacked here or elsewhere."""
        return max(self.cell_victims, self.victims)

    @property
    def batch_size(self) -> int:
        """Number of samples of one update."""
        return self.protocol.batch_size

    @property
    def is_sample_gradient(self) -> bool:
        """True if an update is the gradient of one sample."""
        return self.batch_size == self.protocol.epochs == 1 and self.protocol.shows_gradient

    @property
    def knows_intervals(self) -> bool:
        """True if gradients are known in intervals, as after a step of Adam."""
        return any(cell.is_interval for cell in self.cells.values())

    @property
    def rounds(self) -> int:
        """Number of observed updates of each victim."""
        return len(next(iter(self.update.values()))[0])

    def of_round(self, number: int) -> Observation:
        """Return the observation of one round, at its parameters, on the device of the model.

        Its random streams differ from those of other rounds, like those of another seed.
        """
        index = (slice(None), slice(number, number + 1))
        model = independent_copy(self.model)
        device = next(model.parameters()).device
        for name, value in broadcast_state(model).items():
            if name in self.broadcast:
                value.data = self.broadcast[name][number].to(device, copy=True)
        return replace(
            self,
            update={name: value[index].to(device) for name, value in self.update.items()},
            sent={name: value[index].to(device) for name, value in self.sent.items()},
            cells={name: cell.at(index).to(device) for name, cell in self.cells.items()},
            bases={name: value[index].to(device) for name, value in self.bases.items()},
            received={name: value[index].to(device) for name, value in self.received.items()},
            model=model,
            seed=self.seed + number,
            protocol=replace(self.protocol, epochs=1),
            broadcast={},
        )

    def of_victim(self, row: int) -> Observation:
        """Return the observation of one victim."""
        return self.of_victims(slice(row, row + 1))

    def of_victims(self, rows: slice | np.ndarray) -> Observation:
        """Return the observation of some victims; their random streams stay the same."""
        return replace(
            self,
            update={name: value[rows] for name, value in self.update.items()},
            sent={name: value[rows] for name, value in self.sent.items()},
            cells={name: cell.at(rows) for name, cell in self.cells.items()},
            bases={name: value[rows] for name, value in self.bases.items()},
            received={name: value[rows] for name, value in self.received.items()},
            granted={name: value[rows] for name, value in self.granted.items()},
            victim_ids=self.victim_ids[rows],
            cell_victims=self.total_victims,
        )
