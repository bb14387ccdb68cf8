"""Base classes of knowledge: specs, trainers, sizes of layers, and training on public data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple, Protocol, Self, TypeVar

from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.core.spec import FILE_NAME, Spec, changed, parameter
from gleak.data.base import DatasetSpec
from gleak.runtime.checkpointing import optimizer_state, resume_optimizer, strip_prefix
from gleak.runtime.hub_weights import check_weights, read_weights

Sides = tuple[int, int]
"""Height and width."""
SMALLEST_SIDE = 4
"""Features with a shorter side are not halved."""
Losses = Mapping[str, "torch.Tensor"]
"""Scalar losses by name, on the device of the network."""
Layer = TypeVar("Layer", bound="torch.nn.Module")
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
        dataset = victims
        if self.public != OWN:
            public: DatasetSpec = parse("dataset", self.public)
            wanted = dict(zip(("channels", "size"), victims.shape, strict=False))
            fields = type(public).model_fields
            try:
                dataset = changed(public, {key: wanted[key] for key in wanted if key in fields})
            except SpecError as error:
                raise IncompatibleError(
                    f"knowledge {self} for victims of {victims}: {error}"
                ) from None
            if dataset.shape != victims.shape:
                raise IncompatibleError(
                    f"knowledge {self}: samples of {dataset} have shape {dataset.shape}, but those "
                    f"of the victims' {victims} have {victims.shape}; choose another public dataset"
                )
        self.check(dataset)
        return dataset

    def check(self, dataset: DatasetSpec) -> None:
        """Check, before a dataset is read, that the network can be trained on it.

        Raises:
            IncompatibleError: no images, their size is not supported, or the train split is empty.
        """
        if dataset.modality != "image":
            raise IncompatibleError(
                f"knowledge {self} needs images, but {dataset} contains {dataset.modality} data"
            )
        self.check_shape(dataset.shape)
        if dataset.sizes is not None:
            self.check_samples(dataset.sizes["train"], str(dataset))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise `IncompatibleError` for images (C, H, W) that the network cannot take."""

    def check_samples(self, samples: int, dataset: str) -> None:
        """Raise `IncompatibleError` if the train split is empty."""
        if not samples:
            raise IncompatibleError(
                f"knowledge {self}: {dataset} has no samples in its train split"
            )

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Raise `IncompatibleError` if the network may be trained on the victims' samples."""
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


class Trainer(ABC):
    """Base class of a network with everything that is trained with it.

    Args:
        network: the network to train.
        **others: networks that are trained with it, by name.
    """

    def __init__(self, network: torch.nn.Module, **others: torch.nn.Module) -> None:
        self.networks = torch.nn.ModuleDict({"network": network, **others})
        self.optimizers: dict[str, torch.optim.Optimizer] = {}

    @abstractmethod
    def learn(
        self, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator
    ) -> Losses:
        """Perform one training step and return its losses.

        Args:
            images: of the public dataset, Shape (M, C, H, W) in [0, 1].
            labels: of the images, Shape (M), class indices.
            generator: random generator of the step, on the CPU.
        """

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything that a training step passes to the next, by name."""
        state = {f"module.{name}": value for name, value in self.networks.state_dict().items()}
        for title, optimizer in self.optimizers.items():
            moments = optimizer_state(optimizer)
            state |= {f"{title}.{name}": value for name, value in moments.items()}
        return state

    def resume(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore a `state`; other keys are ignored."""
        self.networks.load_state_dict(strip_prefix("module", state))
        for title, optimizer in self.optimizers.items():
            resume_optimizer(optimizer, strip_prefix(title, state))


class LossTrainer(Trainer):
    """Trainer of one network by Adam on the loss of a name.

    ``loss`` computes it from the network's outputs, the images and their labels; Shape ().
    """

    def __init__(
        self,
        network: torch.nn.Module,
        lr: float,
        name: str,
        loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__(network)
        self.network, self.name, self.loss = network, name, loss
        self.optimizers["adam"] = torch.optim.Adam(network.parameters(), lr)

    def learn(
        self, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator
    ) -> Losses:
        loss = self.loss(self.network(images), images, labels)
        take_step(self.optimizers["adam"], loss)
        return {self.name: loss.detach()}


def take_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


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
    def batches(self) -> int:
        return self.steps

    @property
    def passes(self) -> int:
        return self.steps * self.batch_size

    @abstractmethod
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        """Build a new network with its trainer."""


class PretrainedSpec(KnowledgeSpec):
    """Base class of networks whose parameters are read from a file.

    The file, a state dict in ``$TORCH_HOME/hub/checkpoints``, is read as `gleak.training.untrained`
    reads one: see `Pretrained` there. The public dataset should be the one on which the network was
    trained, as far as it is available.
    """

    weights: str = parameter("weights.pth", "name of the file", pattern=FILE_NAME)

    def check_samples(self, samples: int, dataset: str) -> None:
        """Accept any number of samples, as nothing is trained."""

    def read(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build the network with the parameters of the file.

        Raises:
            ArtifactError: the file is missing or altered, or does not fit the network.
        """
        network = self.build(shape, classes)
        path, state = read_weights(self.weights)
        check_weights(path, state, network.state_dict())
        network.load_state_dict(state)
        return network


class ImageGenerator(Protocol):
    """Network that generates an image from a code and a class.

    The prior of a code is a standard normal distribution; labels count from 0.
    """

    code_size: int
    classes: int

    def generate(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Map codes, Shape (M, code_size), and labels, (M), to images, (M, C, H, W) in [0, 1]."""


class GenerativeSpec(KnowledgeSpec):
    """Base class of networks that are an `ImageGenerator` of the victims' classes."""

    def check_victims(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Check also that the public dataset is the victims', whose classes it then has."""
        if self.public not in (OWN, victims.name):
            raise IncompatibleError(
                f"knowledge {self} generates images of the classes of {self.public}, but the "
                f"victims' classes are those of {victims}; use public={OWN}"
            )
        super().check_victims(victims, client)


@dataclass(frozen=True)
class Pretraining:
    """Training of knowledge, without ``public``, on a dataset: identifies ``knowledge.h5``."""

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
            SpecError: defaults are written out, or fields are not in order; see also `parse`.
        """
        pretraining = cls.parse(texts["dataset"], texts["knowledge"])
        for level, text in pretraining.strings().items():
            if text != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {text!r}")
        return pretraining

    def __str__(self) -> str:
        return "/".join(self.strings().values())

    def strings(self) -> dict[str, str]:
        return {"dataset": str(self.dataset), "knowledge": str(self.knowledge)}

    def components(self) -> list[Spec]:
        """Return the knowledge spec and all specs nested in it."""
        return self.knowledge.components()


class LayerShape(NamedTuple):
    """Shape of a convolution with a bias and a square kernel; ``sides`` are those of outputs."""

    inputs: int
    outputs: int
    sides: Sides
    kernel: int = 3

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.kernel**2

    @property
    def multiply_adds(self) -> int:
        height, width = self.sides
        return self.weights * height * width


def dense_shape(inputs: int, outputs: int) -> LayerShape:
    """Return the shape of a dense layer, as that of a convolution of a single pixel."""
    return LayerShape(inputs, outputs, (1, 1), kernel=1)


class LayeredSpec(TrainedSpec):
    """Base class of trained networks whose costs are those of a list of layers."""

    @abstractmethod
    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        """Return the shapes of all convolutions and dense layers."""

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return sum(layer.multiply_adds for layer in self.layers(shape, classes))

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return sum(layer.weights + layer.outputs for layer in self.layers(shape, classes))


class Pyramid(NamedTuple):
    """Sizes of the features of a network that halves images of ``channels``.

    ``sides`` are height and width before and after each halving, ``widths`` the channels at these.
    """

    channels: int
    sides: list[Sides]
    widths: list[int]

    @property
    def last(self) -> tuple[int, int, int]:
        """Shape of the features at the lowest resolution."""
        return (self.widths[-1], *self.sides[-1])

    @property
    def steps(self) -> list[tuple[tuple[Sides, int], tuple[Sides, int]]]:
        """Sides and widths before and after each halving."""
        return list(pairwise(zip(self.sides, self.widths, strict=True)))


def halved(sides: Sides) -> Sides:
    """Return height and width after a padded convolution with stride 2."""
    height, width = sides
    return (height + 1) // 2, (width + 1) // 2


def pyramid(shape: tuple[int, ...], width: int, widest: int, halvings: int | None) -> Pyramid:
    """Return the sizes of features, whose channels double after each halving.

    Of images (C, H, W) there are ``width`` channels before any halving, at most ``widest`` times as
    many later. ``halvings`` None: as many as leave sides of `SMALLEST_SIDE` or more.
    """
    channels, height, base = shape
    sides, smallest = [(height, base)], SMALLEST_SIDE if halvings is None else 0
    while len(sides) - 1 != halvings and min(halved(sides[-1])) >= smallest:
        sides.append(halved(sides[-1]))
    return Pyramid(channels, sides, [width * min(2**level, widest) for level in range(len(sides))])


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def zero_initialised(layer: Layer) -> Layer:
    """Set all parameters of a layer to zero, so that its outputs are zero before training."""
    for value in layer.parameters():
        torch.nn.init.zeros_(value)
    return layer
