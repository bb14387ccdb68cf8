"""Tiny ImageNet."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.data.image_folder import ImageFolderDataset
from gleak.data.pixels import side


@register("tiny_imagenet")
class TinyImagenet(ImageFolderDataset):
    """Tiny-ImageNet-200: 64 x 64 photographs; its validation images, sorted by class, as test."""

    source: ClassVar[str] = "Stanford CS231n; ImageNet terms: non-commercial research"

    size: int = side(64)

    @property
    def classes(self) -> int:
        """Always 200."""
        return 200
