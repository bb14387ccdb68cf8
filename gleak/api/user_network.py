"""Networks of users, prepared for attacks without being changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from gleak.api.tensors import Shape, channels_last
from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec, Modality
from gleak.models.broadcast import prepare_layers
from gleak.models.custom import Custom
from gleak.models.examination import check_no_hooks, check_trainable, count_logits
from gleak.models.parameters import in_known_precision, independent_copy, unwrapped
from gleak.runtime.device import exact_kernels


@contextmanager
def own_modes() -> Iterator[None]:
    """Compute the block with gradients, exact kernels, no autocast, and new tensors on the CPU.

    Modes of torch that the caller has set have no effect on it, and return. Also a decorator.
    """
    with (
        exact_kernels(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext(),
    ):
        yield


class GivenImages(DatasetSpec):
    """Images of which only the shape and the number of classes are known."""

    name: ClassVar[str] = "images"

    sample_shape: Shape = parameter((3, 32, 32), "shape of a sample")
    labels: int = parameter(10, "number of classes")

    @property
    def shape(self) -> Shape:
        return self.sample_shape

    @property
    def classes(self) -> int:
        return self.labels

    def load(self, data_dir: Path, seed: int) -> Dataset:
        raise SpecError(f"{self} are not read from a file")

    def __str__(self) -> str:
        return f"{self.name}+shape={'x'.join(map(str, self.sample_shape))}"


class GivenRows(GivenImages):
    """Rows of a table of which only the shape and the number of classes are known."""

    name: ClassVar[str] = "rows"
    modality: ClassVar[Modality] = "tabular"


class GivenNetwork(Custom):
    """Network that is given as a module."""

    name: ClassVar[str] = "module"

    def __str__(self) -> str:
        return "given"


def modality_of(shape: Shape) -> Modality:
    """Return the modality of samples of a shape."""
    return "image" if len(shape) == 3 else "tabular"


def describe_samples(shape: Shape, classes: int) -> GivenImages:
    """Return the spec of samples of a shape: images if it has three axes, else rows of a table."""
    kind = GivenImages if modality_of(shape) == "image" else GivenRows
    return kind(sample_shape=shape, labels=classes)


def prepared_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a module in evaluation mode, in a precision that attacks compute in.

    Of a wrapper (see `gleak.models.parameters`) it is a copy of the network inside.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise SpecError(f"the model is the class {model.__name__}; give an instance of it")
    if not isinstance(model, nn.Module):
        raise SpecError(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise IncompatibleError(
            f"the model {type(model).__name__} has no parameters, so clients have nothing to "
            "train; of a quantised model give the one in floating point"
        )
    if empty := [name for name, value in parameters.items() if value.is_meta]:
        raise IncompatibleError(
            f"parameter {empty[0]} of the model is on the device meta, so it has no values; load "
            "them first"
        )
    check_no_hooks(model)
    try:
        copied = independent_copy(unwrapped(model))
    except (TypeError, RuntimeError) as error:
        raise SpecError(
            f"the model cannot be copied ({error}); give one without locks, open files and values "
            "that were computed with a graph"
        ) from None
    return prepare_layers(in_known_precision(copied))


def examine(network: nn.Module, shape: Shape) -> int:
    """Check a network as user-defined networks of the workflow are, and count its classes."""
    try:
        classes = count_logits(network, shape)
        check_trainable(network, shape, classes)
    except IncompatibleError as error:
        raise IncompatibleError(
            f"the model, for samples of shape {shape}: {error}{channels_last(shape)}"
        ) from None
    return classes
