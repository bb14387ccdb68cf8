"""Steps of an optimiser as hooks see them: learning rates, clipping and other optimisers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gleak.captures.observed_optimizer import OPTIONS, learning_rates
from gleak.clients.local_training import MARGIN
from gleak.models.batch_norm import batch_norm_layers
from gleak.models.parameters import trained_parameters

PROBE, WATCHED = 512, 4
"""Largest number of values of a parameter's gradient that are compared, equally far apart, and of
parameters: clipping of the norm changes all, of values those with large gradients."""
ALIKE = 1e-4
"""Largest relative difference of factors, and of bounds of several steps, that count as one."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangedGradient:
    """Gradient that is not the one of the backward pass when a step begins.

    Args:
        before: some of its values after the backward pass, Shape (P).
        after: the same values when the step begins.
        norm: L2 norm of all values then.
    """

    before: Tensor
    after: Tensor
    norm: float

    @property
    def norm_bound(self) -> float | None:
        """Norm to which `torch.nn.utils.clip_grad_norm_` has clipped; None: it has not."""
        factor = float(self.after.norm() / self.before.norm())
        error = float((self.after - factor * self.before).norm())
        if factor >= 1 or error > ALIKE * float(self.after.norm()):
            return None
        return self.norm + factor * MARGIN

    @property
    def value_bound(self) -> float | None:
        """Magnitude to which `torch.nn.utils.clip_grad_value_` has clipped; None: it has not."""
        bound = float(self.after[self.after != self.before].abs().max())
        return bound if torch.equal(self.after, self.before.clamp(-bound, bound)) else None


@dataclass
class StepObserver:
    """Context in which the steps of an optimiser on a model are observed, without changing them.

    Gradients are compared by some of their values, which costs less than a step's arithmetic.
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
        self._probes: dict[Tensor, Tensor] = {}
        self._options = _options(self.optimizer)
        with ExitStack() as stack:
            for value in self._parameters[:: max(1, -(-len(self._parameters) // WATCHED))]:
                hook = value.register_post_accumulate_grad_hook(self._note)
                stack.callback(hook.remove)
            stack.callback(register_optimizer_step_pre_hook(self._step).remove)
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _note(self, parameter: Tensor) -> None:
        """Note some values of a parameter's gradient after a backward pass."""
        if parameter.grad is not None and parameter.grad.layout == torch.strided:
            self._probes[parameter] = probe(parameter.grad).clone()

    def _step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a step of any optimiser, before it is taken."""
        if optimizer is not self.optimizer:
            groups = (group["params"] for group in optimizer.param_groups)
            if any(id(value) in self._own for params in groups for value in params):
                self.others.add(type(optimizer).__name__)
            return
        if not self.rates:
            self.batch_norm = any(layer.training for layer in batch_norm_layers(self.model))
        if (options := _options(optimizer)) != self._options:
            self.changed |= {name for name, _ in {*options} ^ {*self._options}}
        self.rates.append(learning_rates(optimizer))
        if len(args) == 1 and not kwargs:  # Without a closure, in which gradients may change.
            self._compare()
        self._probes.clear()

    def _compare(self) -> None:
        """Note the gradient if it is not that of the backward pass."""
        pairs = [
            (before, probe(value.grad))
            for value, before in self._probes.items()
            if value.grad is not None
        ]
        if all(torch.equal(before, after) for before, after in pairs):
            return
        gradients = [value.grad for value in self._parameters if value.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        before, after = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        self.clipped.append(ChangedGradient(before, after, float(norm)))

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


def probe(gradient: Tensor) -> Tensor:
    """Return at most `PROBE` values of a dense gradient in the order of its memory, as a view."""
    count = gradient.numel()
    if count <= PROBE and gradient.is_contiguous():
        return gradient.detach().view(-1)
    step = -(-count // PROBE)
    return gradient.detach().as_strided((-(-count // step),), (step,))


def _options(optimizer: Optimizer) -> list[tuple[str, Any]]:
    """Return the options of an optimiser's groups of parameters that are not the learning rate."""
    return [(name, group.get(name)) for group in optimizer.param_groups for name in OPTIONS]


def _rounded(bounds: Sequence[float]) -> float:
    """Return the median of bounds, which are known up to the rounding of single precision."""
    return float(f"{median(bounds):.6g}")
