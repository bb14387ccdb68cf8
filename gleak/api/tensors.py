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
PARAMETERS = 0.1
"""Relative distance from the parameters below which values are taken for parameters."""


def named_gradients(
    gradients: Gradients, network: nn.Module, place: str = PLACE
) -> dict[str, np.ndarray]:
    """Return gradients by the names of parameters, in the network's order and precision.

    Args:
        gradients: a mapping by name, or values in the order of ``network.parameters()``. Values of
            frozen parameters are None or left out; None for a trained one stands for zeros.
        network: gives names, order and precision; names that it does not have come last.
        place: name of the argument in errors.

    Returns:
        By name, Shape (*shape).

    Raises:
        ArtifactError: the number of values does not fit the network, one is not a tensor, or they
            are its state instead of an update.
    """
    trained = trained_parameters(network)
    given = _by_name(gradients, network, trained, place)
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


def _by_name(
    gradients: Gradients, network: nn.Module, trained: Mapping[str, Tensor], place: str
) -> dict[str, Any]:
    if isinstance(gradients, Mapping):
        return dict(gradients)
    values = _in_order(gradients, place)
    every = [name for name, _ in network.named_parameters()]
    for names in (every, list(trained)):
        if len(values) == len(names):
            return dict(zip(names, values, strict=True))
    frozen = f" and {len(every) - len(trained)} frozen" if len(every) > len(trained) else ""
    raise ArtifactError(
        f"{place}: {len(values)} tensors, but the model has {len(trained)} trained{frozen} "
        "parameters; give one for each, in the order of model.parameters()"
    )


def _in_order(gradients: Any, place: str) -> list[Any]:
    """Return values in the order of parameters.

    Raises:
        ArtifactError: it is one value, or has no order.
    """
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
    fitting = [
        (value.double(), trained[name].detach().cpu().double())
        for name, value in values.items()
        if name in trained and trained[name].shape == value.shape
    ]
    distance = sum(float((value - parameter).square().sum()) for value, parameter in fitting)
    norm = sum(float(parameter.square().sum()) for _, parameter in fitting)
    if distance < PARAMETERS**2 * norm:
        raise ArtifactError(f"{place}: these are the parameters of the model{remedy}")


def tensor_of(place: str, value: Any) -> Tensor:
    """Return a tensor, array or sequence of real numbers as a dense tensor on the CPU.

    Raises:
        ArtifactError: it is none of these; names the place.
    """
    try:
        found = _converted(value)
        if found.is_nested:
            raise TypeError("a nested tensor")
        if found.is_quantized:
            found = found.dequantize()
        found = (found.to_dense() if found.layout != torch.strided else found).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(
            f"{place}: not a tensor of numbers ({error}); give a tensor, an array or a list"
        ) from None
    if found.is_complex():
        raise ArtifactError(f"{place}: values of type {found.dtype}, expected real numbers")
    return found


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
    """Return gradients without a network: by name, or by position in a sequence; without None.

    Raises:
        ArtifactError: values that are no tensors, parameters, or not finite; or there are none.
    """
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
    found = [_alike(old, values.get(str(at))) for at, old in enumerate(gradients)]
    if hasattr(gradients, "_fields"):
        return type(gradients)(*found)
    return found if isinstance(gradients, list) else tuple(found)


def _alike(old: ArrayLike | None, new: Tensor | None) -> ArrayLike | None:
    if old is None or new is None:
        return None
    if isinstance(old, Tensor):
        return new.to(old.device, old.dtype if old.is_floating_point() else new.dtype)
    if isinstance(old, np.ndarray):
        return new.numpy().astype(old.dtype if old.dtype.kind == "f" else new.numpy().dtype)
    return new


def checked_inputs(inputs: Any, shape: Shape | None = None, name: str = "inputs") -> Tensor:
    """Return true samples in single or double precision on the CPU, Shape (N, *shape).

    Args:
        inputs: tensor, array or sequence with values in [0, 1].
        shape: expected shape of a sample; None: any.
        name: name of the argument in errors.

    Raises:
        ArtifactError: another shape, or values outside of [0, 1].
    """
    found = tensor_of(name, inputs)
    given = tuple(found.shape)
    if found.ndim < 2 or not found.numel() or (shape is not None and given[1:] != shape):
        wanted = "(N, *shape)" if shape is None else f"(N, {', '.join(map(str, shape))})"
        raise ArtifactError(f"{name}: shape {given}, expected {wanted}{_remedy(given, shape)}")
    if not found.is_floating_point() or not ((found >= 0) & (found <= 1)).all():
        scale = "; divide bytes by 255" if found.dtype == torch.uint8 else ""
        raise ArtifactError(
            f"{name}: {found.dtype} values from {found.min()} to {found.max()}, expected "
            f"intensities in [0, 1]; a normalisation belongs into the model{scale}"
        )
    return floating(found)


def _remedy(given: Shape, shape: Shape | None) -> str:
    """Return what to do about samples of a wrong shape, as far as it is known."""
    if shape is not None and given == shape:
        return "; give one sample as a batch, inputs[None]"
    if shape is not None and (*shape[1:], shape[0]) == given[1:]:
        return "; the channels are last: give inputs.permute(0, 3, 1, 2)"
    return ""


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
    """Return labels on the CPU, Shape (N).

    Args:
        labels: class indices of any integer type; false and true are 0 and 1.
        samples: expected number of labels; None: any.
        classes: number of classes; None: unknown.
        name: name of the argument in errors.

    Raises:
        ArtifactError: another number of labels, or values that are no classes.
    """
    found = tensor_of(name, labels)
    if found.ndim != 1 or not len(found) or samples not in (None, len(found)):
        remedies = {0: "; give [label] for one sample", 2: "; of one-hot rows give argmax(1)"}
        raise ArtifactError(
            f"{name}: shape {tuple(found.shape)}, expected ({samples or 'N'},): one for each "
            f"sample{remedies.get(found.ndim, '')}"
        )
    whole = found.long()
    last = "" if classes is None else f" to {classes - 1}"
    inside = (whole >= 0) & (whole < (classes or np.inf))
    if found.is_floating_point() or not inside.all():
        values = found if found.is_floating_point() else whole
        raise ArtifactError(
            f"{name}: {found.dtype} values from {values.min()} to {values.max()}, expected classes "
            f"0{last}"
        )
    return whole


def checked_shape(shape: ShapeLike) -> Shape:
    """Return the shape of a sample as a tuple.

    Raises:
        SpecError: it is not a sequence of positive whole numbers, or of too many values.
    """
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
    """Return a whole number of any integer type.

    Raises:
        SpecError: it is of another type.
    """
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise SpecError(f"{name} = {value!r}: expected a whole number, not {type(value).__name__}")


def checked_count(name: str, value: SupportsIndex) -> int:
    """Return a number of samples or steps; specs check that it is positive.

    Raises:
        SpecError: it is not a whole number, or above `LARGEST_COUNT`.
    """
    found = whole_number(name, value)
    if found > LARGEST_COUNT:
        raise SpecError(f"{name} = {found}: expected at most {LARGEST_COUNT}")
    return found


def checked_seed(seed: SupportsIndex) -> int:
    """Return a seed.

    Raises:
        SpecError: it is not a whole number, or negative.
    """
    found = whole_number("seed", seed)
    if found < 0:
        raise SpecError(f"seed = {found}: expected a whole number of at least 0")
    return found


def real_number(name: str, value: SupportsFloat) -> float:
    """Return a finite number of any real type.

    Raises:
        SpecError: it is of another type, or not finite.
    """
    try:
        found = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise SpecError(f"{name} = {value!r}: expected a finite number")
    return found
