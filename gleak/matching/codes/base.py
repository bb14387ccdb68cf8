"""What every code provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.data.base import DatasetSpec
    from gleak.matching.problem import Problem
    from gleak.observation import Observation


class Coder(Protocol):
    """From images to codes and back (ROG Eq. 13)."""

    def encode(self, images: Tensor) -> Tensor:
        """Shape (M, C, H, W) to (M, d)."""

    def decode(self, codes: Tensor) -> Tensor:
        """Shape (M, d) to (M, C, H, W), differentiable."""


class CodeSpec(Spec):
    """The unknowns that a search has in place of the values of a sample."""

    kind: ClassVar[str] = "code"

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse samples that have no such code.

        Raises:
            IncompatibleError: names the code and what does not fit it.
        """

    @abstractmethod
    def reparametrized(self, problem: Problem, observation: Observation) -> Problem:
        """The same problem, in the unknowns of this code."""
