"""Knowledge that the workflow trains itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.spec import parameter
from gleak.knowledge.base import KnowledgeSpec

if TYPE_CHECKING:
    from gleak.knowledge.trainer import Trainer


class TrainedSpec(KnowledgeSpec):
    """A network with its training, whose cost is no part of its setting."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"steps", "batch_size", "lr", "width"})

    steps: int = parameter(10_000, "steps of training", ge=1)
    batch_size: int = parameter(16, "samples of a step", ge=1)
    lr: float = parameter(1e-3, "learning rate of Adam", gt=0)
    width: int = parameter(64, "channels at the resolution of the images", ge=1)

    @property
    @override
    def passes(self) -> int:
        return self.steps * self.batch_size

    @abstractmethod
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        """A new network as `build` makes it, with what trains it."""
