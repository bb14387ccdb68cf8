"""Base classes of the codes of samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

from gleak.core.lazy import torch
from gleak.core.spec import Spec

if TYPE_CHECKING:
    from gleak.attacks.matching.problem import Problem
    from gleak.attacks.observation import Observation
    from gleak.data.base import DatasetSpec


class Coder(Protocol):
    """Encoder and decoder between images and codes (ROG Eq. 13)."""

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images; Shape (M, C, H, W) to (M, d)."""

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Decode codes, differentiably; Shape (M, d) to (M, C, H, W)."""


class CodeSpec(Spec):
    """Parametrisation of a sample: what a search optimises in place of its values."""

    kind: ClassVar[str] = "code"

    def check(self, dataset: DatasetSpec) -> None:
        """Check that the samples of a dataset can be encoded.

        Raises:
            IncompatibleError: names the code and what does not fit it.
        """

    def check_network(self, network: torch.nn.Module) -> None:
        """Check that the network has what the code needs.

        Raises:
            IncompatibleError: names what it lacks.
        """

    @abstractmethod
    def reparametrized(self, problem: Problem, observation: Observation) -> Problem:
        """Return the same problem with the code as unknowns."""
