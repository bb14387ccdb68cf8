"""Plan of the views that the channels of a network crafted by MKOR give of an image.

Each convolution with one-hot kernels copies channels, or copies each four times, shifted by one
pixel to the right, down, or both (MKOR section 3.4.1). After pooling a value is the largest or the
mean intensity of a window; after a stride it is one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.models.chain import ConvolutionStep

SMALLEST_KERNEL = 3


@dataclass(frozen=True)
class View:
    """View of an image in one channel.

    Args:
        colour: channel of the image.
        reversed: True if it contains 1 minus the intensity.
        row, column: first pixel of the window of its first value.
    """

    colour: int
    reversed: bool
    row: int
    column: int


@dataclass(frozen=True)
class Tap:
    """One-hot kernel of a view.

    Args:
        source: index of its input among the previous views.
        row, column: position of the kernel's one, relative to its centre.
        reverses: True if intensities are subtracted from 1.
        view: the view in the output channel.
    """

    source: int
    row: int
    column: int
    reverses: bool
    view: View


@dataclass(frozen=True)
class Windows:
    """Positions of the values of all channels on the image.

    Args:
        scale: pixels between the windows of neighbouring values.
        extent: side of a window in pixels.
        values: values along a side.
        side: side of the image in pixels.
    """

    scale: int
    extent: int
    values: int
    side: int


@dataclass(frozen=True)
class Layout:
    """Kernels of each convolution, and the windows of the last one's views."""

    taps: list[list[Tap]]
    windows: Windows

    @property
    def views(self) -> list[View]:
        """Views in the channels before the dense layers."""
        return [tap.view for tap in self.taps[-1]]


def plan_views(
    steps: Sequence[ConvolutionStep], shape: Sequence[int], directions: int | None
) -> Layout:
    """Plan the views of all channels.

    Args:
        steps: the convolutions.
        shape: shape of an image, (C, H, H).
        directions: number of downsampling convolutions, counted from the last, that copy channels
            four times; None: as many as the numbers of channels allow.

    Raises:
        IncompatibleError: the network downsamples images in other ways or has too few channels.
    """
    for step in steps:
        _check_step(step)
    _check_gaps(steps)
    if len({type(step.pool) for step in steps if step.pool is not None}) > 1:
        raise IncompatibleError("it contains both max-pooling and average pooling")
    if shape[1] != shape[2]:
        raise IncompatibleError(f"images of {shape[1]} x {shape[2]} pixels are not square")
    shrinking = sum(step.factor > 1 for step in steps)
    wanted = [directions] if directions is not None else range(shrinking, -1, -1)
    for number in wanted:
        layout = _layout(steps, shape, min(number, shrinking))
        shortage = _shortage(steps, layout)
        if shortage is None:
            return layout
    raise IncompatibleError(f"{shortage}; fewer directions need fewer channels")


def _check_step(step: ConvolutionStep) -> None:
    """Raise `IncompatibleError` if one-hot kernels do not suit a convolution or its pooling."""
    layer, pool = step.layer, step.pool
    size = layer.kernel_size[0]
    square = len({*layer.kernel_size}) == len({*layer.stride}) == len({*layer.padding}) == 1
    plain = layer.groups == 1 and {*layer.dilation} == {1}
    if not (square and plain) or size % 2 == 0 or size < SMALLEST_KERNEL:
        raise IncompatibleError(
            f"convolution {step.name!r} does not have square kernels of odd side, 3 or more, "
            "without dilation or groups"
        )
    if layer.bias is None:
        raise IncompatibleError(f"convolution {step.name!r} has no bias")
    if pool is not None and (pool.kernel_size, pool.stride, pool.padding) != (2, 2, 0):
        raise IncompatibleError(
            f"pooling after {step.name!r} is not 2 x 2, the only supported size"
        )
    if step.factor not in (1, 2):
        raise IncompatibleError(f"{step.name!r} downsamples images by {step.factor}, not by 1 or 2")


def _check_gaps(steps: Sequence[ConvolutionStep]) -> None:
    """Raise `IncompatibleError` if pixels are pooled that are not adjacent, so no window."""
    strided = [step.name for step in steps if int(step.layer.stride[0]) > 1]
    pooled = [step.name for step in steps if step.pool is not None]
    names = [step.name for step in steps]
    if strided and pooled and names.index(strided[0]) < names.index(pooled[-1]):
        raise IncompatibleError(
            f"pooling after {pooled[-1]!r} combines pixels that are not adjacent, because of the "
            f"stride of {strided[0]!r}"
        )


def _shortage(steps: Sequence[ConvolutionStep], layout: Layout) -> str | None:
    """Describe the first convolution with too few channels for a layout; None if there is none."""
    for step, taps in zip(steps, layout.taps, strict=True):
        if len(taps) > step.layer.out_channels:
            return (
                f"convolution {step.name!r} has {step.layer.out_channels} channels, but "
                f"{len(taps)} are needed"
            )
    return None


def _layout(steps: Sequence[ConvolutionStep], shape: Sequence[int], directions: int) -> Layout:
    shrinking = [number for number, step in enumerate(steps) if step.factor > 1]
    dividing = set(shrinking[len(shrinking) - directions :])
    bounded = any(isinstance(step.pool, torch.nn.MaxPool2d) for step in steps)
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
        views, windows = [tap.view for tap in taps], _downsampled(windows, step)
    return Layout(plan, windows)


def _moved(view: View, pixels: int) -> View:
    return replace(view, row=view.row + pixels, column=view.column + pixels)


def _direction(views: Sequence[View], windows: Windows) -> int:
    """Return the shift that keeps the windows on the image: 1 (lower right) or -1 (upper left).

    The windows so far are centred or cropped; the new ones extend to the side with more space.
    """
    first = min(view.row for view in views)
    last = max(view.row for view in views) + windows.scale * (windows.values - 1) + windows.extent
    seen_above, seen_below = max(first, 0), min(last, windows.side)
    return -1 if seen_above + seen_below > windows.side else 1


def _taps(views: Sequence[View], shifts: Sequence[int], scale: int, bounded: bool) -> list[Tap]:
    """Return the kernels of each view and shift, followed by reversed ones if ``bounded``."""
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


def _downsampled(windows: Windows, step: ConvolutionStep) -> Windows:
    """Return the positions of the values after a layer."""
    strided = int(step.layer.stride[0])
    scale, values = windows.scale * strided, -(-windows.values // strided)
    if step.pool is None:
        return replace(windows, scale=scale, values=values)
    return replace(windows, scale=2 * scale, values=values // 2, extent=windows.extent + scale)


def view_arrays(layout: Layout, channels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays that describe the views in the secret of the server.

    Args:
        layout: the planned views.
        channels: Shape (K), channel of the last convolution of each view.

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
