"""Independent component analysis: FastICA and maximum likelihood with a sparse contrast."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.attacks.matching import kernels
from gleak.attacks.unmixing.mixtures import Unmixing
from gleak.core.lazy import torch
from gleak.runtime.gpu_loop import evaluations_between_reads

LIKELIHOOD_ITERATIONS = 60
LIKELIHOOD_TOLERANCE = 1e-4
FLATTEST = 0.1
HALVINGS = 8
SUFFICIENT = 1e-4
FIXED_POINT_ITERATIONS = 300
FIXED_POINT_TOLERANCE = 1e-4
POLAR_STEPS = 20
"""Steps of the iteration to an orthogonal matrix, for norms of up to 1000 times the least singular
value; those of mixtures of up to 128 photographs are up to 60 times as large."""


@dataclass(frozen=True)
class Contrast:
    """Log of the mean of (r^2 + s^2 v)^(p/2), over p; r^2 is the sum of a group's squares.

    Small for sparse sources of given variance v, and the likelihood of generalised normal ones.
    Values in one group, such as the colours of a pixel, are small or large together.

    Args:
        power: p, 1 for Laplacian sources; natural images' edges are sparser still.
        smoothing: s, relative to the sources' standard deviation.
    """

    power: float
    smoothing: float

    def measure(self, sources: torch.Tensor) -> torch.Tensor:
        """Sum the sources' contrasts; Shape (V, n, C, D) to (V)."""
        return self._squares(sources).pow(self.power / 2).mean((2, 3)).log().sum(1) / self.power

    def scores(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the derivatives at sources of unit variance, for the quasi-Newton step of ICA.

        Returns:
            g, of the mean contrast for each value, Shape (V, n, C, D), and the mean of g' over a
            source's values, Shape (V, n).
        """
        groups = sources.shape[2]
        squares = self._squares(sources)
        weights = squares.pow(self.power / 2 - 1)
        scale = (squares * weights).mean((2, 3), keepdim=True)
        smooth = self.smoothing**2 * weights.mean((2, 3), keepdim=True) / scale
        pull = groups * weights / scale
        bend = 1 + (self.power - 2) * sources.square() / squares
        return (pull + smooth) * sources, (pull * bend + smooth).mean((2, 3))

    def _squares(self, sources: torch.Tensor) -> torch.Tensor:
        variances = sources.square().mean((2, 3), keepdim=True)
        return sources.square().sum(2, keepdim=True) + self.smoothing**2 * variances


LAPLACIAN = Contrast(power=1.0, smoothing=0.3)


def fixed_point(white: torch.Tensor, contrast: Contrast) -> torch.Tensor:
    """Compute orthogonal matrices with sparse sources by FastICA, all components at once.

    Symmetric FastICA (Hyvärinen and Oja 2000, section 6): every row moves to
    E[g(u z) z] - E[g'(u z)] u, then the rows are orthogonalised. Starts at the identity;
    a victim stops when no row rotates any more, or after `FIXED_POINT_ITERATIONS`.

    Signals have unit covariance and are grouped as for `Contrast`; (V, n, C, D) to (V, n, n).
    """
    victims, count = white.shape[:2]
    signals = white.flatten(2)
    matrices = torch.eye(count).to(signals).expand(victims, count, count)
    stopped = torch.zeros(victims, 1, 1).bool().to(white.device)
    for iteration in range(FIXED_POINT_ITERATIONS):
        scores, slopes = contrast.scores((matrices @ signals).view_as(white))
        moved = scores.flatten(2) @ signals.mT / signals.shape[2]
        turned = nearest_orthogonal(moved - slopes[..., None] * matrices)
        angles = 1 - (turned * matrices).sum(2).abs().amin(1)
        matrices = torch.where(stopped, matrices, turned)
        stopped = stopped | (angles < FIXED_POINT_TOLERANCE)[:, None, None]
        if _over(stopped, iteration):
            break
    return matrices


def nearest_orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Compute the orthogonal matrices nearest to regular ones; Shape (V, n, n).

    On a GPU, where a singular value decomposition of a small matrix takes milliseconds, by Newton
    and Schulz's iteration X <- (3 X - X X^T X) / 2, which converges to the polar factor.
    """
    if kernels.on_cpu(matrices):
        left, _, right = torch.linalg.svd(matrices)
        return left @ right
    turned = matrices / torch.linalg.matrix_norm(matrices, keepdim=True)
    for _ in range(POLAR_STEPS):
        turned = torch.baddbmm(turned, turned, turned.mT @ turned, beta=1.5, alpha=-0.5)
    return turned


def _over(stopped: torch.Tensor, iteration: int) -> bool:
    """Return True if all victims are seen to have stopped; a GPU is asked rarely."""
    between = evaluations_between_reads(stopped.device)
    return (iteration + 1) % between == 0 and bool(stopped.all())


def maximise_likelihood(white: torch.Tensor, first: torch.Tensor, contrast: Contrast) -> Unmixing:
    """Find matrices U that minimise the sources' contrast minus log |det U|.

    Real sources of a few thousand values are slightly correlated, so the best matrix is not
    orthogonal as in FastICA. Quasi-Newton steps U <- (1 - t S) U with the Hessian's 2 x 2 blocks
    for independent sources, made definite where their curvature is below `FLATTEST` (Ablin, Cardoso
    and Gramfort 2018), and t halved until the likelihood rises. A victim stops when it gains less
    than `LIKELIHOOD_TOLERANCE`, or after `LIKELIHOOD_ITERATIONS`.

    Args:
        white: signals; Shape (V, n, C, D), grouped as for `Contrast`.
        first: Shape (V, n, n).
        contrast: measure of sparsity.

    Returns:
        The objective is the negative log-likelihood of a value, up to a constant.
    """
    matrices, least = first, _loss(white, first, contrast)
    stopped = torch.zeros_like(least).bool()
    iterations = torch.zeros_like(least).long()
    for iteration in range(LIKELIHOOD_ITERATIONS):
        deviations = _sources(white, matrices).square().mean((2, 3)).sqrt()
        matrices = matrices / deviations[..., None]
        steps, slopes = _steps(white, matrices, contrast)
        moved, losses, length, waiting = matrices, least, 1.0, ~stopped
        for _ in range(HALVINGS):
            tried = matrices - length * steps @ matrices
            tried_losses = _loss(white, tried, contrast)
            pays = waiting & (tried_losses < least - SUFFICIENT * length * slopes)
            moved = torch.where(pays[:, None, None], tried, moved)
            losses = torch.where(pays, tried_losses, losses)
            waiting = waiting & ~pays
            if not waiting.any():
                break
            length /= 2
        matrices = moved
        iterations += ~stopped
        stopped = stopped | (least - losses < LIKELIHOOD_TOLERANCE)
        least = losses
        if _over(stopped, iteration):
            break
    return Unmixing(matrices, iterations, least)


def _sources(white: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    return (matrices @ white.flatten(2)).view_as(white)


def _loss(white: torch.Tensor, matrices: torch.Tensor, contrast: Contrast) -> torch.Tensor:
    """Compute the negative log-likelihood per value, up to a constant; Shape (V)."""
    return contrast.measure(_sources(white, matrices)) - torch.linalg.slogdet(matrices)[1]


def _steps(
    white: torch.Tensor, matrices: torch.Tensor, contrast: Contrast
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the quasi-Newton steps S and the decrease along them; Shape (V, n, n) and (V)."""
    sources = _sources(white, matrices)
    scores, slopes = contrast.scores(sources)
    gradient = scores.flatten(2) @ sources.flatten(2).mT / sources[0, 0].numel()
    gradient.diagonal(dim1=1, dim2=2).zero_()
    own = slopes[..., None].expand_as(gradient)
    flattest = (own + own.mT - ((own - own.mT).square() + 4).sqrt()) / 2
    own = own + (FLATTEST - flattest).clamp(min=0)
    steps = (own.mT * gradient - gradient.mT) / (own * own.mT - 1)
    steps.diagonal(dim1=1, dim2=2).zero_()
    return steps, (gradient * steps).sum((1, 2))
