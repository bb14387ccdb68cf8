"""Labeled Faces in the Wild."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.download import DownloadableDataset
from gleak.data.pixels import quantize
from gleak.data.splits import Split, first_of_each, join_splits, stratified

WINDOW = slice(61, 189)


@register("lfw")
class Lfw(DownloadableDataset):
    """Faces of people who have many pictures, in colour; an image folder is taken as it is.

    The download goes through scikit-learn: torchvision no longer offers one. Of each 250 x 250
    picture the central 128 x 128 pixels, which hold the face, are kept and resized; the split is
    3:1 within each person. CPL (section 4.1) speaks of 106 people with "more than 14" images:
    106 have at least 14, and 96 more than 14.
    """

    source: ClassVar[str] = "Huang et al. 2007, from figshare; no explicit licence, for research"
    library: ClassVar[str] = "scikit-learn"

    min_images: int = parameter(
        14, "of the download, people with so many images", source="CPL section 4.1", ge=4
    )

    def download(self, home: Path) -> Dataset:
        """People, by name, and their faces; Shape (M, 3, size, size)."""
        from sklearn.datasets import fetch_lfw_people

        people = fetch_lfw_people(
            data_home=str(home),
            min_faces_per_person=self.min_images,
            color=True,
            slice_=(WINDOW, WINDOW),
            # scikit-learn rounds down: half a pixel more gives the size wanted.
            resize=(self.size + 0.5) / (WINDOW.stop - WINDOW.start),
        )
        train, test = stratified(quantize(people.images, self.shape), people.target)
        return join_splits(self._thin(train), self._thin(test), list(people.target_names))

    def _thin(self, split: Split) -> Split:
        chosen = first_of_each(split[1], self.limit)
        return split[0][chosen], split[1][chosen]
