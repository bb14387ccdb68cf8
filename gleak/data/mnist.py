"""MNIST."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.data.download import TorchvisionDataset
from gleak.data.pixels import side


@register("mnist")
class Mnist(TorchvisionDataset):
    """MNIST: handwritten digits in grey, 60,000 and 10,000 in full."""

    source: ClassVar[str] = "LeCun et al. 1998; commonly given as CC BY-SA 3.0"
    archive: ClassVar[str] = "MNIST"

    size: int = side(28)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey stays one channel."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10
