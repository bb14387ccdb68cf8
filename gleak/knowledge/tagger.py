"""Tags of images: the classes of a public dataset that fit best."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.base import EvaluatorSpec, TrainedSpec
from gleak.knowledge.layer_shapes import (
    LayerShape,
    Sides,
    channels_at_levels,
    dense_shape,
    full_pyramid,
    total_multiply_adds,
    total_parameters,
)

if TYPE_CHECKING:
    from gleak.knowledge.tagger_network import TagClassifier
    from gleak.knowledge.train_knowledge import Trainer

WIDEST = 4


class Plan(NamedTuple):
    """Layer sizes of a classifier for images of one shape.

    Args:
        channels: of an image.
        sides: height and width of the images and after each halving.
        widths: channels of the features at each of these.
        classes: number of classes.
    """

    channels: int
    sides: list[Sides]
    widths: list[int]
    classes: int

    @property
    def layers(self) -> list[LayerShape]:
        """Shapes of all layers of `gleak.knowledge.tagger_network.TagClassifier`."""
        levels = list(zip(self.sides, self.widths, strict=True))
        return [
            LayerShape(self.channels, self.widths[0], self.sides[0]),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in pairwise(levels)),
            dense_shape(self.widths[-1], self.classes),
        ]


@register("tagger")
class Tagger(EvaluatorSpec, TrainedSpec):
    """Convolutional classifier; the tags of an image are the most likely classes.

    ROG's tagger has 9,600 classes, several of which can apply to an image, and returns as many tags
    as are sufficiently likely. With few classes, images share tags by chance: the mean similarity
    of three of ten tags is 0.18.
    """

    source = "ROG section 6; architecture and classes ours"

    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)

    tags: int = parameter(3, "number of tags of an image", source="ours", ge=1)

    def plan(self, shape: tuple[int, ...], classes: int) -> Plan:
        """Return layer sizes for images of Shape (C, H, W), halved to about four pixels."""
        channels, height, width = shape
        sides = full_pyramid((height, width))
        return Plan(
            channels=channels,
            sides=sides,
            widths=channels_at_levels(self.width, len(sides) - 1, WIDEST),
            classes=classes,
        )

    @override
    def check(self, dataset: DatasetSpec) -> None:
        """Check that there are more classes than tags and do the other checks.

        Raises:
            IncompatibleError: all images would have the same tags; see also `KnowledgeSpec.check`.
        """
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
        """Build the classifier.

        Raises:
            IncompatibleError: there are at most as many classes as tags.
        """
        from gleak.knowledge.tagger_network import TagClassifier

        self._check_classes(classes)
        return TagClassifier(self.plan(shape, classes), self.tags)

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.tagger_network import ClassifierTrainer

        return ClassifierTrainer(self.build(shape, classes), self.lr)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return total_multiply_adds(self.plan(shape, classes).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return total_parameters(self.plan(shape, classes).layers)
