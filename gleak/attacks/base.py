"""What every attack spec provides, and the one thing it is given."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.summary import AttackSummary
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import Spec
from gleak.knowledge.base import EvaluatorSpec, KnowledgeSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.crafting.base import CraftingSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec
    from gleak.observation import Observation


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
        return tuple(spec for spec in self._learned if not isinstance(spec, EvaluatorSpec))

    @property
    def judges(self) -> tuple[KnowledgeSpec, ...]:
        """By what it is to be scored, trained on public data; it is not given to the attack."""
        return tuple(spec for spec in self._learned if isinstance(spec, EvaluatorSpec))

    @property
    def _learned(self) -> tuple[KnowledgeSpec, ...]:
        return tuple(value for _, value in self if isinstance(value, KnowledgeSpec))

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse what the attack cannot serve, as far as is known before any work.

        Raises:
            IncompatibleError: names the attack and what does not fit it.
        """
        if dataset.modality not in self.modalities:
            raise IncompatibleError(
                f"attack {self} does not take {dataset.modality} data ({dataset})"
            )
        steps = client.protocol.get("local_steps", 1)
        if steps > 1 and not self.takes_local_steps:
            raise IncompatibleError(
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
            IncompatibleError: names the attack and what the network lacks.
        """
        from gleak.models.parameters import check_trained

        check_trained(network, self.reads(network, shape) or frozenset())

    def check_crafting(self, crafting: CraftingSpec) -> None:
        """Refuse parameters that are not those the attack was made for.

        Raises:
            IncompatibleError: names both.
        """
        if self.crafting not in (None, crafting.name):
            raise IncompatibleError(
                f"attack {self} reads parameters crafted for it, and these are {crafting}; "
                f"use crafting {self.crafting}"
            )

    def check_knowledge(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Refuse knowledge that there cannot be, or whose public data may hold victims' samples.

        Raises:
            IncompatibleError: see `KnowledgeSpec.check_victims`.
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
            IncompatibleError: the model has no layer that the attack could read.
        """
        return None

    @property
    def joins_epochs(self) -> bool:
        """Whether it seeks a sample in updates of several epochs at once, for tables of attacks."""
        return False

    def traits(self) -> AttackSummary:
        """How it finds samples and labels, for tables of attacks; nothing, unless it says so."""
        return AttackSummary()

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
