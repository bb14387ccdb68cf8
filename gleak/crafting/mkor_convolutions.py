"""MKOR's convolutions: one-hot kernels among weights that are left as they are (Eq. 20)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from gleak.crafting.mkor_views import Layout, Tap
from gleak.models.chain import Chain, ConvolutionStep

if TYPE_CHECKING:
    from gleak.crafting.mkor import MKOR

PATCHES = 1000
NEGLIGIBLE = 1e-5
"""Directions in which activations vary less than this share of the widest are not removed."""
CENTRES: dict[type[nn.Module], float] = {nn.Sigmoid: 0.5}
"""What an activation makes of zero, about which signals are kept; others keep what is positive, so
that zeros beside an image are never the largest of a window."""


@dataclass
class Signal:
    """Where the image is on its way through the network.

    Args:
        channels: Shape (K), which ones carry it.
        gain, offset: Shape (K), what a value is times what the convolution is to see, and what is
            added; 1 and 0 behind the first, so that weights of `beta` compound.
        centre: of its values, where the next activation is about zero; None: they stay positive.
    """

    channels: Tensor
    gain: Tensor
    offset: Tensor
    centre: float | None


@torch.no_grad()
def craft_convolutions(
    chain: Chain, layout: Layout, probes: Tensor, crafting: MKOR, random: Generator
) -> Tensor:
    """Lay the views of a plan through the convolutions, in place.

    Args:
        chain: the network.
        layout: the plan.
        probes: Shape (M, *shape), made-up images on which activations are watched.
        crafting: its fields.
        random: chooses channels and draws noise.

    Returns:
        Which channels of the last convolution carry the views; Shape (K).
    """
    signal = _images(chain, probes.shape[1])
    activations = probes if chain.normalisation is None else chain.normalisation(probes)
    for step, taps in zip(chain.convolutions, layout.taps, strict=True):
        channels = _choose(step, len(taps), crafting, random)
        if crafting.hiding == "naive":
            step.layer.weight.zero_()
            _bias(step).zero_()
        else:
            _blend(step, signal.channels, channels, activations, crafting, random)
        signal = _lay(step, taps, signal, channels, crafting.beta)
        activations = _run(step, activations)
    return signal.channels


def _images(chain: Chain, colours: int) -> Signal:
    """The signal before the first convolution, which normalisation may have scaled."""
    first = chain.convolutions[0]
    gain, offset = torch.ones(colours), torch.zeros(colours)
    if chain.normalisation is not None:
        gain = 1 / chain.normalisation.deviation.flatten()
        offset = -chain.normalisation.mean.flatten() * gain
    centre = 0.5 if type(first.activation) in CENTRES else None
    return Signal(torch.arange(colours), gain, offset, centre)


def _choose(step: ConvolutionStep, count: int, crafting: MKOR, random: Generator) -> Tensor:
    """The channels that will carry the signal: the first ones, or any, shuffled; Shape (K)."""
    if crafting.hiding == "naive":
        return torch.arange(count)
    return torch.randperm(step.layer.out_channels, generator=random)[:count]


def _blend(
    step: ConvolutionStep,
    incoming: Tensor,
    outgoing: Tensor,
    activations: Tensor,
    crafting: MKOR,
    random: Generator,
) -> None:
    """Noise between the channels that carry signals; weights from others turned off their ways."""
    weight, bias = step.layer.weight.data, _bias(step)
    noise = crafting.noise * weight.std()
    between = weight.new_empty(len(outgoing), len(incoming), *weight.shape[2:])
    weight[outgoing[:, None], incoming] = noise * between.normal_(generator=random)
    bias[outgoing] = noise * bias.new_empty(len(outgoing)).normal_(generator=random)
    others = _others(weight.shape[1], incoming)
    if crafting.quiet and len(others):
        rows = weight[outgoing[:, None], others].flatten(1)
        patches = _patches(step.layer, activations, others, random)
        quiet = _without(rows, _widest(patches, round(crafting.quiet * rows.shape[1])))
        weight[outgoing[:, None], others] = quiet.unflatten(1, (len(others), *weight.shape[2:]))


def _others(count: int, chosen: Tensor) -> Tensor:
    left = torch.ones(count, dtype=torch.bool)
    left[chosen] = False
    return left.nonzero().flatten()


def _patches(layer: nn.Conv2d, activations: Tensor, channels: Tensor, random: Generator) -> Tensor:
    """What the kernels see of some channels at places drawn at random; Shape (1000, features)."""
    size, padding = layer.kernel_size[0], int(layer.padding[0])
    padded = nn.functional.pad(activations[:, channels], [padding] * 4)
    windows = padded.unfold(2, size, 1).unfold(3, size, 1)
    samples, _, rows, columns = windows.shape[:4]
    places = [
        torch.randint(most, (PATCHES,), generator=random) for most in (samples, rows, columns)
    ]
    return windows[places[0], :, places[1], places[2]].flatten(1)


def _widest(patches: Tensor, count: int) -> Tensor:
    """Orthonormal rows: so many directions that activations take, the widest, none negligible."""
    _, lengths, directions = torch.linalg.svd(patches, full_matrices=False)
    return directions[:count][lengths[:count] > NEGLIGIBLE * lengths[0]]


def _without(rows: Tensor, directions: Tensor) -> Tensor:
    """Rows less their parts in the directions."""
    return rows - (rows @ directions.T) @ directions


def _lay(
    step: ConvolutionStep, taps: Sequence[Tap], signal: Signal, channels: Tensor, beta: float
) -> Signal:
    """Write the one-hot kernels; what comes out is `beta` times the intensity, or centred."""
    layer, middle = step.layer, step.layer.kernel_size[0] // 2
    scales, shifts = _normalising(step, channels)
    sources = torch.tensor([tap.source for tap in taps])
    signs = torch.tensor([-1.0 if tap.reverses else 1.0 for tap in taps])
    gain, offset = signal.gain[sources], signal.offset[sources]
    rows, columns = (_of(taps, name) + middle for name in ("row", "column"))
    taken = signal.channels[sources]
    layer.weight[channels, taken, rows, columns] = signs * beta / gain / scales
    start = torch.where(signs < 0, beta, 0.0) - signs * beta * offset / gain
    if signal.centre is not None:
        start = start - beta * signal.centre
    _bias(step)[channels] += (start - shifts) / scales
    if type(step.activation) in CENTRES:
        ones = torch.ones(len(taps))
        return Signal(channels, ones, 0 * ones, CENTRES[type(step.activation)])
    return Signal(channels, torch.ones(len(taps)), torch.zeros(len(taps)), None)


def _bias(step: ConvolutionStep) -> Tensor:
    """Of the convolution, which has one (see `gleak.crafting.mkor_views.plan_views`)."""
    assert step.layer.bias is not None
    return step.layer.bias.data


def _of(taps: Iterable[Tap], name: str) -> Tensor:
    return torch.tensor([getattr(tap, name) for tap in taps])


def _normalising(step: ConvolutionStep, channels: Tensor) -> tuple[Tensor, Tensor]:
    """What batch normalisation multiplies by and adds in these channels; Shape (K) each."""
    norm = step.norm
    if norm is None:
        return torch.ones(len(channels)), torch.zeros(len(channels))
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scales = norm.weight / (variance + norm.eps).sqrt()
    shifts = norm.bias - mean * scales
    return scales[channels], shifts[channels]


def _run(step: ConvolutionStep, activations: Tensor) -> Tensor:
    outputs: Tensor = step.layer(activations)
    if step.norm is not None:
        outputs = step.norm(outputs)
    outputs = step.activation(outputs)
    return outputs if step.pool is None else step.pool(outputs)
