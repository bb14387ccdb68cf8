"""Federated training by many clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec
from gleak.defenses.none import NoDefense
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.checkpointing import Part


@register("federated")
class Federated(InitialisedSpec):
    """Rounds in which some clients train on their own samples and send a defended update.

    The update is the mean gradient of the local steps, so noise and compression act on the scale of
    gradients (CPL section 2.2); without a defence the result is that of federated averaging.
    """

    source = "CPL sections 2.1 and 4.1; McMahan et al. 2017"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"rounds"})

    clients: int = parameter(
        100, "clients among which the train split is divided", source="CPL section 4.1", ge=1
    )
    fraction: float = parameter(
        0.1, "share of the clients chosen in a round", source="CPL section 4.1", gt=0, le=1
    )
    rounds: int = parameter(100, "steps of the server", source="ours; CPL names none", ge=1)
    local_steps: int = parameter(
        10, "local steps of a client per round", source="ours; CPL names none", ge=1
    )
    batch_size: int = parameter(
        32, "samples per step; a client with fewer uses all", source="ours; CPL names none", ge=1
    )
    lr: float = parameter(0.1, "learning rate of a step", source="ours; CPL names none", gt=0)
    alpha: float | None = parameter(
        None,
        "Dirichlet parameter per class; small: uneven shares; none: equal random shares",
        source="Yurochkin et al. 2019",
        gt=0,
    )
    defense: Annotated[DefenseSpec, nested("defense")] = parameter(
        NoDefense(), "defence of every client", source="CPL Tables 7a and 8"
    )

    @property
    def chosen(self) -> int:
        """Number of clients that train in a round."""
        return max(1, round(self.fraction * self.clients))

    @override
    def epochs_of_data(self, samples: int) -> float:
        step = min(self.batch_size, samples / self.clients)
        return self.rounds * self.chosen * self.local_steps * step / samples

    @override
    def check_samples(self, samples: int, dataset: str) -> None:
        if self.clients > samples:
            raise IncompatibleError(
                f"training {self}: clients={self.clients} is more than the {samples} samples in "
                f"the train split of {dataset}"
            )

    @override
    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        network.train()  # clients normalise by the batch
        try:
            self.defense.check_network(network, shape)
        finally:
            network.eval()

    @override
    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        from gleak.training.federated_training import run_rounds

        return run_rounds(model, dataset, self, seed, part)
