"""Knowledge that the workflow trains itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gleak.knowledge.base import KnowledgeSpec
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.knowledge.trainer import Trainer


class TrainedSpec(KnowledgeSpec):
    """A network with its training, whose cost is no part of its setting."""

    effort: ClassVar[frozenset[str]] = frozenset({"steps", "batch_size", "lr", "width"})

    steps: int = knob(10_000, "steps of training", ge=1)
    batch_size: int = knob(16, "samples of a step", ge=1)
    lr: float = knob(1e-3, "learning rate of Adam", gt=0)
    width: int = knob(64, "channels at the resolution of the images", ge=1)

    @property
    def passes(self) -> int:
        """See `KnowledgeSpec.passes`."""
        return self.steps * self.batch_size

    @abstractmethod
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        """A new network as `build` makes it, with what trains it."""
