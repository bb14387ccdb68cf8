"""A problem of samples, searched through codes of them (ROG Eq. 14)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from typing_extensions import override

from gleak.matching.problem import Evaluation, Problem

if TYPE_CHECKING:
    from gleak.matching.codes.base import Coder


@dataclass(frozen=True)
class Coded(Problem):
    """Unknowns are the codes of a victim's samples; what is minimised is as it was.

    Args:
        whole: the problem in the values of the samples themselves.
        coder: between samples and codes.
        code_size: unknowns of one sample.
    """

    whole: Problem
    coder: Coder
    code_size: int

    @classmethod
    def of(cls, problem: Problem, coder: Coder) -> Self:
        """This problem in the codes of its samples."""
        blank = next(iter(problem.observed.values())).new_zeros(1, *problem.shape[1:])
        with torch.no_grad():
            size = coder.encode(blank).shape[1]
        return cls(
            parts=problem.parts,
            observed=problem.observed,
            targets=problem.targets,
            shape=problem.shape,
            classes=problem.classes,
            whole=problem,
            coder=coder,
            code_size=size,
        )

    @property
    @override
    def values(self) -> int:
        return self.shape[0] * self.code_size

    @override
    def keep(self, rows: Tensor | slice) -> Self:
        return replace(super().keep(rows), whole=self.whole.keep(rows))

    @override
    def point(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.coder.encode(inputs).flatten()

    @override
    def inputs(self, points: Tensor) -> Tensor:
        codes = points[:, : self.values].unflatten(1, (self.shape[0], -1))
        return self.coder.decode(codes.flatten(0, 1)).unflatten(0, (-1, self.shape[0]))

    @override
    def evaluate(self, points: Tensor) -> Evaluation:
        """The derivative at the samples goes back through the decoder."""
        points = points.detach().requires_grad_()
        inputs, logits = self.inputs(points).flatten(1), points[:, self.values :]
        whole = self.whole.evaluate(torch.cat([inputs.detach(), logits.detach()], 1))
        along, rest = whole.gradient.split([inputs.shape[1], logits.shape[1]], 1)
        (gradient,) = torch.autograd.grad(inputs, points, along)
        gradient[:, self.values :] = rest
        return replace(whole, gradient=gradient)
