"""Images from what windows of them show: the largest, smallest or mean intensity, or one pixel.

All windows of a kind lie on a grid, so an estimate is a matrix for the rows times the values times
one for the columns, and no pixel is visited by a loop.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gleak.attacks.dense_first import MID_GREY

LENGTHS = (1.0, 4.0, 16.0, 64.0)
"""Pixels over which intensities may be alike, before anything is known."""
DOUBTS = tuple(10.0**power for power in np.arange(-6, 2.1, 0.5))
"""Variances that errors of what is read may have, in that of intensities."""
EXACT = 1e-3
"""With errors of no more variance, images are drawn in straight lines between what is read."""
FLATTEST = 1e-6
LEAST = 1e-12
ROUNDING = 1e-5
"""Share of the largest response by which features differ that are the same but for rounding."""


def intensities(features: Tensor, secret: Mapping[str, np.ndarray]) -> Tensor:
    """Features of crafted channels as intensities, by what they were of grey images.

    A zero where no grey gives zero was not sent (a sparse update, or a defence that prunes).

    Args:
        features: Shape (M, E), of the first dense layer.
        secret: of the crafting `gleak.crafting.mkor.MKOR`.

    Returns:
        Shape (M, K, values, values), of each view; NaN where nothing was sent.
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


def _interpolated(sought: Tensor, rising: Tensor, levels: Tensor) -> Tensor:
    """Levels at which rising curves take the values sought; beyond their ends, in a straight line.

    Args:
        sought: Shape (..., M).
        rising: Shape (..., L).
        levels: Shape (L).
    """
    above = torch.searchsorted(rising, sought.contiguous()).clamp(1, len(levels) - 1)
    low, high = rising.gather(-1, above - 1), rising.gather(-1, above)
    steepest = (rising[..., -1] - rising[..., 0]).max()
    share = (sought - low) / (high - low).clamp(min=FLATTEST * steepest)
    return levels[above - 1] + share * (levels[above] - levels[above - 1])


class WindowReader:
    """Turns intensities of views into images.

    Args:
        secret: of the crafting `gleak.crafting.mkor.MKOR`.
        resolution: side in pixels that images had before they were enlarged; None: their own.
    """

    def __init__(self, secret: Mapping[str, np.ndarray], resolution: int | None) -> None:
        self.scale, self.extent, self.values, self.side = map(int, secret["windows"])
        self.secret, self.resolution = secret, resolution
        self.colours = int(secret["colour"].max()) + 1

    def images(self, shown: Tensor) -> Tensor:
        """Estimates of images.

        Args:
            shown: Shape (M, K, values, values), see `intensities`.

        Returns:
            Shape (M, colours, side, side), in [0, 1].
        """
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

    def _on_grid(self, shown: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
        """First pixels of all windows of a kind along a side, and what they show.

        Returns:
            Shape (P) and Shape (M, colours, P, P).
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

    def _tightest(self, bounds: Tensor, step: int) -> Tensor:
        """The least bound of all windows that a cell lies in (MKOR Eq. 17, 18); cells are steps.

        Cells go on behind the start of the last window, to its end.
        """
        reach = max(1, self.extent // step)
        padded = functional.pad(bounds, [reach - 1] * 4, value=torch.inf)
        return -functional.max_pool2d(-padded, reach, stride=1)

    def _smooth(self, values: Tensor, starts: Tensor, extent: int) -> Tensor:
        """The likeliest images whose means over windows are these (see `Prior`)."""
        priors = [
            Prior(covariance(self.side, length, self.resolution), starts, extent)
            for length in LENGTHS
        ]
        middle = values.mean((2, 3), keepdim=True).double()
        told = torch.stack([prior.likelihoods(values - middle) for prior in priors], 1)
        best = told.flatten(1).argmax(1)
        lengths, doubts = best // len(DOUBTS), torch.tensor(DOUBTS)[best % len(DOUBTS)]
        lengths[doubts <= EXACT], doubts[doubts <= EXACT] = len(LENGTHS) - 1, DOUBTS[0]
        images = middle.repeat(1, 1, self.side, self.side)
        for image, length, doubt, seen in zip(
            images, lengths, doubts.tolist(), values - middle, strict=True
        ):
            image += priors[length].expect(seen, doubt)
        return images.clamp(0, 1).to(values.dtype)


class Prior:
    """What is taken of images before anything is known, and the means over windows that it expects.

    Rows and columns have the covariances of a side each; the variance of an image, the length over
    which it is alike and the errors of what was read are those under which that is likeliest.

    Args:
        pixels: Shape (side, side), covariance along a side.
        starts: Shape (P), first pixel of each window.
        extent: pixels in a window; beyond the image there are none.
    """

    def __init__(self, pixels: Tensor, starts: Tensor, extent: int) -> None:
        places = torch.arange(len(pixels))
        within = (places >= starts[:, None]) & (places < starts[:, None] + extent)
        means = within.double() / within.sum(1, keepdim=True)
        lengths, self.directions = torch.linalg.eigh(means @ pixels @ means.T)
        self.variances = lengths.clamp(min=0)[:, None] * lengths.clamp(min=0)
        self.back = pixels @ means.T @ self.directions

    def likelihoods(self, values: Tensor) -> Tensor:
        """How likely images are, each with its likeliest variance.

        Args:
            values: Shape (M, colours, P, P), about zero.

        Returns:
            Shape (M, doubts), natural logarithms up to a constant.
        """
        power = self._along(values).square()
        told = []
        for doubt in DOUBTS:
            expected = self.variances + doubt
            scale = (power / expected).mean((1, 2, 3)).clamp(min=LEAST)
            told.append(-(scale.log() + expected.log().mean()) * power.shape[1:].numel() / 2)
        return torch.stack(told, 1)

    def expect(self, values: Tensor, doubt: float) -> Tensor:
        """The expected image, given the means over windows.

        Args:
            values: Shape (colours, P, P), about zero.
            doubt: variance of their errors, in that of intensities.

        Returns:
            Shape (colours, side, side).
        """
        return self.back @ (self._along(values) / (self.variances + doubt)) @ self.back.T

    def _along(self, values: Tensor) -> Tensor:
        """Values along the directions in which they vary independently."""
        return self.directions.T @ values.double() @ self.directions


def covariance(side: int, length: float, resolution: int | None) -> Tensor:
    """Of the intensities along a side: exp(-d / length) at d pixels.

    Args:
        side: pixels.
        length: of likeness, in pixels.
        resolution: see `WindowReader`; the covariance is then that of images enlarged from it.

    Returns:
        Shape (side, side).
    """
    if resolution is None:
        return _alike(torch.arange(side), length)
    enlarged = enlargement(resolution, side)
    small = _alike(torch.arange(resolution) * side / resolution, length)
    return enlarged @ small @ enlarged.T


def _alike(places: Tensor, length: float) -> Tensor:
    return torch.exp(-(places[:, None] - places).abs().double() / length)


def enlargement(small: int, large: int) -> Tensor:
    """How intensities are interpolated when a picture is enlarged; Shape (large, small)."""
    steps = torch.eye(small, dtype=torch.float64)[None]
    enlarged = functional.interpolate(steps, large, mode="linear", align_corners=False)
    return enlarged[0].T


def filled(grid: Tensor) -> Tensor:
    """A grid whose gaps are the means of their neighbours, from the edges of each gap inwards.

    Args:
        grid: Shape (M, colours, P, P), NaN where nothing is known; one of which nothing at all is
            known becomes mid-grey.
    """
    grid = grid.masked_fill(grid.isnan().all((2, 3), keepdim=True), MID_GREY)
    while (gaps := grid.isnan()).any():
        around = functional.avg_pool2d((~gaps).to(grid.dtype), 3, stride=1, padding=1)
        means = functional.avg_pool2d(grid.nan_to_num(0), 3, stride=1, padding=1) / around
        grid = grid.where(~gaps, means)
    return grid
