"""Gradients, samples, labels and numbers as users give them, checked before any work."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.encodings import Dense, check_encoded
from gleak.captures.plausibility import are_parameters
from gleak.core.errors import ArtifactError, SpecError
from gleak.models.parameters import trained_parameters

ArrayLike = Tensor | np.ndarray | Iterable[Any]
"""Tensor, array or (nested) sequence of real numbers, on any device and in any layout."""
Gradients = Mapping[str, ArrayLike | None] | Iterable[ArrayLike | None]
"""By name of the parameter, or in the order of ``model.parameters()``. None stands for zeros."""
Labels = Tensor | np.ndarray | Iterable[int]
"""Class indices of any integer type."""
Shape = tuple[int, ...]
ShapeLike = Iterable[SupportsIndex] | Tensor | np.ndarray
PLACE = "gradients"
ORDERED = Iterator | ValuesView | deque | list | tuple
LARGEST_COUNT = 2**31 - 1
LARGEST_SAMPLE = 2**28
"""Number of values, a gibibyte in single precision."""


def named_gradients(
    gradients: Gradients, network: nn.Module, place: str = PLACE
) -> dict[str, np.ndarray]:
    """Return gradients by the names of parameters, in the network's order and precision.

    Those of frozen parameters may be None or left out; names that it does not have come last.
    """
    trained = trained_parameters(network)
    if isinstance(gradients, Mapping):
        given: dict[str, Any] = dict(gradients)
    else:
        sequence = _in_order(gradients, place)
        every = [name for name, _ in network.named_parameters()]
        names = next((known for known in (every, [*trained]) if len(known) == len(sequence)), None)
        if names is None:
            frozen = f" and {len(every) - len(trained)} frozen" if len(every) > len(trained) else ""
            raise ArtifactError(
                f"{place}: {len(sequence)} tensors, but the model has {len(trained)} trained"
                f"{frozen} parameters; give one for each, in the order of model.parameters()"
            )
        given = dict(zip(names, sequence, strict=True))
    values = {name: value for name, value in given.items() if value is not None or name in trained}
    order = [*(name for name in trained if name in values), *(values.keys() - trained.keys())]
    tensors = {
        name: torch.zeros_like(trained[name])
        if values[name] is None
        else tensor_of(f"{place}: {name}", values[name])
        for name in order
    }
    _check_no_state(tensors, network, place)
    return {
        name: value.to(trained[name].dtype if name in trained else torch.float32).cpu().numpy()
        for name, value in tensors.items()
    }


def _in_order(gradients: Any, place: str) -> list[Any]:
    single = Tensor | np.ndarray | str | bytes | Set
    if isinstance(gradients, single) or not isinstance(gradients, Iterable):
        raise ArtifactError(
            f"{place}: expected tensors by name or in the order of model.parameters(), not "
            f"{type(gradients).__name__}"
        )
    return list(gradients)


def _check_no_state(values: Mapping[str, Tensor], network: nn.Module, place: str) -> None:
    """Raise if values are the network's parameters or buffers, not an update of them."""
    trained = trained_parameters(network)
    remedy = (
        "; give the gradients of the loss, or the parameters after training minus those before, "
        "with client='fedavg+sends=weights+local_lr=0.1'"
    )
    for name, _ in network.named_buffers():
        if name in values:
            raise ArtifactError(f"{place}: {name} is a buffer, so this is a state dict{remedy}")
    fitting = {
        name: value
        for name, value in values.items()
        if name in trained and trained[name].shape == value.shape
    }
    if are_parameters(fitting, {name: trained[name].detach().cpu() for name in fitting}):
        raise ArtifactError(f"{place}: these are the parameters of the model{remedy}")


def tensor_of(place: str, value: Any) -> Tensor:
    """Return a tensor, array or sequence of real numbers as a dense tensor on the CPU."""
    try:
        tensor = _converted(value)
        if tensor.is_nested:
            raise TypeError("a nested tensor")
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        tensor = (tensor.to_dense() if tensor.layout != torch.strided else tensor).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(
            f"{place}: not a tensor of numbers ({error}); give a tensor, an array or a list"
        ) from None
    if tensor.is_complex():
        raise ArtifactError(f"{place}: values of type {tensor.dtype}, expected real numbers")
    return tensor


def _converted(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().resolve_neg()
    if isinstance(value, bytes | bytearray):
        raise TypeError("bytes; np.frombuffer makes an array of them")
    if isinstance(value, ORDERED):
        parts = list(value)
        if any(isinstance(part, Tensor | np.ndarray | ORDERED) for part in parts):
            return torch.stack([_converted(part) for part in parts])
        return torch.as_tensor(parts)
    if not hasattr(value, "__array__"):
        return torch.as_tensor(value)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array")
    array = np.array(value)
    if array.dtype == object:
        return _converted(array.tolist())
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))


def update_tensors(gradients: Gradients) -> dict[str, Tensor]:
    """Return gradients without a network: by name, or by position in a sequence; without None."""
    if isinstance(gradients, Mapping):
        given: dict[str, Any] = dict(gradients)
    else:
        given = {str(number): each for number, each in enumerate(_in_order(gradients, PLACE))}
    parameters = [name for name, value in given.items() if isinstance(value, nn.Parameter)]
    if parameters:
        raise ArtifactError(
            f"{PLACE}: {parameters[0]} is a torch.nn.Parameter, not its gradient; give the "
            "parameter's grad"
        )
    tensors = {
        name: floating(tensor_of(f"{PLACE}: {name}", value))
        for name, value in given.items()
        if value is not None
    }
    if not tensors:
        raise ArtifactError(f"{PLACE}: no tensors; give one for each parameter")
    for name, value in tensors.items():
        check_encoded(PLACE, name, Dense(value[None, None].numpy()))
    return tensors


def floating(value: Tensor) -> Tensor:
    """Return values in double precision if they have it, else in single precision."""
    return value if value.dtype == torch.float64 else value.float()


def like(gradients: Gradients, values: Mapping[str, Tensor]) -> Any:
    """Return values in the container of gradients: by name, or as a tuple or a list.

    Values have the precision and the device of those they replace, integers single precision; None
    stays None.
    """
    if isinstance(gradients, Mapping):
        return {name: _alike(old, values.get(name)) for name, old in gradients.items()}
    alike = [_alike(old, values.get(str(at))) for at, old in enumerate(gradients)]
    if hasattr(gradients, "_fields"):
        return type(gradients)(*alike)
    return alike if isinstance(gradients, list) else tuple(alike)


def _alike(old: ArrayLike | None, new: Tensor | None) -> ArrayLike | None:
    if old is None or new is None:
        return None
    if isinstance(old, Tensor):
        return new.to(old.device, old.dtype if old.is_floating_point() else new.dtype)
    if isinstance(old, np.ndarray):
        return new.numpy().astype(old.dtype if old.dtype.kind == "f" else new.numpy().dtype)
    return new


def checked_inputs(inputs: Any, shape: Shape | None = None, name: str = "inputs") -> Tensor:
    """Return samples in [0, 1], Shape (N, *shape), in single or double precision on the CPU."""
    samples = tensor_of(name, inputs)
    given = tuple(samples.shape)
    if samples.ndim < 2 or not samples.numel() or (shape is not None and given[1:] != shape):
        wanted, remedy = "(N, *shape)", ""
        if shape is not None:
            wanted = f"(N, {', '.join(map(str, shape))})"
            if given == shape:
                remedy = "; give one sample as a batch, inputs[None]"
            elif (*shape[1:], shape[0]) == given[1:]:
                remedy = "; the channels are last: give inputs.permute(0, 3, 1, 2)"
        raise ArtifactError(f"{name}: shape {given}, expected {wanted}{remedy}")
    if not samples.is_floating_point() or not ((samples >= 0) & (samples <= 1)).all():
        scale = "; divide bytes by 255" if samples.dtype == torch.uint8 else ""
        raise ArtifactError(
            f"{name}: {samples.dtype} values from {samples.min()} to {samples.max()}, expected "
            f"intensities in [0, 1]; a normalisation belongs into the model{scale}"
        )
    return floating(samples)


def channels_last(shape: Shape) -> str:
    """Return the remedy for samples that look like images with channels last, else nothing."""
    if len(shape) == 3 and shape[2] in (1, 3) and shape[0] not in (1, 3):
        return (
            "; images are (channels, height, width): give inputs.permute(0, 3, 1, 2) and "
            f"shape {(shape[2], *shape[:2])}"
        )
    return ""


def checked_labels(
    labels: Any, samples: int | None = None, classes: int | None = None, name: str = "labels"
) -> Tensor:
    """Return labels of this number of samples and classes, if they are known, on the CPU.

    Shape (N), of any integer type; false and true are 0 and 1.
    """
    given = tensor_of(name, labels)
    if given.ndim != 1 or not len(given) or samples not in (None, len(given)):
        remedies = {0: "; give [label] for one sample", 2: "; of one-hot rows give argmax(1)"}
        raise ArtifactError(
            f"{name}: shape {tuple(given.shape)}, expected ({samples or 'N'},): one for each "
            f"sample{remedies.get(given.ndim, '')}"
        )
    whole = given.long()
    last = "" if classes is None else f" to {classes - 1}"
    inside = (whole >= 0) & (whole < (classes or np.inf))
    if given.is_floating_point() or not inside.all():
        values = given if given.is_floating_point() else whole
        raise ArtifactError(
            f"{name}: {given.dtype} values from {values.min()} to {values.max()}, expected classes "
            f"0{last}"
        )
    return whole


def checked_shape(shape: ShapeLike) -> Shape:
    """Return the shape of a sample as a tuple."""
    try:
        sizes = () if isinstance(shape, bytes | bytearray) else tuple(map(operator.index, shape))
    except (TypeError, ValueError, RuntimeError):
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise SpecError(
            f"shape = {shape!r}: expected positive whole numbers, (channels, height, width) of an "
            "image or (features,) of a row"
        )
    if math.prod(sizes) > LARGEST_SAMPLE:
        raise SpecError(f"shape = {sizes}: expected at most {LARGEST_SAMPLE} values in a sample")
    return sizes


def whole_number(name: str, value: SupportsIndex) -> int:
    """Return a whole number of any integer type."""
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise SpecError(f"{name} = {value!r}: expected a whole number, not {type(value).__name__}")


def checked_count(name: str, value: SupportsIndex) -> int:
    """Return a number of samples or steps; specs check that it is positive."""
    count = whole_number(name, value)
    if count > LARGEST_COUNT:
        raise SpecError(f"{name} = {count}: expected at most {LARGEST_COUNT}")
    return count


def checked_seed(seed: SupportsIndex) -> int:
    """Return a whole number of at least 0."""
    number = whole_number("seed", seed)
    if number < 0:
        raise SpecError(f"seed = {number}: expected a whole number of at least 0")
    return number


def real_number(name: str, value: SupportsFloat) -> float:
    """Return a finite number of any real type."""
    try:
        number = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise SpecError(f"{name} = {value!r}: expected a finite number")
    return number
