"""Start at another sample of the same class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.matching.starts.base import NoisyStart
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register

if TYPE_CHECKING:
    from gleak.core.spec import Spec
    from gleak.data.base import DatasetSpec

GRANT = "class_sample"
INSTEAD = "use a dataset with training samples of every class, or another"


@register("optimal")
class Optimal(NoisyStart):
    """Granted training sample of each label's class, with slight noise ("insider" of CPL).

    The grant contains one sample for each of the victim's labels in ascending order, which is also
    the order of inferred labels.
    """

    source: ClassVar[str] = "CPL sections 3.1 and 4.2, Table 4"

    @property
    @override
    def grants(self) -> frozenset[str]:
        return frozenset({GRANT})

    @override
    def check(self, dataset: DatasetSpec) -> None:
        check_training_samples(self, dataset)

    @override
    def undisturbed(
        self, shape: tuple[int, ...], granted: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the granted samples.

        Raises:
            IncompatibleError: the dataset had no training sample of a class to grant.
        """
        samples = granted[GRANT]
        check_granted(self, len(samples))
        return samples


def check_training_samples(spec: Spec, dataset: DatasetSpec) -> None:
    """Check that a dataset has training samples to grant.

    Args:
        spec: of what uses them, named in the error.
        dataset: of the victims.

    Raises:
        IncompatibleError: it has none.
    """
    if dataset.sizes is not None and not dataset.sizes["train"]:
        raise IncompatibleError(
            f"{spec.kind} {spec} uses the grant {GRANT}, a training sample of the class, and "
            f"{dataset} has no training samples; {INSTEAD} {spec.kind}"
        )


def check_granted(spec: Spec, samples: int) -> None:
    """Check that there is a training sample of every victim's class.

    Args:
        spec: of what uses them, named in the error.
        samples: number of a victim's granted samples.

    Raises:
        IncompatibleError: there is none.
    """
    if not samples:
        raise IncompatibleError(
            f"{spec.kind} {spec}: the grant {GRANT} is empty, because the dataset has no "
            f"training sample of some victim's class; {INSTEAD} {spec.kind}"
        )
