"""What each channel shows of an image in a network that MKOR has crafted: windows, and where.

Each convolution of one-hot kernels copies channels, or divides each into four that look one pixel
further right, down, or both (MKOR section 3.4.1). Behind pooling a value is the largest or the mean
intensity of a window; behind a stride it is one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from gleak.core.errors import IncompatibleError

if TYPE_CHECKING:
    from gleak.models.chain import ConvolutionStep

SMALLEST_KERNEL = 3


@dataclass(frozen=True)
class View:
    """What one channel shows.

    Args:
        colour: channel of the image.
        reversed: whether it shows 1 less the intensity.
        row, column: first pixel of the window that its first value shows.
    """

    colour: int
    reversed: bool
    row: int
    column: int


@dataclass(frozen=True)
class Tap:
    """The one-hot kernel behind a view.

    Args:
        source: position of the view it is made from, among those before.
        row, column: of the kernel's pixel, from its centre.
        reverses: whether intensities are subtracted from 1 on the way.
        view: what the new channel shows.
    """

    source: int
    row: int
    column: int
    reverses: bool
    view: View


@dataclass(frozen=True)
class Windows:
    """How values of all channels are laid out on the image.

    Args:
        scale: pixels between the windows of neighbouring values.
        extent: side of a window in pixels.
        values: values along a side.
        side: of the image in pixels.
    """

    scale: int
    extent: int
    values: int
    side: int


@dataclass(frozen=True)
class Layout:
    """A whole plan: the taps of each convolution and what the last one's channels show."""

    taps: list[list[Tap]]
    windows: Windows

    @property
    def views(self) -> list[View]:
        """What the channels before the dense layers show."""
        return [tap.view for tap in self.taps[-1]]


def plan_views(
    steps: Sequence[ConvolutionStep], shape: Sequence[int], directions: int | None
) -> Layout:
    """Decide which channels show what.

    Args:
        steps: the convolutions.
        shape: of an image, (C, H, H).
        directions: how many of the convolutions that shrink the image divide channels by four, the
            last ones; None: as many as the widths allow.

    Raises:
        IncompatibleError: the network shrinks images in other ways, or has too few channels.
    """
    for step in steps:
        _check_step(step)
    _check_gaps(steps)
    if len({type(step.pool) for step in steps if step.pool is not None}) > 1:
        raise IncompatibleError("it pools by maxima in one place and by means in another")
    if shape[1] != shape[2]:
        raise IncompatibleError(f"images of {shape[1]} x {shape[2]} pixels are not square")
    shrinking = sum(step.factor > 1 for step in steps)
    wanted = [directions] if directions is not None else range(shrinking, -1, -1)
    for number in wanted:
        layout = _layout(steps, shape, min(number, shrinking))
        lacking = _lacking(steps, layout)
        if lacking is None:
            return layout
    raise IncompatibleError(f"{lacking}; fewer directions need fewer channels")


def _check_step(step: ConvolutionStep) -> None:
    """Refuse convolutions and pooling that one-hot kernels cannot be laid through.

    Raises:
        IncompatibleError: names the layer.
    """
    layer, pool = step.layer, step.pool
    size = layer.kernel_size[0]
    square = len({*layer.kernel_size}) == len({*layer.stride}) == len({*layer.padding}) == 1
    plain = layer.groups == 1 and {*layer.dilation} == {1}
    if not (square and plain) or size % 2 == 0 or size < SMALLEST_KERNEL:
        raise IncompatibleError(
            f"convolution {step.name!r} is not one of whole square kernels of odd side, 3 or more, "
            "on all channels"
        )
    if layer.bias is None:
        raise IncompatibleError(f"convolution {step.name!r} has no bias")
    if pool is not None and (pool.kernel_size, pool.stride, pool.padding) != (2, 2, 0):
        raise IncompatibleError(
            f"pooling behind {step.name!r} is not 2 x 2, which is all that is known"
        )
    if step.factor not in (1, 2):
        raise IncompatibleError(f"{step.name!r} shrinks images by {step.factor}, not by 1 or 2")


def _check_gaps(steps: Sequence[ConvolutionStep]) -> None:
    """Refuse pooling of pixels that do not touch, which is of no window.

    Raises:
        IncompatibleError: names the layer.
    """
    strided = [step.name for step in steps if int(step.layer.stride[0]) > 1]
    pooled = [step.name for step in steps if step.pool is not None]
    names = [step.name for step in steps]
    if strided and pooled and names.index(strided[0]) < names.index(pooled[-1]):
        raise IncompatibleError(
            f"pooling behind {pooled[-1]!r} is of pixels between which {strided[0]!r} skips others"
        )


def _lacking(steps: Sequence[ConvolutionStep], layout: Layout) -> str | None:
    """Which convolution has too few channels for a plan, if any."""
    for step, taps in zip(steps, layout.taps, strict=True):
        if len(taps) > step.layer.out_channels:
            return (
                f"convolution {step.name!r} has {step.layer.out_channels} channels, and "
                f"{len(taps)} are needed"
            )
    return None


def _layout(steps: Sequence[ConvolutionStep], shape: Sequence[int], directions: int) -> Layout:
    shrinking = [number for number, step in enumerate(steps) if step.factor > 1]
    dividing = set(shrinking[len(shrinking) - directions :])
    bounded = any(isinstance(step.pool, nn.MaxPool2d) for step in steps)
    views = [View(colour, False, 0, 0) for colour in range(shape[0])]
    windows = Windows(scale=1, extent=1, values=shape[1], side=shape[1])
    plan = []
    for number, step in enumerate(steps):
        cropped = step.layer.kernel_size[0] // 2 - int(step.layer.padding[0])
        windows = replace(windows, values=windows.values - 2 * cropped)
        views = [_moved(view, cropped * windows.scale) for view in views]
        shifts = (0, _direction(views, windows)) if number in dividing else (0,)
        taps = list(_taps(views, shifts, windows.scale, bounded and number == 0))
        plan.append(taps)
        views, windows = [tap.view for tap in taps], _shrunk(windows, step)
    return Layout(plan, windows)


def _moved(view: View, pixels: int) -> View:
    return replace(view, row=view.row + pixels, column=view.column + pixels)


def _direction(views: Sequence[View], windows: Windows) -> int:
    """The direction that keeps the windows on the image: to the lower right unless they are there.

    What is seen of the image lies about its centre or is cropped; the new views go to the emptier
    side.
    """
    first = min(view.row for view in views)
    last = max(view.row for view in views) + windows.scale * (windows.values - 1) + windows.extent
    seen_above, seen_below = max(first, 0), min(last, windows.side)
    return -1 if seen_above + seen_below > windows.side else 1


def _taps(views: Sequence[View], shifts: Sequence[int], scale: int, bounded: bool) -> list[Tap]:
    """New channels: each view through each kernel; first as it is, then reversed if bounded."""
    return [
        Tap(
            source,
            row,
            column,
            reverses,
            View(
                view.colour,
                reverses or view.reversed,
                view.row + row * scale,
                view.column + column * scale,
            ),
        )
        for reverses in ((False, True) if bounded else (False,))
        for row, column in product(shifts, shifts)
        for source, view in enumerate(views)
    ]


def _shrunk(windows: Windows, step: ConvolutionStep) -> Windows:
    """How values lie behind a step."""
    strided = int(step.layer.stride[0])
    scale, values = windows.scale * strided, -(-windows.values // strided)
    if step.pool is None:
        return replace(windows, scale=scale, values=values)
    return replace(windows, scale=2 * scale, values=values // 2, extent=windows.extent + scale)


def view_arrays(layout: Layout, channels: np.ndarray) -> dict[str, np.ndarray]:
    """What a server remembers of its views.

    Args:
        layout: the plan.
        channels: Shape (K), which channel of the last convolution each view is.

    Returns:
        ``channel``, ``colour``, ``reversed``, ``row``, ``column``, Shape (K); ``windows``, Shape
        (4), the fields of `Windows`.
    """
    views, windows = layout.views, layout.windows
    return {
        "channel": channels,
        "colour": np.array([view.colour for view in views]),
        "reversed": np.array([int(view.reversed) for view in views]),
        "row": np.array([view.row for view in views]),
        "column": np.array([view.column for view in views]),
        "windows": np.array([windows.scale, windows.extent, windows.values, windows.side]),
    }
