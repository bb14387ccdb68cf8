"""Views that the channels of a network crafted by MKOR give of an image: plan and convolutions.

Each convolution with one-hot kernels copies channels, or copies each four times, shifted by one
pixel to the right, down, or both (MKOR section 3.4.1). After pooling a value is the largest or the
mean intensity of a window; after a stride it is one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.chain import Chain, ConvolutionStep

SMALLEST_KERNEL = 3
PATCHES = 1000
NEGLIGIBLE = 1e-5
"""Directions of smaller singular value, relative to the largest, are not removed."""
CENTRES = {"Sigmoid": 0.5}
"""Output of an activation for zero. Signals are centred there; with other activations they are kept
positive, so that padding with zeros never gives the maximum of a window."""


@dataclass(frozen=True)
class View:
    """View of an image in one channel, of one of its colours, or of 1 minus it if reversed.

    Row and column are the first pixel of the window of its first value.
    """

    colour: int
    reversed: bool
    row: int
    column: int


@dataclass(frozen=True)
class Tap:
    """One-hot kernel that makes a view of another, the source, an index of the previous views.

    Row and column are the position of the kernel's one, relative to its centre. If it reverses,
    intensities are subtracted from 1.
    """

    source: int
    row: int
    column: int
    reverses: bool
    view: View


@dataclass(frozen=True)
class Windows:
    """Positions of the values of all channels on the image, in pixels.

    The scale lies between the windows of neighbouring values; the extent is a window's side.
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
        return [tap.view for tap in self.taps[-1]]


def plan_views(
    steps: Sequence[ConvolutionStep], shape: Sequence[int], directions: int | None
) -> Layout:
    """Plan the views of all channels, of images of a shape.

    ``directions`` is the number of downsampling convolutions, counted from the last, that copy
    channels four times; None: as many as the numbers of channels allow.

    Raises:
        IncompatibleError: the network downsamples images in other ways or has too few channels.
    """
    for step in steps:
        _check_step(step)
    strided = [number for number, step in enumerate(steps) if int(step.layer.stride[0]) > 1]
    pooled = [number for number, step in enumerate(steps) if step.pool is not None]
    if strided and pooled and strided[0] < pooled[-1]:
        raise IncompatibleError(
            f"pooling after {steps[pooled[-1]].name!r} combines pixels that are not adjacent, "
            f"because of the stride of {steps[strided[0]].name!r}"
        )
    if len({type(step.pool) for step in steps if step.pool is not None}) > 1:
        raise IncompatibleError("it contains both max-pooling and average pooling")
    if shape[1] != shape[2]:
        raise IncompatibleError(f"images of {shape[1]} x {shape[2]} pixels are not square")
    shrinking = sum(step.factor > 1 for step in steps)
    for number in [directions] if directions is not None else range(shrinking, -1, -1):
        layout = _layout(steps, shape, min(number, shrinking))
        pairs = list(zip(steps, map(len, layout.taps), strict=True))
        short = [pair for pair in pairs if pair[1] > pair[0].layer.out_channels]
        if not short:
            return layout
    step, needed = short[0]
    raise IncompatibleError(
        f"convolution {step.name!r} has {step.layer.out_channels} channels, but {needed} are "
        "needed; fewer directions need fewer channels"
    )


def _check_step(step: ConvolutionStep) -> None:
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
        moved = cropped * windows.scale
        views = [replace(view, row=view.row + moved, column=view.column + moved) for view in views]
        shifts = (0, _direction(views, windows)) if number in dividing else (0,)
        taps = _taps(views, shifts, windows.scale, bounded and number == 0)
        plan.append(taps)
        views, windows = [tap.view for tap in taps], _downsampled(windows, step)
    return Layout(plan, windows)


def _direction(views: Sequence[View], windows: Windows) -> int:
    """Return the shift that keeps the windows on the image: 1 (lower right) or -1 (upper left).

    The windows so far are centred or cropped; the new ones extend to the side with more space.
    """
    first, last = (choose(view.row for view in views) for choose in (min, max))
    last += windows.scale * (windows.values - 1) + windows.extent
    seen_above, seen_below = max(first, 0), min(last, windows.side)
    return -1 if seen_above + seen_below > windows.side else 1


def _taps(views: Sequence[View], shifts: Sequence[int], scale: int, bounded: bool) -> list[Tap]:
    """Return the kernels of each view and shift, followed by reversed ones if ``bounded``."""
    taps = []
    for reverses in (False, True) if bounded else (False,):
        for row, column in product(shifts, shifts):
            for source, view in enumerate(views):
                moved = view.row + row * scale, view.column + column * scale
                shown = View(view.colour, reverses or view.reversed, *moved)
                taps.append(Tap(source, row, column, reverses, shown))
    return taps


def _downsampled(windows: Windows, step: ConvolutionStep) -> Windows:
    strided = int(step.layer.stride[0])
    scale, values = windows.scale * strided, -(-windows.values // strided)
    if step.pool is None:
        return replace(windows, scale=scale, values=values)
    return replace(windows, scale=2 * scale, values=values // 2, extent=windows.extent + scale)


def view_arrays(layout: Layout, channels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays that describe the views in the secret of the server.

    They are ``channel``, that of the last convolution, and the fields of `View`, Shape (K) each,
    and ``windows``, Shape (4), the fields of `Windows`.
    """
    views = np.array([astuple(view) for view in layout.views], dtype=int).T.copy()
    fields = dict(zip(("colour", "reversed", "row", "column"), views, strict=True))
    return {"channel": channels, **fields, "windows": np.array(astuple(layout.windows))}


@dataclass
class Signal:
    """Channels that carry the image at some layer of the network; Shape (K).

    A value is gain times intensity plus offset, 1 and 0 after the first convolution, so that
    factors of `beta` compound. The centre of the values, None if they are positive, is subtracted
    before the next activation.
    """

    channels: torch.Tensor
    gain: torch.Tensor
    offset: torch.Tensor
    centre: float | None


def craft_convolutions(
    chain: Chain,
    layout: Layout,
    probes: torch.Tensor,
    random: torch.Generator,
    naive: bool,
    *,
    beta: float,
    noise: float,
    quiet: float,
) -> torch.Tensor:
    """Craft convolutions that carry the views of a layout, in place; see `mkor.MKOR`.

    The probes are synthetic images, Shape (M, *shape), for which activations are computed. If
    crafting is naive, the first channels are taken, and all other weights are zero.

    Returns:
        Channels of the last convolution that carry the views; Shape (K).
    """
    with torch.no_grad():
        colours = probes.shape[1]
        gain, offset, activations = torch.ones(colours), torch.zeros(colours), probes
        if chain.normalisation is not None:
            gain = 1 / chain.normalisation.deviation.flatten()
            offset = -chain.normalisation.mean.flatten() * gain
            activations = chain.normalisation(probes)
        centre = CENTRES.get(type(chain.convolutions[0].activation).__name__)
        signal = Signal(torch.arange(colours), gain, offset, centre)
        for step, taps in zip(chain.convolutions, layout.taps, strict=True):
            if naive:
                channels = torch.arange(len(taps))
                step.layer.weight.zero_()
                _bias(step).zero_()
            else:
                order = torch.randperm(step.layer.out_channels, generator=random)
                channels = order[: len(taps)]
                _blend(step, signal.channels, channels, activations, random, noise, quiet)
            signal = _set_kernels(step, taps, signal, channels, beta)
            layers = (step.layer, step.norm, step.activation, step.pool)
            activations = torch.nn.Sequential(*filter(None, layers))(activations)
        return signal.channels


def _blend(
    step: ConvolutionStep,
    incoming: torch.Tensor,
    outgoing: torch.Tensor,
    activations: torch.Tensor,
    random: torch.Generator,
    noise: float,
    quiet: float,
) -> None:
    """Set noise between the channels of signals and remove directions from other weights."""
    weight, bias = step.layer.weight.data, _bias(step)
    deviation = noise * weight.std()
    between = weight.new_empty(len(outgoing), len(incoming), *weight.shape[2:])
    weight[outgoing[:, None], incoming] = deviation * between.normal_(generator=random)
    bias[outgoing] = deviation * bias.new_empty(len(outgoing)).normal_(generator=random)
    every = torch.arange(weight.shape[1])
    others = every[~torch.isin(every, incoming)]
    if quiet and len(others):
        rows = weight[outgoing[:, None], others].flatten(1)
        patches = _patches(step.layer, activations, others, random)
        _, lengths, directions = torch.linalg.svd(patches, full_matrices=False)
        count = round(quiet * rows.shape[1])
        removed = directions[:count][lengths[:count] > NEGLIGIBLE * lengths[0]]
        rows = rows - (rows @ removed.T) @ removed
        weight[outgoing[:, None], others] = rows.unflatten(1, (len(others), *weight.shape[2:]))


def _patches(
    layer: torch.nn.Conv2d,
    activations: torch.Tensor,
    channels: torch.Tensor,
    random: torch.Generator,
) -> torch.Tensor:
    """Draw random patches of some channels, of the kernels' size; Shape (1000, features)."""
    size, padding = layer.kernel_size[0], int(layer.padding[0])
    padded = torch.nn.functional.pad(activations[:, channels], [padding] * 4)
    windows = padded.unfold(2, size, 1).unfold(3, size, 1)
    samples, rows, columns = (
        torch.randint(windows.shape[axis], (PATCHES,), generator=random) for axis in (0, 2, 3)
    )
    return windows[samples, :, rows, columns].flatten(1)


def _set_kernels(
    step: ConvolutionStep, taps: Sequence[Tap], signal: Signal, channels: torch.Tensor, beta: float
) -> Signal:
    """Set the one-hot kernels, whose output is `beta` times the intensity, possibly centred."""
    layer, middle = step.layer, step.layer.kernel_size[0] // 2
    scales, shifts = _batch_norm(step, channels)
    sources = torch.tensor([tap.source for tap in taps])
    signs = torch.tensor([-1.0 if tap.reverses else 1.0 for tap in taps])
    gain, offset = signal.gain[sources], signal.offset[sources]
    rows = torch.tensor([tap.row for tap in taps]) + middle
    columns = torch.tensor([tap.column for tap in taps]) + middle
    taken = signal.channels[sources]
    layer.weight[channels, taken, rows, columns] = signs * beta / gain / scales
    start = torch.where(signs < 0, beta, 0.0) - signs * beta * offset / gain
    if signal.centre is not None:
        start = start - beta * signal.centre
    _bias(step)[channels] += (start - shifts) / scales
    centre = CENTRES.get(type(step.activation).__name__)
    return Signal(channels, torch.ones(len(taps)), torch.zeros(len(taps)), centre)


def _bias(step: ConvolutionStep) -> torch.Tensor:
    assert step.layer.bias is not None
    return step.layer.bias.data


def _batch_norm(step: ConvolutionStep, channels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    norm = step.norm
    if norm is None:
        return torch.ones(len(channels)), torch.zeros(len(channels))
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scales = norm.weight / (variance + norm.eps).sqrt()
    shifts = norm.bias - mean * scales
    return scales[channels], shifts[channels]
