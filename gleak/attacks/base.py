"""What every attack spec provides, and the one thing it is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.traits import Traits
from gleak.errors import FitError, SpecError
from gleak.knowledge.base import KnowledgeSpec
from gleak.knowledge.judge import JudgeSpec
from gleak.runtime.journal import Journal
from gleak.spec import Spec

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from gleak.clients.base import ClientSpec
    from gleak.crafting.base import CraftingSpec
    from gleak.data.base import DatasetSpec
    from gleak.matching.choice import Way
    from gleak.models.base import ModelSpec


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
            `gleak.artifacts.secret.Secret`. Empty where the attack's spec does not ask for it.
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
    verified_ways: dict[str, Way] = field(default_factory=dict)

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


class AttackSpec(Spec):
    """An attack: what it needs to be granted, and how it reconstructs.

    ``crafting`` names the crafted parameters that it reads, with the secret of the server that made
    them; None: it knows no secret, whatever is broadcast. ``takes_local_steps`` says whether it
    serves clients that send the outcome of several local steps, and ``tuned`` names the weights
    that are chosen anew for each setting; one that is zero leaves its term out.
    """

    kind: ClassVar[str] = "attack"
    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    crafting: ClassVar[str | None] = None
    takes_local_steps: ClassVar[bool] = True
    tuned: ClassVar[frozenset[str]] = frozenset()

    def setting(self) -> Spec:
        """Fields of ``tuned`` do not tell settings apart, but for zeros; see `Spec.setting`."""
        chosen = [key for key in self.tuned if getattr(self, key)]
        defaults = {key: type(self).model_fields[key].default for key in chosen}
        return super().setting().model_copy(update=defaults)

    @property
    def grants(self) -> frozenset[str]:
        """Names of the grants among its inputs; stated as a column of the scores."""
        return frozenset()

    @property
    def knowledge(self) -> tuple[KnowledgeSpec, ...]:
        """What it brings, trained on public data: the knowledge among its fields."""
        return tuple(spec for spec in self._learned if not isinstance(spec, JudgeSpec))

    @property
    def judges(self) -> tuple[KnowledgeSpec, ...]:
        """By what it is to be scored, trained on public data; it is not given to the attack."""
        return tuple(spec for spec in self._learned if isinstance(spec, JudgeSpec))

    @property
    def _learned(self) -> tuple[KnowledgeSpec, ...]:
        return tuple(value for _, value in self if isinstance(value, KnowledgeSpec))

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse what the attack cannot serve, as far as is known before any work.

        Raises:
            FitError: names the attack and what does not fit it.
        """
        if dataset.modality not in self.modalities:
            raise FitError(f"attack {self} does not take {dataset.modality} data ({dataset})")
        steps = client.protocol.get("local_steps", 1)
        if steps > 1 and not self.takes_local_steps:
            raise FitError(
                f"attack {self} needs the gradient of one step, and client {client} sends the "
                f"mean of {steps}; use local_steps=1 or fedsgd"
            )

    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Refuse a network that the attack cannot serve, told by the network itself.

        Asked before any job of networks of which no spec tells what they are, a user's own.

        Args:
            network: untrained, in evaluation mode; left as it is.
            shape: of a sample.
            classes: number of outputs.
            client: whose updates are attacked.

        Raises:
            FitError: names the attack and what the network lacks.
        """
        from gleak.models.parameters import check_trained

        check_trained(network, self.reads(network, shape) or frozenset())

    def check_crafting(self, crafting: CraftingSpec) -> None:
        """Refuse parameters that are not those the attack was made for.

        Raises:
            FitError: names both.
        """
        if self.crafting not in (None, crafting.name):
            raise FitError(
                f"attack {self} reads parameters crafted for it, and these are {crafting}; "
                f"use crafting {self.crafting}"
            )

    def check_knowledge(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Refuse knowledge that there cannot be, or whose public data may hold victims' samples.

        Raises:
            FitError: see `KnowledgeSpec.check_victims`.
            SpecError: two pieces of knowledge of one name, or an unknown public dataset.
        """
        names = [spec.name for spec in self._learned]
        if len(set(names)) < len(names):
            raise SpecError(f"attack {self} brings two pieces of knowledge of one name")
        for spec in self._learned:
            spec.check_victims(victims, client)

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Names of the parameters whose updates it reads; None for all.

        Raises:
            FitError: the model has no layer that the attack could read.
        """
        return None

    @property
    def joins_epochs(self) -> bool:
        """Whether it seeks a sample in updates of several epochs at once, for tables of attacks."""
        return False

    def traits(self) -> Traits:
        """How it finds samples and labels, for tables of attacks; nothing, unless it says so."""
        return Traits()

    @property
    def evaluations(self) -> int:
        """Most gradient evaluations a victim can cost, for estimates."""
        return 0

    @property
    def repeats_local_steps(self) -> bool:
        """Whether an evaluation goes through all local steps of the client, for estimates."""
        return False

    @abstractmethod
    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Samples and labels for every victim."""
