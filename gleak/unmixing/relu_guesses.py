"""Guesses of what a batch holds, from which the signal search begins."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gleak.unmixing.relu_search import STARTS, Guess

TYPICAL_MEAN, TYPICAL_SPREAD = 0.47, 0.22
"""Of the values of natural pictures in [0, 1]."""
COLOUR = 0.3
"""Size of what differs between channels, relative to what they share."""
RAREST = 0.1
"""Least share of a class that is reckoned with, relative to an equal one."""
SPREAD_OF_LOGITS = 2.0
"""Of half of the guesses; the others have the batch's mean probabilities."""


def draw_guess(
    shape: tuple[int, ...],
    weight: Tensor,
    bias: Tensor,
    scores: Tensor,
    softmax: bool,
    stream: torch.Generator,
) -> Guess:
    """As many guesses as are searched at once: a label that seems to occur and some picture each.

    Args:
        shape: of a sample.
        weight: of the layer; Shape (neurons, F).
        bias: Shape (neurons).
        scores: gradient of the last layer's bias: the mean of p - [label]; Shape (classes).
        softmax: whether the loss has one; without, p is zero.
        stream: of random numbers.
    """
    pictures = draw_samples(shape, stream).to(weight).flatten(1)
    classes = len(scores)
    shares = (softmax / classes - scores.cpu()).clamp(min=RAREST / classes)
    labels = torch.multinomial(shares, STARTS, replacement=True, generator=stream)
    tempered = torch.randn(STARTS, classes, generator=stream, dtype=torch.double)
    tempered[::2] = 0
    likely = (scores.cpu() + shares).clamp(min=RAREST / classes).log()
    likely = softmax * (likely + SPREAD_OF_LOGITS * tempered).softmax(1)
    return Guess(
        slopes=(likely - functional.one_hot(labels, classes)).to(weight),
        active=pictures @ weight.T + bias > 0,
        certain=torch.randint(len(bias), (STARTS,), generator=stream).to(bias.device),
    )


def draw_samples(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    """Samples like none in particular: of images with amplitudes as 1/frequency, else uniform.

    Natural pictures have that spectrum (Field 1987), so a network's neurons are active for them
    as they are for pictures of a batch: as often, and together.

    Returns:
        Shape (STARTS, *shape), values in [0, 1].
    """
    if len(shape) != 3:
        return torch.rand(STARTS, *shape, generator=stream)
    shared = _coloured_noise((STARTS, 1, *shape[1:]), stream)
    own = _coloured_noise((STARTS, *shape), stream)
    return (TYPICAL_MEAN + TYPICAL_SPREAD * (shared + COLOUR * own)).clamp(0, 1)


def _coloured_noise(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    """Noise of variance 1 over all draws, with amplitudes as 1/frequency."""
    height, width = shape[-2:]
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)
    lowest = 0.5 / max(height, width)
    amplitudes = (rows.square() + columns.square() + lowest**2).rsqrt()
    noise = torch.fft.ifft2(torch.fft.fft2(torch.randn(shape, generator=stream)) * amplitudes).real
    return noise / noise.std()
