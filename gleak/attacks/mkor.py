"""Reconstruction of images from the gradients of parameters crafted by MKOR.

The features of each class are read from the gradients, then images from the features. Features of
crafted channels show windows of an image: their largest, smallest or mean intensity, or one pixel.
All windows of a kind lie on a grid, so an estimate is the product of a matrix for the rows, the
values, and a matrix for the columns; there is no loop over pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import MID_GREY, AttackSpec, AttackSummary
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.chain import decompose

LEAST_COUNT = 0.5
"""Smallest estimated number of samples of a class that is reported, and smallest share of its
softmax that a class must show to give the sum over the batch."""
LENGTHS = (1.0, 4.0, 16.0, 64.0)
"""Correlation lengths of the prior in pixels."""
NOISE_VARIANCES = tuple(10.0**power for power in np.arange(-6, 2.1, 0.5))
"""Variances of the errors in the features, relative to the variance of intensities."""
EXACT = 1e-3
"""Up to this error variance images are interpolated linearly between the known values."""
FLATTEST = 1e-6
LEAST = 1e-12
ROUNDING = 1e-5
"""Rounding error of features, relative to the largest response."""


@register("mkor")
class MKORAttack(AttackSpec):
    """MKOR's decoding (Eq. 9, 14 to 19): every class of a batch, without iterations.

    The parameters are crafted by `mkor`. With the usual loss of clients, ``cross_entropy``, batches
    that contain every class need its ``sink``; the paper's loss is ``nll_raw``.

    Features of each class are recovered from the first dense layer and converted into intensities
    by the responses to grey images; the intensities, of windows, are combined into an image. After
    max-pooling a pixel is the centre of its tightest bounds (Eq. 19); after average pooling or
    strides windows show means or pixels. Values in between are interpolated smoothly, in closed
    form, in place of the reference's box filter, with a smoothness estimated from the features.

    Several samples of a class give their mean, which is repeated for each of them, with their
    number as ``averaged_count``. Classes that cannot be recovered are omitted, and samples that are
    not recovered are mid-grey with ``averaged_count`` 0; their victim has not converged. The label
    of each sample is known. After several local steps the mean gradient is treated as that of one
    step.

    The authors' code takes the classes of a noisy batch from the batch itself (``labels=known``).
    Its dense layers are those of the crafting `mkor` with ``hiding=naive``, with or without noise.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), sections 3.2 to 3.6"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    takes_batch_statistics: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = False
    crafting: ClassVar[str | None] = "mkor"

    resolution: int | None = parameter(
        None,
        "side of the images before they were enlarged, if known to the server; none: not enlarged",
        unit="px",
        source="ours",
        ge=1,
    )
    labels: Literal["read", "known"] = parameter(
        "read",
        "how many samples each class has: read off the biases, or granted",
        source="MKOR Eq. 9; known: MKOR's code under noise",
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if self.labels == "known" and client.loss != "nll_raw":
            raise IncompatibleError(
                f"attack {self}: labels=known does not tell features of classes apart, which "
                f"loss={client.loss} of client {client} mixes; use loss=nll_raw or labels=read"
            )

    @property
    def grants(self) -> frozenset[str]:
        return frozenset({"labels"} if self.labels == "known" else ())

    def summary(self) -> AttackSummary:
        by = {"read": "by crafted paths", "known": "granted"}
        return AttackSummary(labels=by[self.labels])

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        return frozenset(_first_dense(model))

    def reconstruct(self, observation: Observation) -> Reconstruction:
        names = _first_dense(observation.model)
        observed = mean_gradients(observation)
        secret, reader = observation.secret, WindowReader(observation.secret, self.resolution)
        gradients = zip(*(observed[name].cpu() for name in names), strict=True)
        samples = []
        for victim, (weight, bias) in enumerate(gradients):
            classes = read_classes(
                weight, bias, secret, observation.batch_size, observation.protocol.loss
            )
            counts = classes.counts
            if self.labels == "known":
                known = observation.granted["labels"][victim].cpu().long()
                counts = known.bincount(minlength=observation.classes)
            labels = counts.nonzero().flatten()
            counts = counts[labels]
            images = reader.images(intensities(classes.means[labels], secret))
            missing = observation.batch_size - int(counts.sum())
            grey = images.new_full((missing, *observation.input_shape), MID_GREY)
            none = labels.new_zeros(missing)
            samples.append(
                (
                    torch.cat([images.repeat_interleave(counts, 0), grey]),
                    torch.cat([labels.repeat_interleave(counts), none]),
                    torch.cat([counts.repeat_interleave(counts), none]),
                )
            )
        inputs, labels, counts = map(torch.stack, zip(*samples, strict=True))
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=(counts > 0).all(1).cpu().numpy(),
            averaged_count=counts.cpu().numpy(),
            paired=True,
        )


def _first_dense(model: torch.nn.Module) -> tuple[str, str]:
    """Return the names of the first dense layer's weight and bias."""
    layer = decompose(model).dense[0].name
    return f"{layer}.weight", f"{layer}.bias"


@dataclass(frozen=True)
class ClassFeatures:
    """Mean features of the samples of each class, Shape (classes, E), and counts of samples.

    Means are undefined for classes without samples, and counts, integers, 0 where they are unknown.
    """

    means: torch.Tensor
    counts: torch.Tensor


def read_classes(
    weight: torch.Tensor,
    bias: torch.Tensor,
    secret: Mapping[str, np.ndarray],
    batch_size: int,
    loss: str,
) -> ClassFeatures:
    """Separate the classes in the gradient of the mean loss over one batch.

    A class's logit has the derivative p - 1 for its own samples and p for others, where p is its
    softmax; with ``nll_raw``, -1 and 0. A path propagates it back to rows of the first dense layer.
    Their weight gradients are gain (p S - Z) and their bias gradients gain (p K - c), where S sums
    the features of the batch, Z those of the class, and c is the number of its samples. With
    ``nll_raw`` p is 0 and Z / c the ratio of both (MKOR Eq. 9). With ``cross_entropy`` (ours) p is
    estimated on synthetic images, and p S is subtracted: S / K is taken from the class with the
    largest bias gradient, which is the sink or a class without samples. It is the mean of all
    samples but those of that class, which cannot be recovered. Without either, nothing is
    recovered. Clients with dropout drop whole paths for a sample; each class is counted by the path
    that shows most samples.

    Args:
        weight: gradient of the first dense layer; Shape (neurons, E).
        bias: Shape (neurons).
        secret: of the crafting `gleak.crafting.mkor.MKORCrafting`.
        batch_size: K.
        loss: "cross_entropy" or "nll_raw".
    """
    sums = batch_size * _along_paths(weight, secret).mean(0)
    each = batch_size * _along_paths(bias[:, None], secret).flatten(1)
    totals = each.mean(0)
    if loss == "cross_entropy":
        chances = torch.from_numpy(secret["chances"]).to(sums)
        shown = totals.argmax()
        if totals[shown] < LEAST_COUNT * batch_size * chances[shown]:
            return ClassFeatures(sums, torch.zeros_like(totals, dtype=torch.long))
        mean = sums[shown] / totals[shown]
        sums = sums - batch_size * chances[:, None] * mean
        each, totals = each - batch_size * chances, totals - batch_size * chances
        each[:, shown] = totals[shown] = 0
    means = sums / torch.where(totals == 0, 1, totals)[:, None]
    kept = float(secret["kept"][0])
    counts = -totals if kept == 1 else -each.amin(0) * kept
    return ClassFeatures(means, whole_counts(counts, batch_size))


def _along_paths(gradient: torch.Tensor, secret: Mapping[str, np.ndarray]) -> torch.Tensor:
    """Compute each logit's derivative times the inputs of its paths; Shape (paths, classes, E)."""
    rows = torch.from_numpy(secret["rows"])
    gains = torch.from_numpy(secret["gains"]).to(gradient)
    width = 2 if secret["pairs"][0] else 1
    paths = [
        sum(gradient[row] / gain[:, None] for row, gain in zip(*path, strict=True))
        for path in zip(rows.T.split(width), gains.T.split(width), strict=True)
    ]
    return torch.stack(paths)


def whole_counts(counts: torch.Tensor, batch_size: int) -> torch.Tensor:
    """Round counts to integers whose sum is at most the batch size, dropping the least certain."""
    rounded = torch.where(counts >= LEAST_COUNT, counts.round().clamp(1, batch_size), 0).long()
    while (excess := int(rounded.sum()) - batch_size) > 0:
        weakest = torch.where(rounded > 0, counts - rounded, torch.inf).argsort()[:excess]
        rounded[weakest] -= (rounded[weakest] > 0).long()
    return rounded


def intensities(features: torch.Tensor, secret: Mapping[str, np.ndarray]) -> torch.Tensor:
    """Convert features of crafted channels, (M, E), into intensities, by responses to grey images.

    A feature of zero was not sent (a sparse update, or a defence that prunes) unless the response
    to some grey image is zero. Shape (M, K, values, values) for K views, NaN where not sent.
    """
    responses = torch.from_numpy(secret["responses"]).to(features)
    levels = torch.from_numpy(secret["levels"]).to(features)
    channels = torch.from_numpy(secret["channel"])
    values = responses.shape[-1]
    maps = features.unflatten(1, (-1, values, values))[:, channels]
    falling = torch.from_numpy(secret["reversed"] == 1).to(maps.device)[:, None, None]
    rising = torch.where(falling, -responses, responses).cummax(0).values.movedim(0, -1)
    sought = torch.where(falling, -maps, maps).movedim(0, -1)
    shown = _interpolated(sought, rising.contiguous(), levels).movedim(-1, 0)
    slack = ROUNDING * responses.abs().max()
    explained = (rising[..., 0] <= slack) & (rising[..., -1] >= -slack)
    return shown.masked_fill((maps == 0) & ~explained, torch.nan)


def _interpolated(sought: torch.Tensor, rising: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """Invert piecewise linear curves that rise from level to level, and extrapolate them."""
    above = torch.searchsorted(rising, sought.contiguous()).clamp(1, len(levels) - 1)
    low, high = rising.gather(-1, above - 1), rising.gather(-1, above)
    steepest = (rising[..., -1] - rising[..., 0]).max()
    share = (sought - low) / (high - low).clamp(min=FLATTEST * steepest)
    return levels[above - 1] + share * (levels[above] - levels[above - 1])


class WindowReader:
    """Converts intensities of views into images, by the secret of the crafting.

    The resolution is the side in pixels of images before they were enlarged; None: they were not.
    """

    def __init__(self, secret: Mapping[str, np.ndarray], resolution: int | None) -> None:
        self.scale, self.extent, self.values, self.side = map(int, secret["windows"])
        self.secret, self.resolution = secret, resolution
        self.colours = int(secret["colour"].max()) + 1

    def images(self, shown: torch.Tensor) -> torch.Tensor:
        """Estimate images, (M, colours, side, side) in [0, 1], from what `intensities` returns."""
        starts, copies = self._on_grid(shown, reverse=False)
        if not (self.secret["reversed"] == 1).any():
            return self._smooth(filled(copies), starts, self.extent)
        _, reverses = self._on_grid(shown, reverse=True)
        step = int(starts[1] - starts[0]) if len(starts) > 1 else self.extent
        upper = self._tightest(copies.nan_to_num(1), step)
        lower = -self._tightest(-reverses.nan_to_num(0), step)
        cells = starts[0] + step * torch.arange(upper.shape[-1])
        inside = (cells > -step) & (cells < self.side)
        middles = ((upper + lower) / 2)[..., inside, :][..., inside]
        return self._smooth(middles, cells[inside], step)

    def _on_grid(self, shown: torch.Tensor, reverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Arrange the values of all windows of a kind on a grid; Shape (M, colours, P, P).

        Also return the first pixel of each window along a side, Shape (P).
        """
        views = np.flatnonzero((self.secret["reversed"] == 1) == reverse)
        steps = self.scale * np.arange(self.values)
        rows, columns = (self.secret[axis][views, None] + steps for axis in ("row", "column"))
        starts, places = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        row, column = places.reshape(2, len(views), self.values)
        grid = shown.new_zeros(len(shown), self.colours, len(starts), len(starts))
        colour = self.secret["colour"][views]
        grid[:, colour[:, None, None], row[:, :, None], column[:, None, :]] = shown[:, views]
        inside = (starts > -self.extent) & (starts < self.side)
        return torch.from_numpy(starts[inside]), grid[..., inside, :][..., inside]

    def _tightest(self, bounds: torch.Tensor, step: int) -> torch.Tensor:
        """Compute the least bound of all windows that contain a cell (MKOR Eq. 17, 18).

        A cell has the size of a step. Cells extend beyond the start of the last window, to its end.
        """
        reach = max(1, self.extent // step)
        padded = torch.nn.functional.pad(bounds, [reach - 1] * 4, value=torch.inf)
        return -torch.nn.functional.max_pool2d(-padded, reach, stride=1)

    def _smooth(self, values: torch.Tensor, starts: torch.Tensor, extent: int) -> torch.Tensor:
        """Compute the posterior mean of images from their means over windows."""
        covariances = [covariance(self.side, length, self.resolution) for length in LENGTHS]
        priors = [GaussianProcess(pixels, starts, extent) for pixels in covariances]
        middle = values.mean((2, 3), keepdim=True).double()
        likelihoods = torch.stack([prior.likelihoods(values - middle) for prior in priors], 1)
        best = likelihoods.flatten(1).argmax(1)
        variances = torch.tensor(NOISE_VARIANCES)
        lengths, noise = best // len(variances), variances[best % len(variances)]
        lengths[noise <= EXACT], noise[noise <= EXACT] = len(LENGTHS) - 1, NOISE_VARIANCES[0]
        images = middle.repeat(1, 1, self.side, self.side)
        for image, length, variance, seen in zip(
            images, lengths, noise.tolist(), values - middle, strict=True
        ):
            image += priors[length].expect(seen, variance)
        return images.clamp(0, 1).to(values.dtype)


class GaussianProcess:
    """Gaussian process prior of images, and the resulting means over windows.

    The covariance is the product of a covariance along rows and one along columns. The variance of
    an image, its correlation length and the error variance of the features are chosen by maximum
    likelihood. Windows have an extent in pixels, and are cut at the border of the image.
    """

    def __init__(self, pixels: torch.Tensor, starts: torch.Tensor, extent: int) -> None:
        places = torch.arange(len(pixels))
        within = (places >= starts[:, None]) & (places < starts[:, None] + extent)
        means = within.double() / within.sum(1, keepdim=True)
        lengths, self.directions = torch.linalg.eigh(means @ pixels @ means.T)
        self.variances = lengths.clamp(min=0)[:, None] * lengths.clamp(min=0)
        self.back = pixels @ means.T @ self.directions

    def likelihoods(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the log-likelihood of images, each with its most likely variance.

        Values have zero mean; Shape (M, colours, P, P) to (M, noise variances), up to a constant.
        """
        power = self._along(values).square()
        likelihoods = []
        for noise in NOISE_VARIANCES:
            expected = self.variances + noise
            scale = (power / expected).mean((1, 2, 3)).clamp(min=LEAST)
            likelihoods.append(-(scale.log() + expected.log().mean()) * power.shape[1:].numel() / 2)
        return torch.stack(likelihoods, 1)

    def expect(self, values: torch.Tensor, noise: float) -> torch.Tensor:
        """Compute the expected image, given means over windows; their mean is zero.

        The variance of their errors, the noise, is relative to the variance of intensities.
        """
        return self.back @ (self._along(values) / (self.variances + noise)) @ self.back.T

    def _along(self, values: torch.Tensor) -> torch.Tensor:
        """Project values on the directions along which they vary independently."""
        return self.directions.T @ values.double() @ self.directions


def covariance(side: int, length: float, resolution: int | None) -> torch.Tensor:
    """Compute the covariance of intensities along a side: exp(-d / length) at d pixels.

    With a resolution it is that of images enlarged from it. Shape (side, side).
    """
    small = resolution or side
    places = torch.arange(small) * side / small
    fallen = torch.exp(-(places[:, None] - places).abs().double() / length)
    if resolution is None:
        return fallen
    enlarged = enlargement(resolution, side)
    return enlarged @ fallen @ enlarged.T


def enlargement(small: int, large: int) -> torch.Tensor:
    """Compute the matrix of bilinear interpolation along a side; Shape (large, small)."""
    steps = torch.eye(small, dtype=torch.float64)[None]
    enlarged = torch.nn.functional.interpolate(steps, large, mode="linear", align_corners=False)
    return enlarged[0].T


def filled(grid: torch.Tensor) -> torch.Tensor:
    """Fill gaps, NaN, with the means of their neighbours, from the edges of each gap inwards.

    Mid-grey is filled in where all values are unknown; Shape (M, colours, P, P).
    """
    grid = grid.masked_fill(grid.isnan().all((2, 3), keepdim=True), MID_GREY)
    while (gaps := grid.isnan()).any():
        around = torch.nn.functional.avg_pool2d((~gaps).to(grid.dtype), 3, stride=1, padding=1)
        means = torch.nn.functional.avg_pool2d(grid.nan_to_num(0), 3, stride=1, padding=1) / around
        grid = grid.where(~gaps, means)
    return grid
