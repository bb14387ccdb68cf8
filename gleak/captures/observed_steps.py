"""Steps of an optimiser as hooks see them: learning rates, clipping and other optimisers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gleak.captures.observed_optimizer import FOLLOWED_OPTIONS, learning_rates
from gleak.clients.local_training import MARGIN
from gleak.models.batch_norm import batch_norm_layers
from gleak.models.parameters import trained_parameters

SAME = 1e-6
"""Largest relative difference of two norms of the same gradient."""
ALIKE = 1e-4
"""Largest relative difference of factors, and of bounds of several steps, that count as one."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangedGradient:
    """Gradient that is not the one of the backward pass when a step begins.

    Args:
        before: L2 norm of each parameter's gradient after the backward pass.
        after: L2 norms when the step begins.
        largest: largest magnitudes of the values then.
    """

    before: Tensor
    after: Tensor
    largest: Tensor

    @property
    def factors(self) -> Tensor:
        return self.after[self.before > 0] / self.before[self.before > 0]

    @property
    def changed(self) -> Tensor:
        return (self.after - self.before).abs() > SAME * self.before

    @property
    def norm_bound(self) -> float | None:
        """Norm to which `torch.nn.utils.clip_grad_norm_` has clipped; None: it has not."""
        low, high = (float(value) for value in self.factors.aminmax())
        if high - low > ALIKE * high or high > 1:
            return None
        return high * (float(self.before.norm()) + MARGIN)

    @property
    def value_bound(self) -> float | None:
        """Magnitude to which `torch.nn.utils.clip_grad_value_` has clipped; None: it has not."""
        clipped, others = self.largest[self.changed], self.largest[~self.changed]
        low, high = (float(value) for value in clipped.aminmax())
        exceeded = len(others) > 0 and float(others.max()) > high
        return None if low != high or exceeded else high


@dataclass
class StepObserver:
    """Context in which the steps of an optimiser on a model are observed, without changing them.

    Nothing is raised before the training is over.

    Attributes:
        rates: learning rates of the groups of parameters in each step.
        clipped: steps whose gradient was changed between the backward pass and the step.
        others: names of other optimisers that took steps on the same parameters.
        changed: names of the optimiser's options that changed.
        batch_norm: True if batch normalisation was in training mode in the first step.
    """

    model: nn.Module
    optimizer: Optimizer
    rates: list[list[float]] = field(default_factory=list)
    clipped: list[ChangedGradient] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    batch_norm: bool = False

    def __enter__(self) -> Self:
        self._parameters = [*trained_parameters(self.model).values()]
        self._own = {id(value) for value in self._parameters}
        self._norms: dict[int, Tensor] = {}
        self._options = _options(self.optimizer)
        with ExitStack() as stack:
            for number, value in enumerate(self._parameters):
                hook = value.register_post_accumulate_grad_hook(partial(self._note, number))
                stack.callback(hook.remove)
            stack.callback(register_optimizer_step_pre_hook(self._step).remove)
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _note(self, number: int, parameter: Tensor) -> None:
        """Note the norm of a parameter's gradient after a backward pass."""
        if parameter.grad is not None and parameter.grad.layout == torch.strided:
            self._norms[number] = torch._foreach_norm([parameter.grad.detach()])[0]

    def _step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a step of any optimiser, before it is taken."""
        if optimizer is not self.optimizer:
            groups = (group["params"] for group in optimizer.param_groups)
            if any(id(value) in self._own for params in groups for value in params):
                self.others.add(type(optimizer).__name__)
            return
        if not self.rates:
            self.batch_norm = any(layer.training for layer in batch_norm_layers(self.model))
        options = _options(optimizer)
        self.changed |= {name for name, value in options.items() if value != self._options[name]}
        self.rates.append(learning_rates(optimizer))
        if len(args) == 1 and not kwargs:  # Without a closure, in which gradients may change.
            self._compare()
        self._norms.clear()

    def _compare(self) -> None:
        """Note the gradient if it is not that of the backward pass."""
        numbers = [n for n in self._norms if self._parameters[n].grad is not None]
        if not numbers:
            return
        gradients: list[Any] = [self._parameters[n].grad for n in numbers]
        before = torch.stack([self._norms[n] for n in numbers])
        after = torch.stack(torch._foreach_norm(gradients))
        if ((after - before).abs() > SAME * before).any():
            largest = torch.stack([value.abs().max() for value in gradients])
            self.clipped.append(ChangedGradient(before, after, largest))

    @property
    def clipping(self) -> dict[str, float]:
        """Bound of the clipping that explains all changed gradients, as a field of a client."""
        for name, bound in (("clip_norm", "norm_bound"), ("clip_value", "value_bound")):
            bounds = [getattr(each, bound) for each in self.clipped]
            if bounds and None not in bounds and max(bounds) - min(bounds) <= ALIKE * max(bounds):
                return {name: _rounded(bounds)}
        if self.clipped:
            log.warning(
                "gleak.capture: in %d of %d steps the gradient was changed between backward() and "
                "step(), and not by one bound of its norm or of its values; attacks do not know "
                "of it. If it was both of them, give them to gleak.capture as clip_norm and "
                "clip_value",
                len(self.clipped),
                len(self.rates),
            )
        return {}


def _options(optimizer: Optimizer) -> dict[str, list[Any]]:
    """Return the options of an optimiser's groups of parameters that are not the learning rate."""
    names = sorted(FOLLOWED_OPTIONS & optimizer.param_groups[0].keys())
    return {name: [group.get(name) for group in optimizer.param_groups] for name in names}


def _rounded(bounds: Sequence[float]) -> float:
    """Return the median of bounds, which are known up to the rounding of single precision."""
    return float(f"{median(bounds):.6g}")
