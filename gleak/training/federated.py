"""A model trained by many clients that share their updates alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from gleak.defenses.base import DefenseSpec
from gleak.defenses.none import NoDefense
from gleak.errors import FitError
from gleak.registry import nested, register
from gleak.spec import knob
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.journal import Part


@register("federated")
class Federated(InitialisedSpec):
    """Rounds in which some clients train on what they hold and send a defended update.

    What is sent is the mean gradient of the local steps, so noise and compression act on the scale
    of gradients (CPL section 2.2); without a defence the result is that of federated averaging.
    """

    source = "CPL sections 2.1 and 4.1; McMahan et al. 2017"
    effort: ClassVar[frozenset[str]] = frozenset({"rounds"})

    clients: int = knob(100, "that share the training split", source="CPL section 4.1", ge=1)
    fraction: float = knob(
        0.1, "share of the clients chosen in a round", source="CPL section 4.1", gt=0, le=1
    )
    rounds: int = knob(100, "steps of the server", source="ours; CPL names none", ge=1)
    local_steps: int = knob(10, "steps of a client in a round", source="ours; CPL names none", ge=1)
    batch_size: int = knob(
        32, "samples of a step; a client with fewer uses all", source="ours; CPL names none", ge=1
    )
    lr: float = knob(0.1, "learning rate of a step", source="ours; CPL names none", gt=0)
    alpha: float | None = knob(
        None,
        "Dirichlet's, of each class over clients: small is uneven; none: equal random shares",
        source="Yurochkin et al. 2019",
        gt=0,
    )
    defense: Annotated[DefenseSpec, nested("defense")] = knob(
        NoDefense(), "of every client", source="CPL Tables 7a and 8"
    )

    @property
    def chosen(self) -> int:
        """Clients that train in a round."""
        return max(1, round(self.fraction * self.clients))

    def epochs_of_data(self, samples: int) -> float:
        """See `TrainingSpec.epochs_of_data`."""
        step = min(self.batch_size, samples / self.clients)
        return self.rounds * self.chosen * self.local_steps * step / samples

    def check_samples(self, samples: int, dataset: str) -> None:
        """See `TrainingSpec.check_samples`; every client needs a sample."""
        if self.clients > samples:
            raise FitError(
                f"training {self}: clients={self.clients} is more than the {samples} samples in "
                f"the train split of {dataset}"
            )

    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """See `TrainingSpec.check_network`; clients normalise by the batch, see their defence."""
        network.train()
        try:
            self.defense.check_network(network, shape)
        finally:
            network.eval()

    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """See `InitialisedSpec.fit`."""
        from gleak.training.rounds import run_rounds

        return run_rounds(model, dataset, self, seed, part)
