"""CIFAR-10."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.data.download import TorchvisionDataset


@register("cifar10")
class Cifar10(TorchvisionDataset):
    """CIFAR-10: small colour photographs of 10 kinds of things, 50,000 and 10,000 in full."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    archive: ClassVar[str] = "CIFAR10"

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10
