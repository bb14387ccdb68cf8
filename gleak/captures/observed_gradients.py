"""Gradients when steps begin, compared with those of the backward pass: clipping and scaling."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor

from gleak.clients.local_training import MARGIN

PROBE, WATCHED = 512, 4
"""Largest number of values of a parameter's gradient that are compared, equally far apart, and of
parameters: clipping of the norm changes all, of values those with large gradients."""
ALIKE = 1e-4
"""Largest relative difference of factors, and of bounds of several steps, that count as one."""
EXACT = 1e-6
"""Largest relative difference of values that differ by rounding only."""
DIVISORS = 10_000
"""Largest whole number by which a gradient is scaled: near one over a larger one is any factor."""
DIGITS = 5
"""Of a bound: `MARGIN` changes the others, by a factor that is not known if a loss is scaled."""
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
        if factor >= 1 or not _are_multiples(self.before, self.after, factor):
            return None
        return self.norm + factor * MARGIN

    @property
    def value_bound(self) -> float | None:
        """Magnitude to which `torch.nn.utils.clip_grad_value_` has clipped; None: it has not."""
        sizes = self.after.abs()
        bound, inner = float(sizes.max()), sizes < sizes.max()
        scale = _factor(self.before[inner], self.after[inner]) if inner.any() else 1.0
        clipped = (scale * self.before).clamp(-bound, bound)
        alike = torch.allclose(self.after, clipped, rtol=EXACT, atol=0)
        return bound if alike and _is_scaling(scale) else None


@dataclass
class GradientComparison:
    """Context in which the gradients of parameters are compared, without changing them.

    They are compared by some of their values, which costs less than a step's arithmetic. Scaling
    that only undoes that of a loss, or takes the mean of accumulated gradients, is no change.

    Args:
        parameters: that require a gradient.

    Attributes:
        steps: number of steps that were compared.
        changed: gradients that were changed between the backward pass and the step.
    """

    parameters: Sequence[Tensor]
    steps: int = 0
    changed: list[ChangedGradient] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._noted: dict[Tensor, Tensor] = {}
        with ExitStack() as stack:
            for value in self.parameters[:: max(1, -(-len(self.parameters) // WATCHED))]:
                hook = value.register_post_accumulate_grad_hook(self._note)
                stack.callback(hook.remove)
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def begin_step(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Compare the gradients, given what the optimiser's step was called with, itself first."""
        if len(args) == 1 and not kwargs:  # Without a closure, in which gradients may change.
            self.steps += 1
            self._compare()
        self._noted.clear()

    def _note(self, parameter: Tensor) -> None:
        """Note some values of a parameter's gradient after a backward pass."""
        if parameter.grad is not None and parameter.grad.layout == torch.strided:
            self._noted[parameter] = probe(parameter.grad).clone()

    def _compare(self) -> None:
        """Note the gradient if it is neither that of the backward pass nor a scaled one."""
        pairs = [
            (before, probe(value.grad))
            for value, before in self._noted.items()
            if value.grad is not None
        ]
        if all(torch.equal(before, after) for before, after in pairs):
            return
        before, after = (
            torch.cat([part.cpu().double() for part in parts]) for parts in zip(*pairs, strict=True)
        )
        factor = _factor(before, after)
        if _is_scaling(factor) and _are_multiples(before, after, factor):
            return
        gradients = [value.grad for value in self.parameters if value.grad is not None]
        norms = torch._foreach_norm(gradients)
        norm = torch.stack([each.to(norms[0].device) for each in norms]).norm()
        self.changed.append(ChangedGradient(before, after, float(norm)))

    @property
    def clipping(self) -> dict[str, float]:
        """Bound of the clipping that explains all changed gradients, as a field of a client."""
        for name, bound in (("clip_norm", "norm_bound"), ("clip_value", "value_bound")):
            bounds = [getattr(each, bound) for each in self.changed]
            if bounds and None not in bounds and max(bounds) - min(bounds) <= ALIKE * max(bounds):
                return {name: _rounded(bounds)}
        if self.changed:
            log.warning(
                "gleak.capture: in %d of %d steps the gradient was changed between backward() and "
                "step(), and not by one bound of its norm or of its values; attacks do not know "
                "of it. If it was both of them, give them as clip_norm and clip_value to "
                "gleak.capture, or as --clip-norm and --clip-value to gleak import",
                len(self.changed),
                self.steps,
            )
        return {}


def probe(gradient: Tensor) -> Tensor:
    """Return at most `PROBE` values of a dense gradient in the order of its memory, as a view."""
    count = gradient.numel()
    if count <= PROBE and gradient.is_contiguous():
        return gradient.detach().view(-1)
    step = -(-count // PROBE)
    return gradient.detach().as_strided((-(-count // step),), (step,))


def _factor(before: Tensor, after: Tensor) -> float:
    """Return the factor by which the value that was the largest has changed."""
    place = before.abs().argmax()
    return float(after[place] / before[place])


def _are_multiples(before: Tensor, after: Tensor, factor: float) -> bool:
    return float((after - factor * before).norm()) <= ALIKE * float(after.norm())


def _is_scaling(factor: float) -> bool:
    """Return True for a power of two, as of loss scaling, or one over a number of gradients."""
    if not 0 < factor < math.inf:
        return False
    whole = round(min(1 / factor, DIVISORS))
    return math.frexp(factor)[0] == 0.5 or abs(factor * whole - 1) <= EXACT


def _rounded(bounds: Sequence[float]) -> float:
    """Return the median of bounds in the digits that single precision and a scaled loss leave."""
    return float(f"{median(bounds):.{DIGITS}g}")
