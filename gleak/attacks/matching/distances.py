"""Distances between the dummy gradient and the observed one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self, cast

from gleak.artifacts.protocol import Clipping
from gleak.attacks.matching.pieces import FLOOR, Pair, Piece, rows
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter

SQUARED_FLOOR = 1e-20
"""Lower bound of the product of squared norms that the cosine divides by."""
ROUNDING = 1e-12
"""Squared error of single precision, relative to the mean square of an update."""
LEAST_SHARE = 1e-6
"""Share of the squared norm that a parameter has at least, where shares are balanced."""


class DistanceSpec(Spec):
    """Distance between the dummy gradient and the observed one."""

    kind: ClassVar[str] = "distance"
    reads_codes: ClassVar[bool] = False
    """True if the distance depends on the code in which the gradient was sent."""
    joins_parameters: ClassVar[bool] = True
    """True if the gradients of several parameters may be measured as one vector."""

    def of(self, observation: Observation) -> Self:
        """Return the distance for what was observed."""
        return self

    @abstractmethod
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        """Compute the distance over all parameters; Shape (V), zero for equal gradients."""

    @abstractmethod
    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the distance of a zero gradient from the observed one; Shape (V), positive.

        The engine divides distances by it, so that a client with a small gradient (a confident
        model) is matched as closely as one with a large gradient.
        """


def total(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum values over parameters; Shape (V)."""
    first, *rest = values
    return sum(rest, start=first)


@register("cosine")
class Cosine(DistanceSpec):
    """One minus the cosine of all parameters taken as one vector (InvertGrad)."""

    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        inner = total([piece.inner() for piece in pieces])
        squared = total([piece.squared_norm() for piece in pieces])
        target = total([piece.target_squared_norm() for piece in pieces])
        return 1 - inner / (squared * target).clamp_min(SQUARED_FLOOR).sqrt()

    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1, as for any gradient orthogonal to the observed one."""
        return observed[0].new_ones(len(observed[0]))


@register("l2")
class L2(DistanceSpec):
    """Sum of squared differences over all parameters (DLG; CPL Algorithm 1, line 12)."""

    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        return total([piece.squared_distance() for piece in pieces])

    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""
        return total([rows(one).norm(dim=1).square() for one in observed]).clamp_min(FLOOR)


@register("signs")
class SignDistance(L2):
    """Sum over all parameters of (tanh(a g') - s)^2, s the observed signs (ROG Eq. 15)."""

    source = "ROG Equation 15"

    gain: float = parameter(1.0, "a: factor of the dummy gradient", source="ROG Equation 15", gt=0)

    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        """Compute the distance; Shape (V). Every gradient is materialised, whatever its size."""
        return total([piece.sign_distance(self.gain) for piece in pieces])


@register("likelihood")
class Likelihood(DistanceSpec):
    """Mean over all values of minus the logarithm of the probability of the code that was sent.

    For codes that many gradients share (`QuantisationCell`): of values that were rounded (`qsgd`,
    `quantize`), and signs (`signsgd`). A gradient that cannot have been sent so is as far as it
    lies outside. Other updates have the squared distance of each parameter, relative to its mean
    square, so that small layers count as much as their values do. Every gradient is materialised.
    """

    source = "ours; the probabilities of QSGD are ROG Equation 7"
    reads_codes: ClassVar[bool] = True

    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        entries = sum(piece.entries for piece in pieces)
        return total([piece.unlikelihood() for piece in pieces]) / entries

    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1: logarithms of probabilities have no scale; Shape (V)."""
        return observed[0].new_ones(len(observed[0]))


class EstimatedScale(DistanceSpec):
    """Base class of distances from what was sent by clients that may have scaled their gradient.

    A server receives u = c g + noise, with the gradient g of the samples and a scale c that is 1,
    or unknown if clients clip their update, or each of its parameters for each sample
    (``clipping``): then it is that of least squares, for the samples together where their gradients
    are not known apart. What the encoding shows is used: values that were not sent do not count,
    products with a basis are compared in this basis, and rounded values and signs have no error
    inside their cells, and no unknown scale. Squared errors of each parameter, and numbers of
    values, have Shape (parameters, V).
    """

    clipping: Clipping | None = parameter(
        None, "what clients multiply by an unknown factor; set by what is observed", source="ours"
    )

    reads_codes: ClassVar[bool] = True
    joins_parameters: ClassVar[bool] = False

    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        parts = cast("Sequence[Piece]", pieces)
        with torch.no_grad():
            powers = torch.stack([part.target_squared_norm() for part in parts])
            sizes = torch.stack([part.counts for part in parts])
            units = self.units(powers, sizes)
        if self.clipping is None:
            return self._of_parts(parts, units)
        if self.clipping == "parameter":
            return self._of_parts([part.fitted() for part in parts], units)
        inner = total([part.inner() for part in parts])
        norm = total([part.squared_norm() for part in parts])
        factor = (inner / norm.clamp_min(FLOOR)).clamp_min(0)
        return self._of_parts([part.scaled(factor) for part in parts], units)

    def units(self, powers: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """Return what errors of each parameter are relative to: the update's mean square.

        Args:
            powers: squared norms of what was sent; Shape (parameters, V).
            sizes: numbers of values that were sent; Shape (parameters, V).

        Returns:
            Shape (parameters, V).
        """
        mean = powers.sum(0) / sizes.sum(0).clamp_min(1)
        return mean.clamp_min(FLOOR).expand_as(powers)

    def _of_parts(self, parts: Sequence[Piece], units: torch.Tensor) -> torch.Tensor:
        """Compute the distance from errors relative to units, Shape (parameters, V)."""
        found = [
            (errors, unit)
            for part, unit in zip(parts, units, strict=True)
            for errors in part.squared_errors()
        ]
        squared = torch.cat([one.squared / unit for one, unit in found])
        values = torch.cat([one.values for one, _ in found])
        of_rows = torch.cat([torch.full_like(one.values, one.of_rows) for one, _ in found]).bool()
        return self.of_errors(squared, values, of_rows)

    def of(self, observation: Observation) -> Self:
        return self.model_copy(update={"clipping": observation.protocol.clipping})

    @abstractmethod
    def of_errors(
        self, errors: torch.Tensor, counts: torch.Tensor, of_rows: torch.Tensor
    ) -> torch.Tensor:
        """Compute the distance from E squared errors of what was sent; Shape (V).

        Args:
            errors: relative to the units of their parameters; Shape (E, V).
            counts: numbers of values that they are of; Shape (E, V).
            of_rows: True for the error of one row of a gradient; Shape (E, V).
        """

    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1: the distance has no unit; Shape (V)."""
        return observed[0].new_ones(len(observed[0]))


@register("squared_error")
class SquaredError(EstimatedScale):
    """Mean squared error of what was sent, relative to its mean square.

    With ``balance`` b > 0 that of a parameter which has a share p of the update's squared norm is
    divided by p^b: parameters of small gradients count more, by which a search converges faster.
    """

    source = "ours"

    balance: float = parameter(
        0.0, "b: at 1 all parameters have the same squared norm", source="ours", ge=0, le=1
    )

    def units(self, powers: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        shares = powers / powers.sum(0).clamp_min(FLOOR)
        return super().units(powers, sizes) * shares.clamp_min(LEAST_SHARE).pow(self.balance)

    def of_errors(
        self, errors: torch.Tensor, counts: torch.Tensor, of_rows: torch.Tensor
    ) -> torch.Tensor:
        return errors.sum(0) / counts.sum(0).clamp_min(1)


@register("profile")
class ProfileLikelihood(EstimatedScale):
    """Minus the logarithm of the likelihood of what was sent, in normal noise of unknown size.

    The size of the noise is profiled as the scale is. The variance of the noise in parameter l,
    with M_l values that were sent and the squared error r_l = |u_l - c g_l|^2, has a prior at the
    mean v that weighs as much as K values (``shared``):

        sum_l M_l / 2 log(v) + sum_l (M_l + K) / 2 log((r_l / v + K) / (M_l + K)),
        v = sum_l r_l / sum_l M_l.

    The error of a dense layer's gradient, D^T A, is split: that in the span of its inputs A, where
    D is wrong, counts as a parameter in each row, with a K of its own (``row``), and the rest as
    another. A unit whose input is near the kink of a ReLU may be active in place of another, which
    changes a whole row, by much more than noise does, and tells little about the samples: the
    logarithm bounds what such a row counts, and the sums in v are without the rows of the largest
    errors, a share ``wrong`` of those with any. All rows are wrong where the samples are, and then
    count in v. (Some 1e-6 of the error of rows, `gleak.attacks.matching.pieces.RIDGE`, is counted
    as that of the rest.)

    So neither the defence nor its strength needs to be known, nor whether each parameter has noise
    of its own (`fedcdp`). In nats above the least value: to v is added `ROUNDING`, relative to the
    mean square of the update, and nothing is explained at about M / 2 log(1 / ROUNDING).
    """

    source = "ours; profile likelihood of a normal distribution"

    shared: float = parameter(
        1000.0, "K: values that the mean noise of all parameters counts as", source="ours", ge=0
    )
    row: float = parameter(
        20.0, "K of the error of one row in the span of its inputs", source="ours", ge=0
    )
    wrong: float = parameter(
        0.2,
        "share of the rows with errors, of the largest, that v is without",
        source="ours",
        ge=0,
        le=1,
    )

    def of_errors(
        self, errors: torch.Tensor, counts: torch.Tensor, of_rows: torch.Tensor
    ) -> torch.Tensor:
        errors, counts = errors.double(), counts.double()
        values = counts.sum(0).clamp_min(1)
        usual = (~self.are_wrong(errors / counts.clamp_min(1), of_rows)).to(errors)
        mean = (usual * errors).sum(0) / (usual * counts).sum(0).clamp_min(1)
        weights = torch.where(of_rows, counts + self.row, counts + self.shared)
        excess = (errors - counts * mean) / weights.clamp_min(FLOOR) / (mean + ROUNDING)
        own = (weights / 2 * excess.log1p()).sum(0)
        return values / 2 * (1 + mean / ROUNDING).log() + own

    def are_wrong(self, errors: torch.Tensor, of_rows: torch.Tensor) -> torch.Tensor:
        """Mark the rows of the largest mean squared errors, of those with any; Shape (E, V)."""
        known = errors.detach().where(of_rows & (errors > 0), torch.nan)
        bound = known.nanquantile(1 - self.wrong, dim=0)
        return of_rows & (errors > bound)
