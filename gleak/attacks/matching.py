"""Base of the attacks that match gradients: each names its parts, the engine does the rest."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.summary import AttackSummary, traits_of
from gleak.core.errors import IncompatibleError
from gleak.core.registry import nested
from gleak.core.spec import parameter
from gleak.knowledge.postprocessor import Postprocessor
from gleak.matching.distances.cosine import Cosine
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import ClientModel, Compared, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Normal
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


class MatchingAttack(AttackSpec):
    """An attack that is one assembly of `gleak.matching.parts.Parts`."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations"})

    iterations: int = parameter(
        300, "budget of one victim, restarts included", source="CPL section 4.1", ge=1
    )

    compared: Compared = parameter(
        "sent",
        "values matched: those sent, those not zero (against masks such as Soteria's), or all",
        source="ours",
    )
    client_model: ClientModel = parameter(
        "one_step", "how local steps are repeated", source="CPL Algorithm 1; unrolled: InvertGrad"
    )

    postprocessor: Annotated[Postprocessor, nested("knowledge")] | None = parameter(
        None, "what enhances the images that were found", source="ROG section 4.2"
    )

    @abstractmethod
    def parts(self) -> Parts:
        """The parts this attack is assembled from."""

    def common(self) -> dict[str, Any]:
        """The parts that every such attack takes from its fields as they are."""
        return {name: getattr(self, name) for name in ("iterations", "compared", "client_model")}

    @override
    def traits(self) -> AttackSummary:
        return traits_of(self.parts())

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse data that start or code cannot serve, and rules that find too few labels.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        try:
            self.parts().start.check(dataset)
            self.parts().code.check(dataset)
        except IncompatibleError as error:
            raise IncompatibleError(f"attack {self}: {error}") from None
        behind = client.protocol["batch_size"]
        if dataset.classes is not None:
            self._check_labels(behind, dataset.classes, f"classes of {dataset}")
        if self.parts().labels == "known" and behind < client.batch_size:
            raise IncompatibleError(
                f"attack {self}: labels are granted for all {client.batch_size} samples of a "
                f"client, and an update of {client} has {behind} of them; use labels=rows"
            )

    @override
    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Second derivatives, and what labels are inferred from."""
        from gleak.matching.choice import check_gradients
        from gleak.matching.label_inference import RULES, check_rule

        super().check_network(network, shape, classes, client)
        check_gradients(network, client.loss, shape, classes)
        rule = self.parts().labels
        if rule in RULES:
            check_rule(network, shape, classes, rule)
        self._check_labels(client.protocol["batch_size"], classes, "classes")

    def _check_labels(self, samples: int, classes: int, whose: str) -> None:
        """Refuse rules that find too few labels.

        Raises:
            IncompatibleError: names both numbers.
        """
        if self.parts().labels in ("sign", "rows") and samples > classes:
            raise IncompatibleError(
                f"attack {self} finds no label twice, and {samples} samples in {classes} {whose} "
                "repeat some; use labels=auto"
            )

    @property
    def grants(self) -> frozenset[str]:
        """What the start begins with, and labels where the spec says that they are known."""
        known = {"labels"} if self.parts().labels == "known" else set()
        return self.parts().start.grants | known

    @property
    @override
    def evaluations(self) -> int:
        return self.iterations * self.parts().optimizer.evaluations_per_iteration

    @property
    @override
    def repeats_local_steps(self) -> bool:
        return self.parts().client_model == "unrolled"

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        """What was found is enhanced by a postprocessor, if any."""
        from gleak.attacks.postprocessing import enhanced

        found = self.search(observation)
        if self.postprocessor is None:
            return found
        return enhanced(found, observation.knowledge["postprocessor"])

    def search(self, observation: Observation) -> Reconstruction:
        """What matching finds."""
        from gleak.matching.engine import match

        return match(observation, self.parts())


class QuasiNewtonAttack(MatchingAttack):
    """Base of the attacks by L-BFGS on the squared distance: DLG, iDLG and CPL.

    With a fixed step L-BFGS now and then diverges or stalls; the gradient distance tells, without
    the truth, and the search begins afresh within the same budget. The papers stop there; with
    restarts=0 so do these attacks.
    """

    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations", "threshold"})

    threshold: float = parameter(
        2e-8,
        "squared gradient distance, relative to the gradient's squared norm, that has converged",
        source="ours; CPL's 1e-4 is about 1e-7 of a LeNet's squared norm",
        gt=0,
    )
    restarts: int = parameter(20, "fresh starts after divergence or a stall", source="ours", ge=0)
    patience: int = parameter(
        200, "evaluations without gain that count as a stall", source="ours", ge=1
    )

    def common(self) -> dict[str, Any]:
        """Also those that say when to stop and when to begin afresh."""
        own = {name: getattr(self, name) for name in ("threshold", "restarts", "patience")}
        return {**super().common(), **own}


class SignedAdamAttack(MatchingAttack):
    """Base of the attacks as InvertGrad searches: signed Adam on the cosine distance.

    With total variation, and inside the box of valid images.
    """

    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(4800, "budget of one victim", source="InvertGrad reference", ge=1)
    lr: float = parameter(
        0.1, "learning rate; a tenth after 3/8, 5/8 and 7/8", source="InvertGrad", gt=0
    )
    tv: float = parameter(
        0.1, "weight of the total variation (images)", source="InvertGrad, small networks", ge=0
    )
    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy input", source="InvertGrad"
    )

    def common(self) -> dict[str, Any]:
        """Also those that say how the dummy moves."""
        return {
            **super().common(),
            "start": self.start,
            "distance": Cosine(),
            "optimizer": Adam(lr=self.lr, signed=True, schedule="steps"),
            "total_variation": self.tv,
            "box": True,
        }
