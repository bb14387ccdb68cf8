"""Tags of images: the classes of a public dataset that fit best."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.base import (
    EvaluatorSpec,
    LayeredSpec,
    LayerShape,
    LossTrainer,
    Pyramid,
    Trainer,
    dense_shape,
    pyramid,
)

if TYPE_CHECKING:
    from gleak.knowledge.networks import TagClassifier

WIDEST = 4


@register("tagger")
class Tagger(EvaluatorSpec, LayeredSpec):
    """Convolutional classifier; the tags of an image are the most likely classes.

    ROG's tagger has 9,600 classes, several of which can apply to an image, and returns as many tags
    as are sufficiently likely. With few classes, images share tags by chance: the mean similarity
    of three of ten tags is 0.18.
    """

    source = "ROG section 6; architecture and classes ours"

    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)

    tags: int = parameter(3, "number of tags of an image", source="ours", ge=1)

    def pyramid(self, shape: tuple[int, ...]) -> Pyramid:
        """Return the sizes of features of images, halved to about four pixels."""
        return pyramid(shape, self.width, WIDEST, None)

    def check(self, dataset: DatasetSpec) -> None:
        """Check also that there are more classes than tags: else all images have the same."""
        super().check(dataset)
        if dataset.classes is not None:
            self._check_classes(dataset.classes)

    def _check_classes(self, classes: int) -> None:
        if self.tags >= classes:
            raise IncompatibleError(
                f"knowledge {self} assigns {self.tags} tags to each image, but there are only "
                f"{classes} classes; lower tags, or choose another public dataset"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> TagClassifier:
        from gleak.knowledge.networks import TagClassifier

        self._check_classes(classes)
        return TagClassifier(self.pyramid(shape), classes, self.tags)

    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        return LossTrainer(
            self.build(shape, classes),
            self.lr,
            "cross_entropy",
            lambda logits, images, labels: torch.nn.functional.cross_entropy(logits, labels),
        )

    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        channels, sides, widths = sizes = self.pyramid(shape)
        return [
            LayerShape(channels, widths[0], sides[0]),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in sizes.steps),
            dense_shape(widths[-1], classes),
        ]
