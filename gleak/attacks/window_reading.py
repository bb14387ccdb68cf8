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

LENGTH = 64.0
"""Pixels over which intensities are taken to be alike, before anything is known."""
DOUBT = 1e-5
"""Variance of what is read, in that of intensities; keeps the inverse well behaved."""
FLATTEST = 1e-4
"""Of the steepest view's rise: views that answer less to intensities say nothing of them."""


def intensities(features: Tensor, secret: Mapping[str, np.ndarray]) -> Tensor:
    """Features of crafted channels as intensities, by what they were of grey images.

    Args:
        features: Shape (M, E), of the first dense layer.
        secret: of the crafting `gleak.crafting.mkor.MKOR`.

    Returns:
        Shape (M, K, values, values), of each view.
    """
    responses = torch.from_numpy(secret["responses"]).to(features)
    levels = torch.from_numpy(secret["levels"]).to(features)
    channels = torch.from_numpy(secret["channel"])
    values = responses.shape[-1]
    maps = features.unflatten(1, (-1, values, values))[:, channels]
    falling = torch.from_numpy(secret["reversed"] == 1).to(maps.device)[:, None, None]
    rising = torch.where(falling, -responses, responses).cummax(0).values.movedim(0, -1)
    sought = torch.where(falling, -maps, maps).movedim(0, -1)
    return _interpolated(sought, rising.contiguous(), levels).movedim(-1, 0)


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
            return self._smooth(copies, starts, self.extent)
        _, reverses = self._on_grid(shown, reverse=True)
        step = int(starts[1] - starts[0]) if len(starts) > 1 else self.extent
        upper, lower = self._tightest(copies, step), -self._tightest(-reverses, step)
        return self._smooth((upper + lower) / 2, starts, step)

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
        """The least bound of all windows that a cell lies in (MKOR Eq. 17, 18); cells are steps."""
        reach = self.extent // step
        padded = functional.pad(bounds, (reach - 1, 0, reach - 1, 0), value=torch.inf)
        return -functional.max_pool2d(-padded, reach, stride=1)

    def _smooth(self, values: Tensor, starts: Tensor, extent: int) -> Tensor:
        """The likeliest image whose means over windows are these (see `reading_matrix`)."""
        matrix = reading_matrix(self.side, starts, extent, self.resolution).to(values)
        middle = values.mean((2, 3), keepdim=True)
        return (middle + matrix @ (values - middle) @ matrix.T).clamp(0, 1)


def reading_matrix(side: int, starts: Tensor, extent: int, resolution: int | None) -> Tensor:
    """From means over windows to pixels, along one side.

    Before anything is known, neighbouring intensities are alike: their covariance is exp(-d / 64)
    at d pixels. Given the means, the expected intensities are a matrix times these; between single
    pixels that is a straight line.

    Args:
        side: pixels.
        starts: Shape (P), first pixel of each window.
        extent: pixels in a window; beyond the image there are none.
        resolution: see `WindowReader`.

    Returns:
        Shape (side, P).
    """
    pixels = torch.arange(side, dtype=torch.float64)
    within = (pixels >= starts[:, None]) & (pixels < starts[:, None] + extent)
    means = within.double() / within.sum(1, keepdim=True)
    prior = _alike(pixels)
    if resolution is not None:
        enlarged = enlargement(resolution, side)
        prior = enlarged @ _alike(torch.arange(resolution) * side / resolution) @ enlarged.T
    seen = means @ prior @ means.T + DOUBT * torch.eye(len(starts), dtype=torch.float64)
    matrix: Tensor = torch.linalg.solve(seen, means @ prior).T
    return matrix


def _alike(places: Tensor) -> Tensor:
    return torch.exp(-(places[:, None] - places).abs().double() / LENGTH)


def enlargement(small: int, large: int) -> Tensor:
    """How intensities are interpolated when a picture is enlarged; Shape (large, small)."""
    steps = torch.eye(small, dtype=torch.float64)[None]
    enlarged = functional.interpolate(steps, large, mode="linear", align_corners=False)
    return enlarged[0].T
