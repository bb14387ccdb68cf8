"""Unmixing of a dense layer's gradient by the exact zeros of the output gradients before a ReLU.

Of N samples x_i the gradients of a dense layer's weight and bias are G = A X and b = A 1, where
A_ji is the loss's derivative at neuron j for sample i: its *output gradient*. A ReLU makes it
exactly zero wherever the neuron is inactive. A rank factorisation [G b] = L R leaves an unknown
invertible Q with A = L Q and [X 1] = Q^-1 R, and a column of Q is the only direction, up to its
length, that L's rows map to zero at all neurons at which that sample is inactive. The lengths
follow from A 1 = b. SPEAR (Dimitrov et al. 2024, sections 3 and 4); all in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from gleak.core.lazy import torch

CONSISTENT = 0.95
"""Share of the neurons that are active for some sample at which a sample's activation pattern must
equal that of its output gradients.

For two different images of a batch about 0.78 of all neurons agree. Of completed gradients
(`matrix_completion`) some pixels are estimates, so that a few neurons differ.
"""
ROUNDING = 1e-4
"""Output gradients smaller than this, relative to their root mean square, count as zeros."""
NOISE_REACH = 6.0
"""Output gradients within this many standard deviations of the noise count as zeros."""
SILENT = 1e-6
"""Length of a row of an orthonormal basis at a neuron that is inactive for all samples."""
SHARPEST, STEPS = 1e-5, 40
INDEPENDENT = 1e-3
"""Least distance of a direction of length 1 from the span of others."""


@dataclass(frozen=True)
class Factors:
    """Rank factorisation of the gradients of weight and bias of one victim.

    Args:
        basis: L, with orthonormal columns; Shape (neurons, rank).
        rest: R; Shape (rank, F + 1), the bias last.
        uncertainty: standard deviation of a row's noise along each column; Shape (rank).
    """

    basis: torch.Tensor
    rest: torch.Tensor
    uncertainty: torch.Tensor

    @property
    def rank(self) -> int:
        """Number of samples that the gradient distinguishes."""
        return self.basis.shape[1]

    @property
    def hidden(self) -> bool:
        """True if noise hides the zeros of every column: `zeros` would mark a typical value too."""
        return bool((NOISE_REACH * self.uncertainty > len(self.basis) ** -0.5).all())

    def live(self) -> torch.Tensor:
        """Mark the neurons that are active for some sample; Shape (neurons)."""
        return self.basis.norm(dim=1) > SILENT

    def unit_rows(self) -> torch.Tensor:
        """Return the basis with rows of length 1, or 0 if silent; Shape (neurons, rank)."""
        lengths = self.basis.norm(dim=1, keepdim=True)
        return torch.where(lengths > SILENT, self.basis / lengths, 0.0)

    def zeros(self, columns: torch.Tensor) -> torch.Tensor:
        """Mark zeros in the output gradients of columns of length 1; (T, rank) to (T, neurons)."""
        output_gradients = columns @ self.basis.T
        noise = NOISE_REACH * (columns * self.uncertainty).norm(dim=1, keepdim=True)
        rounding = ROUNDING * output_gradients.square().mean(1, keepdim=True).sqrt()
        return output_gradients.abs() <= torch.maximum(noise, rounding)


def factorise(weight: torch.Tensor, bias: torch.Tensor, samples: int) -> Factors:
    """Factorise the gradients of one victim by their singular value decomposition.

    The rank is the number of samples N, or less if singular values are below the rounding error of
    single precision: samples without a gradient, or the same one twice.
    """
    joined = torch.cat([weight, bias[:, None]], 1).double()
    left, values, right = torch.linalg.svd(joined, full_matrices=False)
    visible = int((values > torch.finfo(torch.float32).eps * values[0]).sum())
    rank = min(samples, visible)
    below = values[rank] if rank < len(values) else values.new_zeros(())
    spread = below / sum(size**0.5 for size in joined.shape)
    kept = values[:rank]
    return Factors(left[:, :rank], kept[:, None] * right[:rank], spread / kept)


@dataclass(frozen=True)
class Unmixed:
    """Inputs X of one victim for a choice of Q; Shape (rank, F).

    Their agreement is the share of the neurons that are active for some sample at which an input's
    activation is that of its output gradients; 1 for true columns; Shape (rank).
    """

    inputs: torch.Tensor
    agreement: torch.Tensor

    @property
    def consistent(self) -> torch.Tensor:
        """Mask of inputs that explain the zeros of their columns; Shape (rank)."""
        return self.agreement >= CONSISTENT


def unmix(
    factors: Factors, columns: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Unmixed:
    """Compute inputs from columns of Q, scaled so that the bias is the sum of output gradients.

    The columns, in rows of Shape (rank, rank), have length 1 and are linearly independent; weight
    and bias are those of the layer itself.
    """
    inverse, singular = torch.linalg.inv_ex(columns.T)
    scaled = inverse @ factors.rest
    inputs = (scaled[:, :-1] / scaled[:, -1:]).nan_to_num(0.0, 0.0, 0.0)
    active = inputs @ weight.double().T + bias.double() > 0
    agreement = (active != factors.zeros(columns))[:, factors.live()].double().mean(1)
    return Unmixed(inputs, agreement * (singular == 0))


def gram(basis: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute the matrices L^T diag(w) L, Shape (T, K, K), for T weightings w of the neurons."""
    size = basis.shape[1]
    products = (basis[:, :, None] * basis[:, None, :]).flatten(1)
    return (weights @ products).unflatten(1, (size, size))


def solve(matrices: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve positive definite systems (T, K, K), regularised by a small share of the identity."""
    scale = matrices.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    identity = torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
    lower, _ = torch.linalg.cholesky_ex(matrices / scale + 1e-12 * identity)
    return torch.cholesky_solve(right / scale, lower)


def sharpen(factors: Factors, starts: torch.Tensor, width: float) -> torch.Tensor:
    """Move directions to nearby ones whose output gradients have more zeros.

    They converge to a local minimum of the sum of the logarithms of the output gradients' sizes, by
    iteratively reweighted least squares with one step of inverse iteration at a time. Output
    gradients are relative to the length of the basis's rows, and count as zeros below a width that
    shrinks; the first, relative to the largest, limits how far a direction may move.

    Returns:
        Of length 1; Shape (T, rank).
    """
    rows = factors.unit_rows()
    columns = starts / starts.norm(dim=1, keepdim=True)
    for step in range(STEPS):
        output_gradients = columns @ rows.T
        relative = output_gradients / output_gradients.abs().amax(1, keepdim=True)
        weights = 1 / (relative.square() + width**2 * (SHARPEST / width) ** (2 * step / STEPS))
        columns = solve(gram(rows, weights), columns[..., None])[..., 0]
        columns = columns / columns.norm(dim=1, keepdim=True)
    return columns


def independent(columns: torch.Tensor) -> torch.Tensor:
    """Return the positions of linearly independent directions of length 1, the first ones first.

    On the CPU, as a GPU would wait for every choice.
    """
    left = columns.cpu()
    chosen: list[int] = []
    for _ in range(min(columns.shape)):
        new = torch.nonzero(left.norm(dim=1) > INDEPENDENT)
        if not len(new):
            break
        chosen.append(int(new[0]))
        direction = left[chosen[-1]] / left[chosen[-1]].norm()
        left = left - (left @ direction)[:, None] * direction
    return torch.tensor(chosen, dtype=torch.long, device=columns.device)
