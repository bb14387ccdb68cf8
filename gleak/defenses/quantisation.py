"""Quantisation: values are sent as low-precision integers."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import ClassVar, Literal

from gleak.artifacts.encodings import Encoded, Quantized, Rounded, Signs
from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, per_round, scale_rounds, update_norms
from gleak.defenses.sparsification import Scope
from gleak.models.parameters import Tensors

OFF_LEVEL = 0.05
"""Largest distance of values from their levels, relative to a level, by rounding."""
AS_NEAR = 1e-5
"""Difference of such distances that does not count, relative to the largest value."""


class QuantizerSpec(DefenseSpec):
    """Base class of quantisation to 2s + 1 levels: Q(g_i) = (||g||_p / s) sign(g_i) xi_i.

    This is ROG's Equation 6 with kappa = 1; xi_i is an integer from 0 to s, adjacent to
    s |g_i| / ||g||_p. The sign takes one of the bits, so s = 2^(bits - 1) - 1: three bits make
    seven levels, and the eighth pattern is not used. The authors' code counts the levels of one
    sign including zero, s = levels - 1; if its three bits are eight of these, s is 7, which is
    ``bits=4`` here. Sent are the codes sign(g_i) xi_i, and ||g||_p / s for each tensor. A g of
    zeros is not changed. Levels are relative to g, so a gradient and a difference of weights are
    rounded alike.
    """

    bits: int = parameter(3, "of a code, including its sign", source="ROG section 4.3", ge=2, le=8)
    scope: Scope = parameter(
        "tensor",
        "definition of g: each tensor, or a whole round as one vector",
        source="ROG's code",
    )

    encoding: ClassVar[type[Quantized]]
    """Encoding of the codes, which says how values were rounded."""

    @property
    def steps(self) -> int:
        """Number of levels per sign besides zero: s in ROG's Equation 6."""
        return 2 ** (self.bits - 1) - 1

    @property
    def order(self) -> float:
        """Order p of the norm; infinity for the largest magnitude."""
        return math.inf

    @abstractmethod
    def rounded(self, levels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Round magnitudes in units of levels to integers xi; Shape as given."""

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        norm = partial(torch.linalg.vector_norm, ord=self.order, dtype=torch.float64)
        norms = {name: norm(value.reshape(len(value), -1), dim=1) for name, value in update.items()}
        if self.scope == "global":
            norms = dict.fromkeys(norms, norm(torch.stack(list(norms.values())), dim=0))
        sent: dict[str, Encoded] = {}
        for name, value in update.items():
            height = norms[name].to(value.dtype)
            of_round = per_round(height, value)
            shares = torch.where(of_round > 0, value.abs() / of_round, 0)
            numbers = self.rounded(self.steps * shares, generator).clamp(max=self.steps)
            codes = (value.sign() * numbers).to(torch.int8)
            sent[name] = self.encoding(codes.numpy()[None], (height / self.steps).numpy()[None])
        return sent

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode values as codes: multiples of a level that their largest magnitudes tell."""
        flat = {name: value.reshape(len(value), -1) for name, value in update.items()}
        if self.scope == "global":
            levels = dict.fromkeys(flat, self._level(torch.cat([*flat.values()], 1), "the update"))
        else:
            levels = {name: self._level(values, name) for name, values in flat.items()}
        return {
            name: self.encoding(
                _codes(value, per_round(levels[name], value)).to(torch.int8).numpy()[None],
                levels[name].numpy()[None],
            )
            for name, value in update.items()
        }

    def _level(self, values: torch.Tensor, name: str) -> torch.Tensor:
        """Return the value of code 1 in each round, (R), of values (R, M) that were sent.

        The largest of those whose multiples are nearest to the values.
        """
        highest = values.abs().amax(1)
        codes = range(1, self.steps + 1) if math.isfinite(self.order) else [self.steps]
        levels = torch.stack([highest / code for code in codes])
        errors = torch.stack([_distance(values, level) for level in levels])
        near = errors <= errors.amin(0) + AS_NEAR * highest
        level = torch.where(near, levels, 0).amax(0)
        if (errors.amin(0) > OFF_LEVEL * highest / self.steps).any():
            raise ArtifactError(
                f"{name}: its values are no multiples of a level, so it was not sent under defense "
                f"{self}, or was rounded since (half precision, small differences of weights); "
                "correct the bits, or leave the defence out"
            )
        return level


def _distance(values: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Return the largest distance of values, (R, M), from multiples of a level, (R)."""
    of_round = per_round(level, values)
    return (values - of_round * _codes(values, of_round)).abs().amax(1)


def _codes(values: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
    """Return the nearest codes of values, which broadcast with the value of code 1; 0 for 0."""
    return torch.where(level > 0, values / level, 0).round()


@register("quantize")
class Quantize(QuantizerSpec):
    """Every value is rounded to the nearest of equally spaced levels up to the largest magnitude.

    Values halfway between two levels are rounded to the even one. The error is at most half a
    level, and values below half a level become zero: with three bits those below a sixth of the
    largest magnitude. See `gleak.defenses.quantisation.QuantizerSpec`.
    """

    source = "ROG Equation 6, Example 2, section 4.3"
    encoding: ClassVar[type[Quantized]] = Rounded

    def rounded(self, levels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return levels.round()


@register("qsgd")
class QSGD(QuantizerSpec):
    """Every value is rounded up or down at random, so that its expectation is exact (QSGD).

    A value of l + p levels, 0 <= p < 1, is sent as l + 1 with probability p and as l otherwise
    (ROG Equation 7). With the Euclidean norm of Alistarh et al. nearly all values of a large tensor
    are below the first level, and the values sent are sparse. ROG's text does not specify the norm,
    and its code takes the largest magnitude, which is the default here.
    """

    source = "Alistarh et al. 2017 section 3.1; ROG Equations 6 and 7, section 4.3"
    encoding: ClassVar[type[Quantized]] = Quantized

    norm: Literal["max", "l2"] = parameter(
        "max",
        "value of the highest level: the largest magnitude, or the L2 norm of g",
        source="ROG's code; Alistarh et al. 2017 (l2)",
    )

    @property
    def order(self) -> float:
        return {"max": math.inf, "l2": 2.0}[self.norm]

    def rounded(self, levels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        below = levels.floor()
        drawn = levels.new_empty(levels.shape).uniform_(generator=generator)
        return below + (drawn < levels - below)


@register("signsgd")
class SignSGD(DefenseSpec):
    """Every value is replaced by its sign: -1, 0 or 1 (ROG Equation 5).

    Zero has a code of its own, so the server learns which values vanish (those of an inactive ReLU,
    for example); ROG's code sends zeros as 1, which takes one bit per value. No scale is sent: an
    attacker can only compare directions, and federated training needs a learning rate that suits
    steps of one. A gradient and a difference of weights have opposite signs and are hidden alike.
    """

    source = "Bernstein et al. 2018; ROG Equation 5, Example 1"

    def at_sent_norm(self, update: Tensors) -> Tensors:
        """Scale the update to the norm of its signs, the square root of the nonzero count."""
        counts = [value.reshape(len(value), -1).count_nonzero(1) for value in update.values()]
        norms = update_norms(update)
        factors = torch.where(norms > 0, torch.stack(counts).sum(0).sqrt() / norms, 1.0)
        return {name: scale_rounds(value, factors) for name, value in update.items()}

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return self._signs(update)

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode values as signs, if all that are not zero have one magnitude."""
        for name, value in update.items():
            magnitudes = value[value != 0].abs()
            if len(magnitudes) and magnitudes.max() > (1 + OFF_LEVEL) * magnitudes.min():
                raise ArtifactError(
                    f"{name}: its values differ in magnitude, so it was not sent under defense "
                    f"{self}; leave the defence out"
                )
        return self._signs(update)

    def _signs(self, update: Tensors) -> dict[str, Encoded]:
        return {
            name: Signs(value.sign().to(torch.int8).numpy()[None]) for name, value in update.items()
        }
