"""CIFAR-100."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.data.download import TorchvisionDataset


@register("cifar100")
class Cifar100(TorchvisionDataset):
    """CIFAR-100: small colour photographs, 100 fine classes, 50,000 and 10,000 in full."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    archive: ClassVar[str] = "CIFAR100"

    @property
    def classes(self) -> int:
        """Always the 100 fine classes."""
        return 100
