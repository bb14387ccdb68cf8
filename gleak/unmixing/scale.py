"""Sign and scale of what was unmixed, settled without the truth.

A row u of the unmixing gives its source up to a factor: u G = f x. The same row on the bias's
gradient gives u b = f, for the bias is a feature that is 1 for every sample (see
`gleak.unmixing.mixtures.Mixture`).
"""

from __future__ import annotations

from torch import Tensor

TINY = 1e-30


def by_bias(sources: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """Intensities by the bias's factor, drawn together where they leave [0, 1].

    An imperfect unmixing gives a factor that is too small, and values outside [0, 1] betray it: as
    far as they reach, the image is compressed.

    Args:
        sources: Shape (V, n, F).
        factors: Shape (V, n, 1).

    Returns:
        Both in [0, 1] and of Shape (V, n, F): by the factor, and by its opposite.
    """
    scaled = sources / _away_from_zero(factors)
    return _drawn_together(scaled), _drawn_together(-scaled)


def by_range(sources: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """Intensities that fill [0, 1], as in CPA's reference; only the sign is the bias's.

    Args and returns as `by_bias`.
    """
    signed = sources / _away_from_zero(factors)
    low, high = signed.amin(2, keepdim=True), signed.amax(2, keepdim=True)
    filled = (signed - low) / (high - low).clamp(min=TINY)
    return filled, 1 - filled


def embeddings_by_sign(sources: Tensor, factors: Tensor) -> Tensor:
    """Embeddings behind a ReLU, which are not negative: the sign with the larger sum.

    The bias's sign is a weaker witness here: it was wrong for more of the embeddings of a trained
    ``vgg_small`` (training images of CIFAR-10).

    Args:
        sources: Shape (V, n, E).
        factors: Shape (V, n, 1); their magnitudes give the scale.

    Returns:
        Shape (V, n, E), what is negative cut to zero.
    """
    signs = sources.sum(2, keepdim=True).sign()
    return (sources * signs / _away_from_zero(factors).abs()).clamp(min=0)


def _away_from_zero(factors: Tensor) -> Tensor:
    return factors.where(factors.abs() > TINY, TINY)


def _drawn_together(images: Tensor) -> Tensor:
    low = images.amin(2, keepdim=True).clamp(max=0)
    high = images.amax(2, keepdim=True).clamp(min=1)
    return (images - low) / (high - low)
