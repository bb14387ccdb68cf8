"""How sparse a source is: a smoothed power of the magnitudes of its groups of values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """Derivatives of a contrast at sources, as the quasi-Newton step of ICA needs them.

    Args:
        values: g, of the mean contrast for each value; Shape (V, n, C, D).
        slopes: mean of g' over a source's values; Shape (V, n).
    """

    values: Tensor
    slopes: Tensor


@dataclass(frozen=True)
class Contrast:
    """Log of the mean of (r^2 + s^2 v)^(p/2), over p; r^2 sums a group's squares.

    Values in one group are small or large together: the colours' differences at one place. Small
    for sparse sources of given variance v, and a likelihood: that of generalised normal sources.

    Args:
        power: p, 1 for Laplacian sources; natural images' edges are sparser still.
        smoothing: s, relative to the sources' deviation.
    """

    power: float
    smoothing: float

    def measure(self, sources: Tensor) -> Tensor:
        """Sum of the sources' contrasts; Shape (V, n, C, D) to (V)."""
        return self._squares(sources).pow(self.power / 2).mean((2, 3)).log().sum(1) / self.power

    def scores(self, sources: Tensor) -> Scores:
        """Derivatives at sources of unit variance; see `Scores`."""
        groups = sources.shape[2]
        squares = self._squares(sources)
        weights = squares.pow(self.power / 2 - 1)
        scale = (squares * weights).mean((2, 3), keepdim=True)
        smooth = self.smoothing**2 * weights.mean((2, 3), keepdim=True) / scale
        pull = groups * weights / scale
        bend = 1 + (self.power - 2) * sources.square() / squares
        return Scores((pull + smooth) * sources, (pull * bend + smooth).mean((2, 3)))

    def _squares(self, sources: Tensor) -> Tensor:
        variances = sources.square().mean((2, 3), keepdim=True)
        return sources.square().sum(2, keepdim=True) + self.smoothing**2 * variances


LAPLACIAN = Contrast(power=1.0, smoothing=0.3)
