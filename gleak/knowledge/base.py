"""Base classes of knowledge specs, and their training on a public dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from typing_extensions import override

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.core.spec import FILE_NAME, Spec, changed, parameter
from gleak.data.base import DatasetSpec

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.knowledge.train_knowledge import Trainer

OWN = "own"
"""Value of ``public``: the train split of the victims' dataset."""


class KnowledgeSpec(Spec):
    """Base class of networks that are trained on public data before an attack.

    They are trained on the train split of a dataset only, so that victims of any dataset's test
    split are not among the training samples. ``losses`` names the losses recorded in training.
    """

    kind: ClassVar[str] = "knowledge"
    losses: ClassVar[tuple[str, ...]] = ()

    public: str = parameter(
        OWN, "name of the dataset on whose train split it is trained; own: the victims' dataset"
    )

    @property
    def trained(self) -> Self:
        """This spec without ``public``, as in paths, where the public dataset is a level."""
        return self.model_copy(update={"public": OWN})

    def public_dataset(self, victims: DatasetSpec) -> DatasetSpec:
        """Return the dataset on which it is trained, for victims of a dataset.

        Raises:
            SpecError: there is no dataset of this name.
            IncompatibleError: the dataset is not available in the shape of the victims' samples, or
                this network cannot be trained on it.
        """
        dataset = victims if self.public == OWN else self._at_shape_of(victims)
        self.check(dataset)
        return dataset

    def _at_shape_of(self, victims: DatasetSpec) -> DatasetSpec:
        """Return the public dataset with images of the victims' size."""
        public: DatasetSpec = parse("dataset", self.public)
        wanted = dict(zip(("channels", "size"), victims.shape, strict=False))
        known = {key: value for key, value in wanted.items() if key in type(public).model_fields}
        try:
            dataset: DatasetSpec = changed(public, known)
        except SpecError as error:
            raise IncompatibleError(f"knowledge {self} for victims of {victims}: {error}") from None
        if dataset.shape != victims.shape:
            raise IncompatibleError(
                f"knowledge {self}: samples of {dataset} have shape {dataset.shape}, but those of "
                f"the victims' {victims} have {victims.shape}; choose another public dataset"
            )
        return dataset

    def check(self, dataset: DatasetSpec) -> None:
        """Check, before a dataset is read, that the network can be trained on it.

        Raises:
            IncompatibleError: the samples are not images, their size is not supported, or the train
                split is empty.
        """
        if dataset.modality != "image":
            raise IncompatibleError(
                f"knowledge {self} needs images, but {dataset} contains {dataset.modality} data"
            )
        self.check_shape(dataset.shape)
        if dataset.sizes is not None:
            self.check_samples(dataset.sizes["train"], str(dataset))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that the network can take images (C, H, W).

        Raises:
            IncompatibleError: names the size that is not supported.
        """

    def check_samples(self, samples: int, dataset: str) -> None:
        """Check that the train split is not empty.

        Raises:
            IncompatibleError: names the dataset.
        """
        if not samples:
            raise IncompatibleError(
                f"knowledge {self}: {dataset} has no samples in its train split"
            )

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Check that the network was not trained on the victims' samples.

        Raises:
            IncompatibleError: names client and knowledge; see also `public_dataset`.
        """
        public = self.public_dataset(victims)
        if client.split == "train" and public.name == victims.name:
            raise IncompatibleError(
                f"knowledge {self} is trained on the train split of {public}, from which client "
                f"{client} draws its samples; use split=test, or another dataset for public"
            )

    @property
    def batches(self) -> int:
        """Number of batches that it is trained on, for cost estimates."""
        return 0

    @property
    def passes(self) -> int:
        """Number of forward passes of single samples in training, for cost estimates."""
        return 0

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build the network that attacks use.

        Args:
            shape: of an image, with values in [0, 1].
            classes: number of classes of the public dataset.
        """

    @abstractmethod
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds of one sample's forward pass, for cost estimates."""

    @abstractmethod
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the number of stored parameters, for size estimates."""


class EvaluatorSpec(KnowledgeSpec):
    """Base class of networks that score attacks, and that no attack uses.

    The attack's spec names the network, so that the path identifies how its cell was scored.
    """


class TrainedSpec(KnowledgeSpec):
    """Base class of networks trained by the workflow; the training budget is no setting."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"steps", "batch_size", "lr", "width"})

    steps: int = parameter(10_000, "number of training steps", ge=1)
    batch_size: int = parameter(16, "samples per step", ge=1)
    lr: float = parameter(1e-3, "learning rate of Adam", gt=0)
    width: int = parameter(64, "channels at the resolution of the images", ge=1)

    @property
    @override
    def batches(self) -> int:
        return self.steps

    @property
    @override
    def passes(self) -> int:
        return self.steps * self.batch_size

    @abstractmethod
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        """Build a new network with its trainer."""


class PretrainedSpec(KnowledgeSpec):
    """Base class of networks whose parameters are read from a file.

    The file is a state dict saved by `torch.save` in torch's folder
    ``$TORCH_HOME/hub/checkpoints``. It is read as tensors only, so that no code in it can run.
    Nothing is downloaded. The public dataset should be the one on which the network was trained, as
    far as it is available. Use a new name for changed weights: results are identified by the name,
    and the log contains the file's SHA-256.
    """

    weights: str = parameter("weights.pth", "name of the file", pattern=FILE_NAME)

    @override
    def check_samples(self, samples: int, dataset: str) -> None:
        """Accept any number of samples, as nothing is trained."""

    def read(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build the network with the parameters of the file.

        Raises:
            ArtifactError: the file is missing or altered, contains anything but tensors, tensors
                with other names or shapes, or values that are not finite.
        """
        from gleak.runtime.hub_weights import check_weights, read_weights

        network = self.build(shape, classes)
        path, state = read_weights(self.weights)
        check_weights(path, state, network.state_dict())
        network.load_state_dict(state)
        return network


class ImageGenerator(Protocol):
    """Network that generates an image from a code and a class.

    Args:
        code_size: length of a code, whose prior is a standard normal distribution.
        classes: number of classes; labels count from 0.
    """

    code_size: int
    classes: int

    def generate(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Generate images of Shape (M, C, H, W) in [0, 1].

        Args:
            codes: Shape (M, code_size).
            labels: Shape (M), class indices.
        """


class GenerativeSpec(KnowledgeSpec):
    """Base class of networks that are an `ImageGenerator` of the victims' classes."""

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Check that classes and training samples suit the victims.

        Raises:
            IncompatibleError: the public dataset is another one, whose classes differ; see also
                `KnowledgeSpec.check_victims`.
        """
        if self.public not in (OWN, victims.name):
            raise IncompatibleError(
                f"knowledge {self} generates images of the classes of {self.public}, but the "
                f"victims' classes are those of {victims}; use public={OWN}"
            )
        super().check_victims(victims, client)


@dataclass(frozen=True)
class Pretraining:
    """Training of knowledge on a public dataset; identifies a file ``knowledge.h5``.

    Args:
        dataset: the public dataset.
        knowledge: the network's spec, without its field ``public``.
    """

    dataset: DatasetSpec
    knowledge: KnowledgeSpec

    @classmethod
    def parse(cls, dataset: str, knowledge: str) -> Pretraining:
        """Parse two spec strings and check that they fit together.

        Raises:
            SpecError: unknown or malformed; or ``public`` is given, which the dataset replaces.
            IncompatibleError: the network cannot be trained on the dataset.
        """
        pretraining = cls(parse("dataset", dataset), parse("knowledge", knowledge))
        if pretraining.knowledge != pretraining.knowledge.trained:
            raise SpecError(
                f"knowledge {knowledge!r} repeats its public dataset {dataset!r}: write it "
                f"as {str(pretraining.knowledge.trained)!r}"
            )
        pretraining.knowledge.check(pretraining.dataset)
        return pretraining

    @classmethod
    def from_path(cls, texts: Mapping[str, str]) -> Pretraining:
        """Parse the levels of a path, which must be canonical so that each result has one path.

        Raises:
            SpecError: see `parse`; or defaults are written out, or fields are not in order.
            IncompatibleError: see `parse`.
        """
        pretraining = cls.parse(texts["dataset"], texts["knowledge"])
        for level, text in pretraining.strings().items():
            if text != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {text!r}")
        return pretraining

    def __str__(self) -> str:
        return "/".join(self.strings().values())

    def strings(self) -> dict[str, str]:
        """Return the canonical string of each level."""
        return {"dataset": str(self.dataset), "knowledge": str(self.knowledge)}

    def components(self) -> list[Spec]:
        """Return the knowledge spec and all specs nested in it."""
        return self.knowledge.components()
