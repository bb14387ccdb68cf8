"""A sample of ImageNet."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.data.image_folder import ImageFolderDataset
from gleak.data.pixels import side


@register("imagenet_sample")
class ImagenetSample(ImageFolderDataset):
    """A few photographs of ImageNet, of any of its classes, such as one image of each."""

    source: ClassVar[str] = "e.g. EliSchwartz/imagenet-sample-images; ImageNet terms"

    size: int = side(224)
