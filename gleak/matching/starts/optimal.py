"""A start that is another sample of the same class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.matching.starts.base import NoisyStart

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.data.base import DatasetSpec

GRANT = "class_sample"
INSTEAD = "use a dataset with training samples of every class, or a start that needs none"


@register("optimal")
class Optimal(NoisyStart):
    """A training sample of each label's class, granted, with slight noise (CPL's "insider").

    The grant holds one for each of the victim's labels in ascending order, the order in which the
    engine puts the labels that it infers.
    """

    source: ClassVar[str] = "CPL sections 3.1 and 4.2, Table 4"

    @property
    def grants(self) -> frozenset[str]:
        """Samples of the victim's classes."""
        return frozenset({GRANT})

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse a dataset without training samples; see `StartSpec.check`."""
        if dataset.sizes is not None and not dataset.sizes["train"]:
            raise IncompatibleError(
                f"start {self} begins with the grant {GRANT}, a training sample of the class, and "
                f"{dataset} has no training samples; {INSTEAD}"
            )

    def undisturbed(self, shape: tuple[int, ...], granted: Mapping[str, Tensor]) -> Tensor:
        """See `NoisyStart.undisturbed`.

        Raises:
            IncompatibleError: the dataset had no training sample of a class to grant.
        """
        samples = granted[GRANT]
        if not len(samples):
            raise IncompatibleError(
                f"start {self}: the grant {GRANT} holds no samples, because the dataset has no "
                f"training sample of some victim's class; {INSTEAD}"
            )
        return samples
