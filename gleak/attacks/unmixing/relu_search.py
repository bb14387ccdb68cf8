"""Searches for the columns that unmix a ReLU layer's gradient (`relu_sparsity`).

SPEAR draws submatrices of N - 1 rows at random and keeps null vectors with many zeros: about
2^(N-1) draws a sample. Two searches by iteratively reweighted least squares, from many starts at
once, go further, and for images a third one goes furthest.
The *pattern* one starts from approximate samples. Such a sample tells at which neurons the sample
is surely inactive: where the layer's output for it is far below zero. The column is the only
direction that is zero at all of them, so an approximate sample with the right signs there gives
the exact column. Known columns leave mixtures of the other samples alone, which are easier to
separate.
The *sparse* one looks for directions with many zeros and assumes nothing else.
The *signal* one serves a network whose next layer is its last: at an active neuron the loss has
the slope s_j = sum over classes of W_cj d_c, with d = p - [label] for a sample's probabilities p,
whatever the sample's image. So its output gradients have two wells, 0 and s_j, and the sign is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from gleak.attacks.unmixing.mixtures import Mixture
from gleak.attacks.unmixing.relu_sparsity import (
    Factors,
    Unmixed,
    gram,
    independent,
    sharpen,
    solve,
    unmix,
)
from gleak.core.lazy import torch

Proposal = Callable[["torch.Tensor"], "torch.Tensor"]
"""Search for columns: from those known so far, Shape (K, rank), to candidates, Shape (T, rank)."""

SHARES = (1.0, 0.9, 0.8)
"""Shares of the inactive neurons that are taken for surely inactive, those with the lowest outputs.

Fewer are wrong among fewer, and more determine the direction better. Of 128 training images of
CIFAR-10 in two batches (untrained FC-2) 0.9, 0.8, 0.7 and 0.6 gave 109, 123, 88 and 1 exact ones.
"""
PATTERN_WIDTH = 1e-3
"""First width of sharpening. With 0.01 fewer, with 0.003 as many columns became exact."""
STARTS = 128
"""Number of directions that are searched at once."""
STEPS = 60
WIDTHS = (0.3, 1e-5)
"""Widths of the wells relative to the signal, at the first and the last step."""
AGAINST_THE_SIGN = 100.0
"""Weight of an output gradient of the wrong sign, relative to one of the right sign."""
BEYOND_THE_SIGNAL = 10.0
UPPER_WELL = 0.1
"""Weight of the upper well, whose position is less certain than that of zero."""
GUESSED_ACTIVE = 0.1
"""First weight of a neuron that is guessed to be active."""
FAINT = 0.1
"""Threshold of signals relative to their median; weaker ones are excluded."""
LOOSENESS = 0.1
"""Regularisation of the slopes at the outputs towards their guess."""
UNEXPLAINED = 0.02
"""Largest relative residual of a candidate's output gradients after fitting slopes."""
UNDETERMINED = 1e-6
"""Largest squared length of rows of length 1 along directions that they leave undetermined."""
TYPICAL_MEAN, TYPICAL_SPREAD = 0.47, 0.22
"""Mean and standard deviation of the values of natural images in [0, 1]."""
COLOUR = 0.3
"""Size of the differences between channels, relative to their common part."""
RAREST = 0.1
"""Lower bound of the share of a class, relative to an equal one."""
SPREAD_OF_LOGITS = 2.0
"""Spread of logits for half of the guesses; the others have the batch's mean probabilities."""


def remaining_mixture(factors: Factors, columns: torch.Tensor) -> Mixture:
    """Compute mixtures of the samples whose columns are not known: rank - K neurons, K known.

    The rows of Q^-1 of these samples span the orthogonal complement of the known columns of Q.
    """
    complete = torch.linalg.qr(columns.T, mode="complete").Q
    mixed = complete[:, len(columns) :].T @ factors.rest
    return Mixture(mixed[None, :, :-1], mixed[None, :, -1])


def pattern_columns(
    factors: Factors, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Compute candidates for the columns of approximate samples, by each of `SHARES`.

    A direction is the one nearest to zero at the surely inactive neurons, at least as many as
    determine it. It is exact if no neuron was taken wrongly; otherwise sharpening may lead to the
    exact one, but it may also lead away from one that is exact already, so both are returned.

    Args:
        factors: of the victim's gradients.
        inputs: approximate samples; Shape (T, F).
        weight: of the layer; Shape (neurons, F).
        bias: Shape (neurons).

    Returns:
        Of length 1; Shape (T * shares * 2, rank).
    """
    outputs = (inputs @ weight.T + bias).where(factors.live(), torch.inf)
    inactive, order = (outputs < 0).sum(1, keepdim=True), outputs.argsort(1).argsort(1)
    columns = []
    for share in SHARES:
        lowest = order < (share * inactive).clamp(min=factors.rank - 1)
        squares = gram(factors.unit_rows(), lowest.to(outputs))
        columns.append(torch.linalg.eigh(squares).eigenvectors.mT[:, :1].flatten(1))
    nulls = torch.cat(columns)
    return torch.cat([nulls, sharpen(factors, nulls, PATTERN_WIDTH)])


def sparse_columns(factors: Factors, stream: torch.Generator) -> torch.Tensor:
    """Run the sparse search; Shape (STARTS, rank), of length 1."""
    starts = torch.randn(STARTS, factors.rank, generator=stream, dtype=torch.double)
    return sharpen(factors, starts.to(factors.basis), width=0.1)


@dataclass(frozen=True)
class Guess:
    """First points of the signal search: slopes d, Shape (T, classes), and activation patterns.

    Of the neurons that are guessed active, Shape (T, neurons), one is more certain; Shape (T).
    """

    slopes: torch.Tensor
    active: torch.Tensor
    certain: torch.Tensor


def signal_columns(factors: Factors, head: torch.Tensor, guess: Guess) -> torch.Tensor:
    """Run the signal search, then sharpen its directions; Shape (T, rank), of length 1.

    Output gradients are measured relative to the signal, so the wells are at 0 and 1; their mean
    over the anchors, neurons that are guessed to be active, is fixed at 1, or all would converge
    to 0. The guess fades out in the first half of the steps; in the second, slopes are fitted to
    the output gradients in the upper well. W is the last layer's weight; Shape (classes, neurons).
    """
    slopes = guess.slopes
    signal = slopes @ head
    present = _present(signal, factors)
    anchors = guess.active.double() * present
    anchors = anchors / anchors.sum(1, keepdim=True).clamp(min=1)
    certain = torch.zeros_like(anchors).scatter(1, guess.certain[:, None], 1.0)
    anchors = anchors + certain * present
    anchors = anchors / anchors.sum(1, keepdim=True).clamp(min=1e-12)
    weights = 1 - (1 - GUESSED_ACTIVE) * guess.active.double()
    upper = torch.zeros_like(present)
    identity = torch.eye(len(head), dtype=head.dtype, device=head.device)
    for step in range(STEPS):
        columns = _fit(factors.basis, signal, weights * present, upper, anchors * present)
        output_gradients = columns @ factors.basis.T
        width = WIDTHS[0] * (WIDTHS[1] / WIDTHS[0]) ** (step / (STEPS - 1))
        relative = output_gradients / signal
        upper = relative > 0.5
        weights = _well_weights(relative, width)
        fading = max(0.0, 1 - 2 * step / STEPS)
        doubt = 1 - fading * (1 - GUESSED_ACTIVE) * guess.active.double()
        weights = weights * torch.where(upper, 1.0, doubt)
        if 2 * step > STEPS:
            fitted = (weights / signal**2) * upper * present
            matrices = gram(head.T, fitted)
            pull = LOOSENESS * matrices.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
            right = ((fitted * output_gradients) @ head.T)[..., None] + pull * slopes[..., None]
            slopes = solve(matrices + pull * identity, right)[..., 0]
            signal = slopes @ head
            present = _present(signal, factors)
    return sharpen(factors, columns, width=0.01)


def _present(signal: torch.Tensor, factors: Factors) -> torch.Tensor:
    """Mark the neurons with a strong enough signal; Shape (T, neurons)."""
    size = signal.abs()
    return (size > FAINT * size.median(1, keepdim=True).values) & factors.live()


def _fit(
    basis: torch.Tensor,
    signal: torch.Tensor,
    weights: torch.Tensor,
    upper: torch.Tensor,
    anchors: torch.Tensor,
) -> torch.Tensor:
    """Compute the directions nearest to the wells, with mean 1 at the anchors; Shape (T, rank)."""
    anchor = torch.where(anchors > 0, anchors / signal, 0.0) @ basis
    scaled = torch.where(weights > 0, weights / signal**2, 0.0)
    toward = torch.where(upper, scaled * signal, 0.0) @ basis
    free, along = solve(gram(basis, scaled), torch.stack([toward, anchor], 2)).unbind(2)
    missing = 1 - (anchor * free).sum(1, keepdim=True)
    return free + missing / (anchor * along).sum(1, keepdim=True) * along


def _well_weights(relative: torch.Tensor, width: float) -> torch.Tensor:
    """Compute the weights of the next least squares, for a cost of the root of the distance."""
    low = (relative.square() + width**2) ** -0.75
    high = ((relative - 1).square() + max(width, 0.1) ** 2) ** -0.75
    low = torch.where(relative < -width, AGAINST_THE_SIGN * low, low)
    high = torch.where(relative > 1.2, BEYOND_THE_SIGNAL * high, UPPER_WELL * high)
    return torch.where(relative > 0.5, high, low)


class Collection:
    """Distinct candidates for the columns of one victim, sparsest first; one for one sample."""

    def __init__(self, factors: Factors, head: torch.Tensor | None) -> None:
        self._factors = factors
        self._head = head
        self._columns = factors.basis.new_ones(int(factors.rank == 1), factors.rank)
        self._fewest_zeros = factors.rank if head is None else factors.rank - 1

    def add(self, columns: torch.Tensor) -> None:
        """Add the new ones among columns with enough zeros.

        Any choice can have N - 1, so these suffice only where the last layer explains the rest.
        A mixture of two samples is zero where both are inactive, often at more neurons than a
        single sample; but all of their mixtures are zero there, and no slopes explain it elsewhere.
        """
        sparse = columns[self._zeros(columns) >= self._fewest_zeros]
        true = self._determined(sparse) if self._head is None else self._explained(sparse)
        joined = torch.cat([self._columns, sparse[true]])
        order = self._zeros(joined).argsort(descending=True, stable=True)
        self._columns = joined[order][independent(joined[order])]

    def unmix(self, weight: torch.Tensor, bias: torch.Tensor) -> Unmixed | None:
        """Unmix the gradients by the columns; None if they are fewer than the samples."""
        if len(self._columns) < self._factors.rank:
            return None
        return unmix(self._factors, self._columns, weight, bias)

    def trusted(self, unmixed: Unmixed | None) -> torch.Tensor:
        """Return the columns that their unmixing, if any, does not show to be wrong; (K, rank)."""
        return self._columns if unmixed is None else self._columns[unmixed.consistent]

    def _zeros(self, columns: torch.Tensor) -> torch.Tensor:
        return (self._factors.zeros(columns) & self._factors.live()).sum(1)

    def _determined(self, columns: torch.Tensor) -> torch.Tensor:
        zeros = self._factors.zeros(columns).to(columns.dtype)
        values = torch.linalg.eigvalsh(gram(self._factors.unit_rows(), zeros))
        return (values > UNDETERMINED).sum(1) == self._factors.rank - 1

    def _explained(self, columns: torch.Tensor) -> torch.Tensor:
        assert self._head is not None
        output_gradients = columns @ self._factors.basis.T
        passing = (~self._factors.zeros(columns)).to(output_gradients.dtype)
        matrices = gram(self._head.T, passing)
        slopes = solve(matrices, ((passing * output_gradients) @ self._head.T)[..., None])[..., 0]
        left = passing * (output_gradients - slopes @ self._head)
        explained = left.norm(dim=1) < UNEXPLAINED * output_gradients.norm(dim=1)
        return explained & (passing.sum(1) > len(self._head))


def search(
    factors: Factors,
    weight: torch.Tensor,
    bias: torch.Tensor,
    head: torch.Tensor | None,
    proposals: list[Proposal],
    rounds: int,
) -> Unmixed | None:
    """Collect columns until there are as many as samples and each explains its zeros.

    A search is repeated as long as more columns become known, then the next one takes its turn;
    there are at most so many rounds. The head is the weight of the last layer, if it is the next
    one; Shape (classes, neurons).

    Returns:
        The last complete choice, consistent or not; None if there was none.
    """
    collection, turns = Collection(factors, head), cycle(proposals)
    unmixed, propose = collection.unmix(weight, bias), next(turns)
    known = collection.trusted(unmixed)
    for _ in range(rounds):
        if unmixed is not None and unmixed.consistent.all():
            break
        collection.add(propose(known))
        unmixed = collection.unmix(weight, bias)
        trusted = collection.trusted(unmixed)
        if len(trusted) <= len(known):
            propose = next(turns)
        known = trusted
    return unmixed


def draw_guess(
    shape: tuple[int, ...],
    weight: torch.Tensor,
    bias: torch.Tensor,
    scores: torch.Tensor,
    softmax: bool,
    stream: torch.Generator,
) -> Guess:
    """Draw `STARTS` guesses, each of a probable label and some image.

    Scores are the gradient of the last layer's bias, the mean of p - [label], Shape (classes);
    without a ``softmax`` in the loss, p is zero.
    """
    images = draw_samples(shape, stream).to(weight).flatten(1)
    classes = len(scores)
    shares = (softmax / classes - scores.cpu()).clamp(min=RAREST / classes)
    labels = torch.multinomial(shares, STARTS, replacement=True, generator=stream)
    tempered = torch.randn(STARTS, classes, generator=stream, dtype=torch.double)
    tempered[::2] = 0
    likely = (scores.cpu() + shares).clamp(min=RAREST / classes).log()
    likely = softmax * (likely + SPREAD_OF_LOGITS * tempered).softmax(1)
    return Guess(
        slopes=(likely - torch.nn.functional.one_hot(labels, classes)).to(weight),
        active=images @ weight.T + bias > 0,
        certain=torch.randint(len(bias), (STARTS,), generator=stream).to(bias.device),
    )


def draw_samples(shape: tuple[int, ...], stream: torch.Generator) -> torch.Tensor:
    """Draw arbitrary samples: images with amplitudes proportional to 1/frequency, tables uniform.

    Natural images have that spectrum (Field 1987), so neurons of a network are active for these
    samples as for images of a batch: as often, and together. Shape (STARTS, *shape), in [0, 1].
    """
    if len(shape) != 3:
        return torch.rand(STARTS, *shape, generator=stream, dtype=torch.float32)
    shared = _coloured_noise((STARTS, 1, *shape[1:]), stream)
    separate = _coloured_noise((STARTS, *shape), stream)
    return (TYPICAL_MEAN + TYPICAL_SPREAD * (shared + COLOUR * separate)).clamp(0, 1)


def _coloured_noise(shape: tuple[int, ...], stream: torch.Generator) -> torch.Tensor:
    """Draw noise of variance 1 over all draws, with amplitudes proportional to 1/frequency."""
    height, width = shape[-2:]
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)
    lowest = 0.5 / max(height, width)
    amplitudes = (rows.square() + columns.square() + lowest**2).rsqrt()
    noise = torch.fft.ifft2(
        torch.fft.fft2(torch.randn(shape, generator=stream, dtype=torch.float32)) * amplitudes
    ).real
    return noise / noise.std()
