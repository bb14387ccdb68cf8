"""ImageNet."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.image_folder import ImageFolderDataset
from gleak.data.pixels import side


@register("imagenet")
class Imagenet(ImageFolderDataset):
    """ImageNet-1k: photographs; its validation images, sorted by class, as test.

    Class folders named by their WordNet ids come in the standard order of classes. All of it
    would fill 190 GB of memory, so a few images of each class are the default.
    """

    source: ClassVar[str] = "Russakovsky et al. 2015; ImageNet terms: non-commercial research"

    size: int = side(224)
    limit: int | None = parameter(10, "at most so many images per class and split; none: all", ge=1)

    @property
    def classes(self) -> int:
        """Always 1,000."""
        return 1000
