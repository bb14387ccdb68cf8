"""Gradients, samples and labels as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.encodings import Dense, check_encoded
from gleak.core.errors import ArtifactError
from gleak.models.parameters import trained_parameters

ArrayLike = Tensor | np.ndarray
Gradients = Mapping[str, ArrayLike | None] | Iterable[ArrayLike | None]
"""By name of the parameter, or in the order of ``model.parameters()``. None stands for zeros."""
Labels = Tensor | np.ndarray | Sequence[int]
PLACE = "gradients"


def named_gradients(gradients: Gradients, network: nn.Module) -> dict[str, np.ndarray]:
    """Return gradients by the names of parameters, in the network's order and precision.

    Args:
        gradients: a mapping by name, or values in the order of ``network.parameters()``. Values of
            frozen parameters are None or left out; None for a trained one stands for zeros.
        network: gives names, order and precision; names that it does not have come last.

    Returns:
        By name, Shape (*shape).

    Raises:
        ArtifactError: the number of values does not fit the network, or one is not a tensor.
    """
    trained = trained_parameters(network)
    given = _by_name(gradients, network, trained)
    values = {name: value for name, value in given.items() if value is not None or name in trained}
    order = [*(name for name in trained if name in values), *(values.keys() - trained.keys())]
    return {name: _array(name, values[name], trained.get(name)) for name in order}


def _by_name(
    gradients: Gradients, network: nn.Module, trained: Mapping[str, Tensor]
) -> dict[str, Any]:
    if isinstance(gradients, Mapping):
        return dict(gradients)
    if isinstance(gradients, Tensor | np.ndarray | str) or not isinstance(gradients, Iterable):
        raise _not_tensors(gradients)
    values = list(gradients)
    every = [name for name, _ in network.named_parameters()]
    for names in (every, list(trained)):
        if len(values) == len(names):
            return dict(zip(names, values, strict=True))
    frozen = f" and {len(every) - len(trained)} frozen" if len(every) > len(trained) else ""
    raise ArtifactError(
        f"{PLACE}: {len(values)} tensors, but the model has {len(trained)} trained{frozen} "
        "parameters; give one for each, in the order of model.parameters()"
    )


def _array(name: str, value: Any, parameter: Tensor | None) -> np.ndarray:
    if value is None:
        assert parameter is not None
        value = torch.zeros_like(parameter)
    precision = torch.float32 if parameter is None else parameter.dtype
    return tensor_of(f"{PLACE}: {name}", value).to(precision).numpy()


def tensor_of(place: str, value: Any) -> Tensor:
    """Return a tensor, array or sequence of numbers as a dense tensor on the CPU.

    Raises:
        ArtifactError: it is none of these; names the place.
    """
    try:
        found = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(f"{place}: not a tensor of numbers ({error})") from None
    return (found.to_dense() if found.layout != torch.strided else found).cpu()


def update_tensors(gradients: Gradients) -> dict[str, Tensor]:
    """Return gradients without a network: by name, or by position in a sequence; without None.

    Raises:
        ArtifactError: values that are no tensors, or not finite.
    """
    if isinstance(gradients, Mapping):
        given: dict[str, Any] = dict(gradients)
    elif isinstance(gradients, Sequence):
        given = {str(number): value for number, value in enumerate(gradients)}
    else:
        raise _not_tensors(gradients)
    tensors = {
        name: _floating(tensor_of(f"{PLACE}: {name}", value))
        for name, value in given.items()
        if value is not None
    }
    for name, value in tensors.items():
        check_encoded(PLACE, name, Dense(value[None, None].numpy()))
    return tensors


def _floating(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float64 else value.float()


def _not_tensors(gradients: Any) -> ArtifactError:
    return ArtifactError(
        f"{PLACE}: expected tensors by name or in the order of model.parameters(), not "
        f"{type(gradients).__name__}"
    )


def like(gradients: Gradients, values: Mapping[str, Tensor]) -> Any:
    """Return values in the container of gradients: by name, or as a tuple or a list.

    Values have the precision and the device of those they replace; None stays None.
    """
    if isinstance(gradients, Mapping):
        return {name: _alike(old, values.get(name)) for name, old in gradients.items()}
    pairs = [(old, values.get(str(number))) for number, old in enumerate(gradients)]
    found = [_alike(old, new) for old, new in pairs]
    return found if isinstance(gradients, list) else tuple(found)


def _alike(old: ArrayLike | None, new: Tensor | None) -> ArrayLike | None:
    if old is None or new is None:
        return None
    if isinstance(old, Tensor):
        return new.to(old)
    return new.numpy().astype(old.dtype)


def checked_inputs(inputs: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return true samples in single or double precision on the CPU, Shape (N, *shape).

    Args:
        inputs: tensor or array with values in [0, 1].
        shape: expected shape of a sample; None: any.

    Raises:
        ArtifactError: another shape, or values outside of [0, 1].
    """
    found = tensor_of("inputs", inputs)
    if found.ndim < 2 or not len(found) or (shape is not None and found.shape[1:] != shape):
        wanted = "(N, *shape)" if shape is None else f"(N, {', '.join(map(str, shape))})"
        raise ArtifactError(f"inputs: shape {tuple(found.shape)}, expected {wanted}")
    if not found.is_floating_point() or not ((found >= 0) & (found <= 1)).all():
        raise ArtifactError(
            f"inputs: {found.dtype} values from {found.min()} to {found.max()}, expected "
            "intensities in [0, 1]; a normalisation belongs into the model"
        )
    return _floating(found)


def checked_labels(labels: Any, samples: int, classes: int | None = None) -> Tensor:
    """Return labels on the CPU, Shape (N).

    Args:
        labels: class indices.
        samples: expected number of labels.
        classes: number of classes; None: unknown.

    Raises:
        ArtifactError: another number of labels, or values that are no classes.
    """
    found = tensor_of("labels", labels)
    if found.shape != (samples,):
        raise ArtifactError(
            f"labels: shape {tuple(found.shape)}, expected ({samples},): one for each sample"
        )
    last = "" if classes is None else f" to {classes - 1}"
    inside = (found >= 0) & (found < (classes or np.inf))
    if found.is_floating_point() or not inside.all():
        raise ArtifactError(
            f"labels: {found.dtype} values from {found.min()} to {found.max()}, expected classes "
            f"0{last}"
        )
    return found.long()
