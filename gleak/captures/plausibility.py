"""Contradictions between an update and the training that is given, told without its samples."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, sqrt

import numpy as np
from torch import Tensor

from gleak.artifacts.protocol import Protocol
from gleak.core.spec import format_spec, format_value
from gleak.optimizers.adagrad import Adagrad
from gleak.optimizers.adam import AdamW, Adaptive
from gleak.optimizers.base import ClientOptimizer
from gleak.optimizers.rmsprop import RMSprop
from gleak.optimizers.sgd import SGD

NEAR = 0.02
"""Largest relative difference of magnitudes, and of rates, that count as one."""
FREEZE = "freeze them where the model is built, too (requires_grad_(False)), and import again"
"""What to do if parameters were frozen in the training only."""
SHARE = 0.9
"""Share of an update's values from which their common magnitude is no coincidence."""
PARAMETERS = 0.1
"""Relative distance from the parameters below which values are taken for parameters."""
UNLIKE = 0.1
"""Cosine with the parameters below which values are taken for gradients or a difference."""
DECAY = 0.5
"""Product of learning rate, steps and weight decay from which parameters are not kept."""
FEWEST = 100
"""Number of values from which a cosine near 0 is no coincidence."""


def are_parameters(values: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> bool:
    """Return True if values are near the parameters of the same names, so they are no gradients."""
    pairs = [(value.double(), parameters[name].double()) for name, value in values.items()]
    distance = sum(float((value - parameter).square().sum()) for value, parameter in pairs)
    norm = sum(float(parameter.square().sum()) for _, parameter in pairs)
    return distance < PARAMETERS**2 * norm


def are_not_parameters(values: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> bool:
    """Return True if values cannot be the parameters of the same names after some training.

    Training adds to the parameters. For values that are perpendicular to them and have no larger
    norm, it would have removed the parameters and put less in their place; gradients and
    differences are such values. Parameters near zero are outgrown by any training, and few values
    can be perpendicular by coincidence, so neither is judged.
    """
    pairs = [(value.double(), parameters[name].double()) for name, value in values.items()]
    product = sum(float((value * parameter).sum()) for value, parameter in pairs)
    norm = sqrt(sum(float(value.square().sum()) for value, _ in pairs))
    before = sqrt(sum(float(parameter.square().sum()) for _, parameter in pairs))
    few = sum(value.numel() for value, _ in pairs) < FEWEST
    return not few and norm < before and abs(product) <= UNLIKE * norm * before


def decays(protocol: Protocol) -> bool:
    """Return True if the weight decay of all steps together can remove much of the parameters.

    Momentum multiplies it.
    """
    optimizer = protocol.optimizer
    decay, momentum = (getattr(optimizer, name, 0.0) for name in ("weight_decay", "momentum"))
    return protocol.local_lr * sum(protocol.factors) * decay > DECAY * (1 - momentum)


def doubt(protocol: Protocol, update: Mapping[str, np.ndarray]) -> str | None:
    """Return why an update may not be of the training and model that are given, or None.

    The training is doubted before the model: it is contradicted, while units that no sample
    activates are no less possible than frozen parameters.

    Args:
        protocol: training as given.
        update: by parameter, Shape (V, R, *shape).
    """
    contradicted = _contradiction(protocol, update) if protocol.content == "difference" else None
    zeros = ", ".join(unmoved(update))
    still = (
        f"the update of {zeros} is zero in all clients, and attacks take that as observed; if the "
        f"training froze them, {FREEZE}"
    )
    return "; ".join(filter(None, (contradicted, zeros and still))) or None


def unmoved(update: Mapping[str, np.ndarray]) -> list[str]:
    """Return the parameters of layers whose updates are zero in all clients; none if all are.

    Of a layer that moves, a parameter may change by less than its rounding, such as a bias before
    batch normalisation; so it is not counted.
    """
    moving = {_layer_of(name) for name, value in update.items() if value.any()}
    return [name for name in update if _layer_of(name) not in moving] if moving else []


def _layer_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _contradiction(protocol: Protocol, update: Mapping[str, np.ndarray]) -> str | None:
    """Return why an update cannot be of the training that is given, or None.

    Of one step of Adam or AdamW from a state of zeros all values have the learning rate as their
    magnitude, but for gradients near zero. Of more steps, and of Adagrad, RMSprop and a gradient
    that is clipped, a learning rate and the number of steps bound the values.

    The update is a difference of weights.
    """
    values = np.concatenate([value.ravel() for value in update.values()])
    sizes = np.abs(values[values != 0])
    common = float(np.median(sizes))
    rate, optimizer = protocol.local_lr, protocol.optimizer
    alike = float(np.mean(np.abs(sizes / common - 1) <= NEAR))
    alike = alike if values.min() < 0 < values.max() else 0.0  # A gradient has both signs.
    signs = isinstance(optimizer, Adaptive) and protocol.local_steps == 1
    if protocol.state is None and alike >= SHARE and not (signs and _near(rate, common)):
        found = float(f"{common:.3g}")
        return (
            f"{100 * alike:.0f}% of the values have the magnitude {format_value(found)}, as after "
            f"one step of adam from a state of zeros at that learning rate, not after "
            f"{protocol.local_steps} of {format_spec(optimizer, '~')} at {format_value(rate)}; "
            f"if it was one: --optimizer adam --local-lr {format_value(found)} --local-steps 1"
        )
    if protocol.state == "kept":
        return None
    least = _least_rate(protocol, update)
    if least > (1 + NEAR) * rate:
        return (
            f"the values are larger than {protocol.local_steps} steps of "
            f"{format_spec(optimizer, '~')} at the learning rate {format_value(rate)} can make "
            f"them: it was at least {least:.3g}, or there were more steps"
        )
    return None


def _near(one: float, other: float) -> bool:
    return abs(one / other - 1) <= NEAR


def _least_rate(protocol: Protocol, update: Mapping[str, np.ndarray]) -> float:
    """Return the smallest learning rate with which the steps can have led to an update."""
    optimizer, factors = protocol.optimizer, protocol.factors
    if isinstance(optimizer, SGD):
        if protocol.clip_norm is None or optimizer.weight_decay:
            return 0.0
        flat = [value.reshape(len(value), -1) for value in update.values()]
        norm = float(np.linalg.norm(np.concatenate(flat, axis=1), axis=1).max())
        return norm * (1 - optimizer.momentum) / (sum(factors) * protocol.clip_norm)
    most = sum(factor * _largest(optimizer, step) for step, factor in enumerate(factors))
    return max(float(np.abs(value).max()) for value in update.values()) / most


def _largest(optimizer: ClientOptimizer, step: int) -> float:
    """Return the largest magnitude of a value of a direction; of any kind but SGD."""
    if isinstance(optimizer, Adaptive):
        decay = optimizer.weight_decay if isinstance(optimizer, AdamW) else 0.0
        return _of_adam(optimizer, step) + decay  # Of parameters in [-1, 1].
    if isinstance(optimizer, Adagrad):
        return 1.0
    if isinstance(optimizer, RMSprop) and optimizer.alpha < 1 and optimizer.momentum < 1:
        return 1 / sqrt(1 - optimizer.alpha) / (1 - optimizer.momentum)
    return inf


def _of_adam(optimizer: Adaptive, step: int) -> float:
    """Return the largest ratio of Adam's mean to its root, by the Cauchy-Schwarz inequality.

    The mean and the mean square are weighted sums of the gradients and of their squares, with
    weights a and b; so the largest ratio is the root of sum(a^2 / b).
    """
    ages = np.arange(step + 1)
    weights, squares = optimizer.beta1**ages, optimizer.beta2**ages
    ratio = (weights / weights.sum()) ** 2 / (squares / squares.sum())
    return sqrt(float(ratio.sum()))
