"""What every knowledge spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.core.spec import Spec, changed, parameter
from gleak.data.base import DatasetSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec

OWN = "own"
"""The public dataset is the train split of the victims' own."""


class KnowledgeSpec(Spec):
    """A network that an attacker has trained on public data before the attack.

    Always on the train split of a dataset, so that victims of any dataset's test split are none of
    its samples. ``losses`` names what is noted of a training.
    """

    kind: ClassVar[str] = "knowledge"
    losses: ClassVar[tuple[str, ...]] = ()

    public: str = parameter(
        OWN, "a dataset's name, whose train split it is trained on; own: the victims' own dataset"
    )

    @property
    def trained(self) -> Self:
        """This spec as its file is named, where the public dataset stands beside it."""
        return self.model_copy(update={"public": OWN})

    def public_dataset(self, victims: DatasetSpec) -> DatasetSpec:
        """The dataset it is trained on, for victims of a dataset.

        Raises:
            SpecError: no dataset of this name.
            IncompatibleError: one that cannot be had at the shape of the victims' samples, or
                that is
                nothing to train this on.
        """
        found = victims if self.public == OWN else self._at_shape_of(victims)
        self.check(found)
        return found

    def _at_shape_of(self, victims: DatasetSpec) -> DatasetSpec:
        """The public dataset with images as large as the victims'."""
        public: DatasetSpec = parse("dataset", self.public)
        wanted = dict(zip(("channels", "size"), victims.shape, strict=False))
        known = {key: value for key, value in wanted.items() if key in type(public).model_fields}
        try:
            found: DatasetSpec = changed(public, known)
        except SpecError as error:
            raise IncompatibleError(f"knowledge {self} for victims of {victims}: {error}") from None
        if found.shape != victims.shape:
            raise IncompatibleError(
                f"knowledge {self}: samples of {found} are of shape {found.shape}, and those of "
                f"the victims' {victims} of {victims.shape}; choose another public dataset"
            )
        return found

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse a dataset that it cannot be trained on, as far as is known before reading it.

        Raises:
            IncompatibleError: no images, of a size it cannot serve, or none in the train split.
        """
        if dataset.modality != "image":
            raise IncompatibleError(
                f"knowledge {self} is of images, and {dataset} holds {dataset.modality} data"
            )
        self.check_shape(dataset.shape)
        if dataset.sizes is not None:
            self.check_samples(dataset.sizes["train"], str(dataset))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse images (C, H, W) that the network cannot take.

        Raises:
            IncompatibleError: says which size is too small.
        """

    def check_samples(self, samples: int, dataset: str) -> None:
        """Refuse a train split without samples.

        Raises:
            IncompatibleError: names the dataset.
        """
        if not samples:
            raise IncompatibleError(
                f"knowledge {self}: {dataset} has no samples in its train split"
            )

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Refuse victims on whose own samples it may have been trained.

        Raises:
            IncompatibleError: names client and knowledge; see `public_dataset`, too.
        """
        public = self.public_dataset(victims)
        if client.split == "train" and public.name == victims.name:
            raise IncompatibleError(
                f"knowledge {self} is trained on the train split of {public}, from which client "
                f"{client} draws its samples; use split=test, or another dataset for public"
            )

    @property
    def passes(self) -> int:
        """How many samples go through it in training, for estimates of cost."""
        return 0

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network that attacks are given.

        Args:
            shape: of an image, whose values are in [0, 1].
            classes: of the public dataset; they tell some networks apart.
        """

    @abstractmethod
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Multiply-adds of one sample's forward pass, for estimates of cost."""

    @abstractmethod
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Number of values that are trained and kept, for estimates of size."""
