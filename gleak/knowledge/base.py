"""Base classes of knowledge specs, and their training on a public dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from typing_extensions import override

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.core.spec import FILE_NAME, Spec, changed, parameter
from gleak.data.base import DatasetSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.knowledge.train_knowledge import Trainer


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


class EvaluatorSpec(KnowledgeSpec):
    """Knowledge of whoever scores what an attack found; no attack is given it.

    An attack's spec names it, so that the path says by what its cell was scored.
    """


class TrainedSpec(KnowledgeSpec):
    """A network with its training, whose cost is no part of its setting."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"steps", "batch_size", "lr", "width"})

    steps: int = parameter(10_000, "steps of training", ge=1)
    batch_size: int = parameter(16, "samples of a step", ge=1)
    lr: float = parameter(1e-3, "learning rate of Adam", gt=0)
    width: int = parameter(64, "channels at the resolution of the images", ge=1)

    @property
    @override
    def passes(self) -> int:
        return self.steps * self.batch_size

    @abstractmethod
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        """A new network as `build` makes it, with what trains it."""


class PretrainedSpec(KnowledgeSpec):
    """A network whose parameters come from a file.

    It stands in torch's folder, ``$TORCH_HOME/hub/checkpoints``, and is what `torch.save` makes of
    a state dict; it is read as tensors alone, so no code in it can run. Nothing is downloaded. The
    public dataset is the one it is said to be trained on, as far as it is at hand. Give changed
    weights a new name: results are known by the name, and the log holds the file's SHA-256.
    """

    weights: str = parameter("weights.pth", "name of the file", pattern=FILE_NAME)

    @override
    def check_samples(self, samples: int, dataset: str) -> None:
        """Nothing is trained, so none are needed."""

    def read(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network with the parameters of the file.

        Raises:
            ArtifactError: the file is missing, holds other things than tensors, or tensors of
                other names or shapes, or values that are not finite.
        """
        from gleak.runtime.hub_weights import check_weights, read_weights

        network = self.build(shape, classes)
        path, found = read_weights(self.weights)
        check_weights(path, found, network.state_dict())
        network.load_state_dict(found)
        return network


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


@dataclass(frozen=True)
class Pretraining:
    """A training of knowledge.

    Args:
        dataset: the public dataset.
        knowledge: what is trained on it, without a word on where from.
    """

    dataset: DatasetSpec
    knowledge: KnowledgeSpec

    @classmethod
    def parse(cls, dataset: str, knowledge: str) -> Pretraining:
        """Read two spec strings and check that they fit together.

        Raises:
            SpecError: unknown or malformed; a ``public`` beside the dataset that it stands for.
            IncompatibleError: knowledge that cannot be trained on the dataset.
        """
        found = cls(parse("dataset", dataset), parse("knowledge", knowledge))
        if found.knowledge != found.knowledge.trained:
            raise SpecError(
                f"knowledge {knowledge!r} stands beside its public dataset {dataset!r}: write it "
                f"as {str(found.knowledge.trained)!r}"
            )
        found.knowledge.check(found.dataset)
        return found

    @classmethod
    def from_path(cls, texts: Mapping[str, str]) -> Pretraining:
        """Read the levels of a path, which must be written canonically so that it has one cache.

        Raises:
            SpecError: see `parse`; also where defaults are spelled out or fields are out of order.
            IncompatibleError: see `parse`.
        """
        found = cls.parse(texts["dataset"], texts["knowledge"])
        for level, text in found.strings().items():
            if text != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {text!r}")
        return found

    def __str__(self) -> str:
        return "/".join(self.strings().values())

    def strings(self) -> dict[str, str]:
        """Canonical string of each level."""
        return {"dataset": str(self.dataset), "knowledge": str(self.knowledge)}

    def components(self) -> list[Spec]:
        """The knowledge and the specs nested in it."""
        return self.knowledge.components()
