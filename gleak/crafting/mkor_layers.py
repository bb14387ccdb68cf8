"""MKOR's layers: paths of classes through dense layers, one-hot kernels in convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.crafting.mkor_views import Layout, Tap
from gleak.models.chain import Chain, ConvolutionStep, DenseStep

if TYPE_CHECKING:
    from gleak.crafting.mkor import MKOR

FEWEST_LAYERS = 2
CUTTING = ("ReLU", "LeakyReLU")
"""Activations that are (almost) zero for negative inputs, so that neurons are crafted in pairs."""
PATCHES = 1000
NEGLIGIBLE = 1e-5
"""Directions of smaller singular value, relative to the largest, are not removed."""
CENTRES = {"Sigmoid": 0.5}
"""Output of an activation for zero. Signals are centred there; with other activations they are kept
positive, so that padding with zeros never gives the maximum of a window."""


@dataclass(frozen=True)
class ClassPaths:
    """Neurons of the first dense layer whose gradients reveal each class.

    Args:
        rows: neurons of the first dense layer, Shape (classes, M).
        pairs: True if only one of two neighbours in ``rows`` is active for a sample.
    """

    rows: torch.Tensor
    pairs: bool


def needs_pairs(activation: torch.nn.Module, crafting: MKOR) -> bool:
    """Return True if each path begins with two neurons, one of which is active for any sample."""
    return crafting.hiding != "naive" and type(activation).__name__ in CUTTING


def craft_classes(
    steps: Sequence[DenseStep], features: torch.Tensor, crafting: MKOR, random: torch.Generator
) -> ClassPaths:
    """Create one or several paths from the first dense layer to each class, in place.

    Args:
        steps: the dense layers, with the weights of the honest network.
        features: Shape (M, E), inputs of the first layer for synthetic images.
        crafting: the spec.
        random: random generator that chooses neurons and draws noise.

    Raises:
        IncompatibleError: fewer than two dense layers, or too few neurons in one of them.
    """
    with torch.no_grad():
        check_paths(steps, crafting)
        first, *others = steps
        classes, paths = steps[-1].layer.out_features, crafting.paths_per_class(first.dropout)
        pairs = needs_pairs(first.activation, crafting)
        if crafting.hiding == "naive":
            for step in steps:
                step.layer.weight.zero_()
                step.layer.bias.zero_()
        rows = _begin(first.layer, classes * paths, pairs, crafting, random)
        carriers, values = rows, first.activation(first.layer(features))
        for step in others[:-1]:
            carriers = _extend(step, carriers, values, None, crafting, random)[:, None]
            values = step.activation(step.layer(values))
        outputs = torch.arange(classes).repeat_interleave(paths)
        _extend(others[-1], carriers, values, outputs, crafting, random)
        return ClassPaths(rows.reshape(classes, -1), pairs)


def path_gains(
    steps: Sequence[DenseStep], features: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Compute the derivative of each class's logit by the pre-activations of its neurons.

    Args:
        steps: the dense layers, as they are broadcast.
        features: Shape (M, E), inputs of the first layer for synthetic images, averaged over.
        rows: Shape (classes, K), neurons of the first layer.

    Returns:
        Shape (classes, K); for neurons with a ReLU, the derivative where they are active.
    """
    with torch.enable_grad():
        first, *others = steps
        sums = first.layer(features).detach().requires_grad_()
        values = first.activation(sums)
        entered = logits = values.detach().requires_grad_()
        for step in others:
            logits = step.activation(step.layer(logits))
        (slopes,) = torch.autograd.grad(values.sum(), sums)
        opened = torch.ones_like(slopes) if type(first.activation).__name__ in CUTTING else slopes
        gains = []
        for output, neurons in zip(logits.sum(0), rows, strict=True):
            (gradient,) = torch.autograd.grad(output, entered, retain_graph=True)
            gains.append((gradient * opened)[:, neurons].mean(0))
        return torch.stack(gains)


def check_paths(steps: Sequence[DenseStep], crafting: MKOR) -> None:
    """Check that the dense layers have enough neurons for the paths of all classes.

    Raises:
        IncompatibleError: fewer than two dense layers, one without a bias, or too few neurons in
            one of them.
    """
    first = steps[0]
    for step in steps:
        if step.layer.bias is None:
            raise IncompatibleError(f"dense layer {step.name!r} has no bias")
    paths = steps[-1].layer.out_features * crafting.paths_per_class(first.dropout)
    pairs = needs_pairs(first.activation, crafting)
    if len(steps) < FEWEST_LAYERS:
        raise IncompatibleError(
            f"paths of classes need two dense layers or more, but this network has {len(steps)}"
        )
    for step in steps[:-1]:
        needed = paths * (2 if pairs and step is steps[0] else 1)
        if step.layer.out_features < needed:
            raise IncompatibleError(
                f"dense layer {step.name!r} has {step.layer.out_features} neurons, but paths of "
                f"all classes need {needed}"
            )


def _begin(
    layer: torch.nn.Linear, paths: int, pairs: bool, crafting: MKOR, random: torch.Generator
) -> torch.Tensor:
    """Choose neurons of the first layer, one or a pair for each path; Shape (paths, 1 or 2)."""
    if crafting.hiding == "naive":
        rows = torch.arange(paths)[:, None]
        layer.weight[rows] = 1 / layer.in_features
        return rows
    width = 2 if pairs else 1
    rows = torch.randperm(layer.out_features, generator=random)[: width * paths].view(-1, width)
    if pairs:
        kept, mirrored = rows.unbind(1)
        layer.weight[mirrored] = crafting.alpha * layer.weight[kept]
        layer.bias[mirrored] = crafting.alpha * layer.bias[kept]
    return rows


def _extend(
    step: DenseStep,
    carriers: torch.Tensor,
    values: torch.Tensor,
    outputs: torch.Tensor | None,
    crafting: MKOR,
    random: torch.Generator,
) -> torch.Tensor:
    """Extend each path by one more layer.

    Args:
        step: the layer.
        carriers: neurons of the paths before it, Shape (paths, 1 or 2).
        values: Shape (M, inputs), inputs of the layer for synthetic images.
        outputs: neurons to which the paths lead, Shape (paths); None: chosen here.
        crafting: the spec.
        random: random generator that chooses neurons and draws noise.

    Returns:
        The neurons of the paths in this layer, Shape (paths).
    """
    layer, paths = step.layer, len(carriers)
    if crafting.hiding == "naive":
        chosen = torch.arange(paths) if outputs is None else outputs
        layer.weight[chosen[:, None], carriers] = 1.0
        return chosen
    largest = layer.weight.abs().amax(1)
    noise = crafting.noise * layer.weight.std()
    taken = carriers.flatten()
    layer.weight[:, taken] = noise * layer.weight[:, taken].normal_(generator=random)
    if outputs is None:
        chosen = _choose_neurons(step, values, paths, random)
        layer.bias[chosen] = layer.bias[chosen].abs()
    else:
        chosen = outputs
        layer.bias.abs_()
    layer.weight[chosen[:, None], carriers] = largest[chosen][:, None].expand(carriers.shape)
    return chosen


def _choose_neurons(
    step: DenseStep, values: torch.Tensor, paths: int, random: torch.Generator
) -> torch.Tensor:
    """Choose the neurons that are most active for all synthetic images; Shape (paths)."""
    if type(step.activation).__name__ not in CUTTING:
        return torch.randperm(step.layer.out_features, generator=random)[:paths]
    sums = values @ step.layer.weight.T + step.layer.bias.abs()
    return sums.amin(0).argsort(descending=True)[:paths]


@dataclass
class Signal:
    """Channels that carry the image at some layer of the network.

    Args:
        channels: Shape (K), indices of the channels.
        gain, offset: Shape (K), a value is gain times intensity plus offset; 1 and 0 after the
            first convolution, so that factors of `beta` compound.
        centre: centre of the values, subtracted before the next activation; None: values are
            positive.
    """

    channels: torch.Tensor
    gain: torch.Tensor
    offset: torch.Tensor
    centre: float | None


def craft_convolutions(
    chain: Chain, layout: Layout, probes: torch.Tensor, crafting: MKOR, random: torch.Generator
) -> torch.Tensor:
    """Craft convolutions that carry the views of a layout, in place.

    Args:
        chain: the network.
        layout: the planned views.
        probes: Shape (M, *shape), synthetic images for which activations are computed.
        crafting: the spec.
        random: random generator that chooses channels and draws noise.

    Returns:
        Channels of the last convolution that carry the views; Shape (K).
    """
    with torch.no_grad():
        signal = _input_signal(chain, probes.shape[1])
        activations = probes if chain.normalisation is None else chain.normalisation(probes)
        for step, taps in zip(chain.convolutions, layout.taps, strict=True):
            channels = _choose_channels(step, len(taps), crafting, random)
            if crafting.hiding == "naive":
                step.layer.weight.zero_()
                _bias(step).zero_()
            else:
                _blend(step, signal.channels, channels, activations, crafting, random)
            signal = _set_kernels(step, taps, signal, channels, crafting.beta)
            activations = _run(step, activations)
        return signal.channels


def _input_signal(chain: Chain, colours: int) -> Signal:
    """Return the signal before the first convolution, which may be normalised."""
    first = chain.convolutions[0]
    gain, offset = torch.ones(colours), torch.zeros(colours)
    if chain.normalisation is not None:
        gain = 1 / chain.normalisation.deviation.flatten()
        offset = -chain.normalisation.mean.flatten() * gain
    centre = 0.5 if type(first.activation).__name__ in CENTRES else None
    return Signal(torch.arange(colours), gain, offset, centre)


def _choose_channels(
    step: ConvolutionStep, count: int, crafting: MKOR, random: torch.Generator
) -> torch.Tensor:
    """Choose the channels that carry the signal: the first ones, or random ones; Shape (K)."""
    if crafting.hiding == "naive":
        return torch.arange(count)
    return torch.randperm(step.layer.out_channels, generator=random)[:count]


def _blend(
    step: ConvolutionStep,
    incoming: torch.Tensor,
    outgoing: torch.Tensor,
    activations: torch.Tensor,
    crafting: MKOR,
    random: torch.Generator,
) -> None:
    """Set noise between the channels of signals and remove directions from other weights."""
    weight, bias = step.layer.weight.data, _bias(step)
    noise = crafting.noise * weight.std()
    between = weight.new_empty(len(outgoing), len(incoming), *weight.shape[2:])
    weight[outgoing[:, None], incoming] = noise * between.normal_(generator=random)
    bias[outgoing] = noise * bias.new_empty(len(outgoing)).normal_(generator=random)
    others = _complement(weight.shape[1], incoming)
    if crafting.quiet and len(others):
        rows = weight[outgoing[:, None], others].flatten(1)
        patches = _patches(step.layer, activations, others, random)
        quiet = _without(rows, _principal(patches, round(crafting.quiet * rows.shape[1])))
        weight[outgoing[:, None], others] = quiet.unflatten(1, (len(others), *weight.shape[2:]))


def _complement(count: int, chosen: torch.Tensor) -> torch.Tensor:
    left = torch.ones(count, dtype=torch.bool)
    left[chosen] = False
    return left.nonzero().flatten()


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
    samples, _, rows, columns = windows.shape[:4]
    places = [
        torch.randint(most, (PATCHES,), generator=random) for most in (samples, rows, columns)
    ]
    return windows[places[0], :, places[1], places[2]].flatten(1)


def _principal(patches: torch.Tensor, count: int) -> torch.Tensor:
    """Return the principal directions of patches, at most ``count``, as orthonormal rows."""
    _, lengths, directions = torch.linalg.svd(patches, full_matrices=False)
    return directions[:count][lengths[:count] > NEGLIGIBLE * lengths[0]]


def _without(rows: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Subtract the projections on the directions from the rows."""
    return rows - (rows @ directions.T) @ directions


def _set_kernels(
    step: ConvolutionStep, taps: Sequence[Tap], signal: Signal, channels: torch.Tensor, beta: float
) -> Signal:
    """Set the one-hot kernels, whose output is `beta` times the intensity, possibly centred."""
    layer, middle = step.layer, step.layer.kernel_size[0] // 2
    scales, shifts = _batch_norm(step, channels)
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
    if type(step.activation).__name__ in CENTRES:
        ones = torch.ones(len(taps))
        return Signal(channels, ones, 0 * ones, CENTRES[type(step.activation).__name__])
    return Signal(channels, torch.ones(len(taps)), torch.zeros(len(taps)), None)


def _bias(step: ConvolutionStep) -> torch.Tensor:
    """Return the bias of the convolution, checked by `gleak.crafting.mkor_views.plan_views`."""
    assert step.layer.bias is not None
    return step.layer.bias.data


def _of(taps: Iterable[Tap], name: str) -> torch.Tensor:
    return torch.tensor([getattr(tap, name) for tap in taps])


def _batch_norm(step: ConvolutionStep, channels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and shift of batch normalisation in these channels; Shape (K) each."""
    norm = step.norm
    if norm is None:
        return torch.ones(len(channels)), torch.zeros(len(channels))
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scales = norm.weight / (variance + norm.eps).sqrt()
    shifts = norm.bias - mean * scales
    return scales[channels], shifts[channels]


def _run(step: ConvolutionStep, activations: torch.Tensor) -> torch.Tensor:
    outputs: torch.Tensor = step.layer(activations)
    if step.norm is not None:
        outputs = step.norm(outputs)
    outputs = step.activation(outputs)
    return outputs if step.pool is None else step.pool(outputs)
