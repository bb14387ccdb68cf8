"""What generators of images of a class have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gleak.core.errors import IncompatibleError
from gleak.knowledge.base import OWN, KnowledgeSpec

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec


class ImageGenerator(Protocol):
    """A network that makes images, each from a code and a class.

    Args:
        code_size: numbers of a code, each normal beforehand.
        classes: how many it knows; labels count from 0.
    """

    code_size: int
    classes: int

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of Shape (M, C, H, W) in [0, 1].

        Args:
            codes: Shape (M, code_size).
            labels: Shape (M), class indices.
        """


class GenerativeSpec(KnowledgeSpec):
    """Knowledge whose network is an `ImageGenerator` of the victims' classes."""

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Refuse classes other than the victims', too; see `KnowledgeSpec.check_victims`.

        Raises:
            IncompatibleError: the public dataset is another one, whose labels mean other things.
        """
        if self.public not in (OWN, victims.name):
            raise IncompatibleError(
                f"knowledge {self} makes images of the classes of {self.public}, and the victims "
                f"are of those of {victims}; use public={OWN}"
            )
        super().check_victims(victims, client)
