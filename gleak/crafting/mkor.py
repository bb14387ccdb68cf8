"""MKOR: dense layers that separate classes, and convolutions that copy the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.base import CraftingSpec
from gleak.crafting.mkor_views import Layout, craft_convolutions, plan_views, view_arrays
from gleak.data.base import DatasetSpec
from gleak.models.base import ACTIVATIONS, ModelSpec
from gleak.models.chain import Chain, DenseStep, decompose
from gleak.models.layer_search import features_before
from gleak.models.planted import PlantedSpec
from gleak.runtime.seeding import stream, torch_stream

PARALLEL_PATHS = 4
CUTTING = ("ReLU", "LeakyReLU")
"""Activations that are (almost) zero for negative inputs, so that neurons are crafted in pairs."""
SLOPES = (1.0, 1.3, 1.6)
"""Exponents by which amplitudes fall with frequency; about 1 in photographs."""
OF_EACH = 4
GREYS = 4
LINEAR = ("ReLU", "Identity", "LeakyReLU")
"""Activations that are linear for positive inputs."""
CURVED_LEVELS = 33
FAINTEST = 1e-6
"""Least difference between black and white, relative to the largest feature, in float32."""


@register("mkor")
class MKORCrafting(CraftingSpec):
    """Maximum knowledge orthogonality reconstruction: the server's part (MKOR section 3).

    Each class has separate neurons in every dense layer, so that with the loss ``nll_raw`` the
    gradient of the first dense layer contains the features of each class separately (Eq. 9).
    Convolutions with one-hot kernels make features that are windows of the image (see
    `gleak.crafting.mkor_views`).

    ``hiding=naive`` is Figures 1 and 2: all other weights are zero. ``inconspicuous`` is Eq. 10 to
    13 and 20: neurons form pairs in which one is alpha < 0 times the other, channels and neurons
    are shuffled, weights between those that carry a signal are noise, all others are unchanged. As
    printed this does not suffice, and two things are ours. Eq. 12 keeps the weights into a class's
    neuron from neurons of no class, which deactivate it for about half of the images: we choose
    neurons that are active for synthetic images, and give a path its row's largest weight. Eq. 20
    keeps the weights from channels without a signal, which blur the image unless ``beta`` is 4 or
    more and activations explode: with ``quiet`` that share of their directions is removed, namely
    those along which the activations of synthetic images are largest, 1,000 at most.

    ``sink`` is our remedy for cross-entropy, for which the softmax almost cancels the signal of a
    batch with one sample of each class: the bias of one class's logit is raised, which reveals the
    sum over the batch to the attacker, who then subtracts the contribution of the softmax (see the
    attack `mkor`). That class itself cannot be recovered.

    Dropout is handled by parallel paths, batch normalisation by weights and biases that invert it;
    activations only have to be increasing.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), section 3"

    hiding: Literal["inconspicuous", "naive"] = parameter(
        "inconspicuous", "naive: all other weights are zero", source="MKOR sections 3.2.3 and 3.4.3"
    )
    directions: int | None = parameter(
        None,
        "downsampling convolutions, from the last, that shift in four directions; none: all",
        source="MKOR section 3.4.2: 3 in VGG-16",
        ge=0,
    )
    alpha: float = parameter(-1.0, "factor within pairs of rows", source="MKOR Eq. 10", lt=0)
    beta: float = parameter(1.0, "weight of a one-hot kernel", source="MKOR Eq. 20", gt=0)
    noise: float = parameter(
        1e-4, "deviation of the noise, relative to the layer's weights", source="MKOR Eq. 12", ge=0
    )
    cover: float = parameter(
        0.0,
        "deviation of noise added to every weight at the end, relative to the layer's weights",
        source="MKOR sections 3.2.3 and 3.4.3",
        ge=0,
    )
    quiet: float = parameter(
        0.5,
        "share of directions removed from the weights of other channels",
        source="ours",
        ge=0,
        le=1,
    )
    paths: int | None = parameter(
        None, "paths to each class; none: 4 with dropout, else 1", source="ours", ge=1
    )
    sink: float = parameter(
        0.0, "added to the bias of one class", unit="logit", source="ours", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(f"crafting {self} copies images, not {dataset.modality} data")
        if isinstance(model, PlantedSpec):
            raise IncompatibleError(
                f"crafting {self} copies images through layers in a sequence, and model {model} "
                f"adds what its planted layer computes to the samples; use model {model.model}"
            )
        if model.first_layer == "dense":
            raise IncompatibleError(
                f"crafting {self} copies images through convolutions, but model {model} begins "
                "with a dense layer, whose gradient reveals them anyway; use attack cpa or aono"
            )
        if model.hidden_dense is False:
            raise IncompatibleError(
                f"crafting {self} needs two dense layers or more, but model {model} has one; "
                "use lenet5, vgg_small or vgg16"
            )
        if not model.has_dense_bias:
            raise IncompatibleError(
                f"crafting {self} changes the biases of dense layers, and those of model {model} "
                "have none; use lenet5, vgg_small or vgg16"
            )
        if getattr(model, "precode", 0):
            raise IncompatibleError(
                f"crafting {self} does not support the variational block of model {model}; "
                "use precode=0"
            )
        classes = dataset.classes or 0
        paths = classes * self.paths_per_class(getattr(model, "dropout", 0.0))
        activation = ACTIVATIONS.get(getattr(model, "activation", ""))
        cut = self.hiding != "naive" and activation in CUTTING
        for number, width in enumerate(getattr(model, "hidden_layers", [])):
            needed = paths * (2 if cut and number == 0 else 1)
            if width < needed:
                raise IncompatibleError(
                    f"crafting {self}: {classes} classes need {needed} neurons in dense layer "
                    f"{number + 1}, but model {model} has {width}"
                )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that the network is a supported sequence of layers."""
        self._plan(network, shape)

    def _plan(self, network: torch.nn.Module, shape: Sequence[int]) -> tuple[Chain, Layout]:
        """Decompose a network into layers and plan the views of its channels."""
        chain = decompose(network)
        if not chain.convolutions or not chain.dense:
            raise IncompatibleError("it has no convolutions before dense layers")
        layout = plan_views(chain.convolutions, shape, self.directions)
        probe = next(network.parameters()).new_zeros(1, *shape)
        with torch.no_grad():
            inputs = features_before(network, chain.dense[0].name)(probe).shape[1]
        channels, values = chain.convolutions[-1].layer.out_channels, layout.windows.values
        if inputs != channels * values**2:
            raise IncompatibleError(
                f"its first dense layer has {inputs} inputs, but the convolutions give "
                f"{channels} x {values} x {values}; choose images of the size it was designed for"
            )
        check_paths(chain.dense, self)
        return chain, layout

    def paths_per_class(self, dropout: float) -> int:
        return self.paths or (PARALLEL_PATHS if dropout else 1)

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Craft convolutions and dense layers.

        Returns:
            The secret: ``rows`` and ``pairs`` (see `ClassPaths`), ``gains`` (see `path_gains`),
            ``kept``, Shape (1), the probability that a path is not dropped, ``chances``,
            Shape (classes), the mean softmax on synthetic images, and the arrays of
            `gleak.crafting.mkor_views.view_arrays` and `grey_responses`.
        """
        chain, layout = self._plan(network.requires_grad_(False), shape)
        probes, random = synthetic_images(shape, seed), torch_stream(seed, "crafting")
        naive = self.hiding == "naive"
        channels = craft_convolutions(
            chain, layout, probes, random, naive, beta=self.beta, noise=self.noise, quiet=self.quiet
        )
        features_of = features_before(network, chain.dense[0].name)
        paths = craft_classes(chain.dense, features_of(probes), self, random)
        weights = [step.layer.weight for step in chain.convolutions]
        for weight in [*weights, *(step.layer.weight for step in chain.dense)]:
            noise = weight.new_empty(weight.shape).normal_(generator=random)
            weight.add_(self.cover * weight.std() * noise)
        if self.sink:
            sink = int(stream(seed, "sink").integers(len(paths.rows)))
            chain.dense[-1].layer.bias[sink] += self.sink
        return {
            **view_arrays(layout, channels.numpy()),
            **grey_responses(network, chain, channels, shape),
            "rows": paths.rows.numpy(),
            "gains": path_gains(chain.dense, features_of(probes), paths.rows).numpy(),
            "pairs": np.array([int(paths.pairs)]),
            "kept": np.array([np.prod([1 - step.dropout for step in chain.dense])]),
            "chances": network(probes).softmax(1).mean(0).numpy(),
        }


class ClassPaths(NamedTuple):
    """Neurons of the first dense layer whose gradients reveal each class, Shape (classes, M).

    ``pairs`` is True if only one of two neighbours in ``rows`` is active for a sample.
    """

    rows: torch.Tensor
    pairs: bool


def needs_pairs(activation: torch.nn.Module, crafting: MKORCrafting) -> bool:
    """Return True if each path begins with two neurons, one of which is active for any sample."""
    return crafting.hiding != "naive" and type(activation).__name__ in CUTTING


def craft_classes(
    steps: Sequence[DenseStep],
    features: torch.Tensor,
    crafting: MKORCrafting,
    random: torch.Generator,
) -> ClassPaths:
    """Create one or several paths from the first dense layer to each class, in place.

    Features are the inputs of the first layer for synthetic images, Shape (M, E).
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
        layer, width = first.layer, 2 if pairs else 1
        if crafting.hiding == "naive":
            rows = torch.arange(classes * paths)[:, None]
            layer.weight[rows] = 1 / layer.in_features
        else:
            chosen = torch.randperm(layer.out_features, generator=random)[: width * classes * paths]
            rows = chosen.view(-1, width)
        if pairs:
            kept, mirrored = rows.unbind(1)
            layer.weight[mirrored] = crafting.alpha * layer.weight[kept]
            layer.bias[mirrored] = crafting.alpha * layer.bias[kept]
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
    """Compute the derivative of each class's logit by the pre-activations of its neurons, the rows.

    It is averaged over the inputs of the first layer for synthetic images, Shape (M, E), and with a
    ReLU that where the neurons are active. Shape (classes, K), as the rows.
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


def check_paths(steps: Sequence[DenseStep], crafting: MKORCrafting) -> None:
    """Check that there are dense layers with biases and enough neurons for all classes."""
    first = steps[0]
    for step in steps:
        if step.layer.bias is None:
            raise IncompatibleError(f"dense layer {step.name!r} has no bias")
    paths = steps[-1].layer.out_features * crafting.paths_per_class(first.dropout)
    pairs = needs_pairs(first.activation, crafting)
    if len(steps) < 2:
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


def _extend(
    step: DenseStep,
    carriers: torch.Tensor,
    values: torch.Tensor,
    outputs: torch.Tensor | None,
    crafting: MKORCrafting,
    random: torch.Generator,
) -> torch.Tensor:
    """Extend each path by one more layer; return the neurons of the paths in it, Shape (paths).

    ``carriers`` are those before it, Shape (paths, 1 or 2), ``values`` its inputs for synthetic
    images, Shape (M, inputs). It chooses the neurons if there are no ``outputs``, Shape (paths).
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
    if outputs is not None:
        chosen = outputs
        layer.bias.abs_()
    elif type(step.activation).__name__ in CUTTING:
        # the neurons that are most active for all synthetic images
        sums = values @ layer.weight.T + layer.bias.abs()
        chosen = sums.amin(0).argsort(descending=True)[:paths]
        layer.bias[chosen] = layer.bias[chosen].abs()
    else:
        chosen = torch.randperm(layer.out_features, generator=random)[:paths]
        layer.bias[chosen] = layer.bias[chosen].abs()
    layer.weight[chosen[:, None], carriers] = largest[chosen][:, None].expand(carriers.shape)
    return chosen


def synthetic_images(shape: Sequence[int], seed: int) -> torch.Tensor:
    """Draw random fields with spectra like photographs, and grey images; Shape (M, *shape)."""
    random = torch_stream(seed, "made-up images")
    clouds = [_cloud(shape, slope, random) for slope in SLOPES for _ in range(OF_EACH)]
    greys = torch.linspace(0, 1, GREYS)[:, None, None, None].expand(GREYS, *shape)
    return torch.cat([torch.stack(clouds), greys])


def _cloud(shape: Sequence[int], slope: float, random: torch.Generator) -> torch.Tensor:
    colours, height, width = shape
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    amplitudes = frequencies.clamp(min=1 / height) ** -slope
    noise = torch.randn(1 + colours, height, width, generator=random)
    fields = torch.fft.irfft2(torch.fft.rfft2(noise) * amplitudes, s=(height, width))
    fields = fields / fields.std((1, 2), keepdim=True)
    brightness, contrast = torch.rand(2, generator=random)
    mixed = 0.8 * fields[:1] + 0.6 * fields[1:]
    return (0.2 + 0.6 * brightness + (0.1 + 0.2 * contrast) * mixed).clamp(0, 1)


def grey_responses(
    network: torch.nn.Module, chain: Chain, channels: torch.Tensor, shape: Sequence[int]
) -> dict[str, np.ndarray]:
    """Compute the features of grey images, by which a server converts features into intensities.

    The mapping from intensities to features (activations, batch normalisation, unchanged weights,
    padding) is thus inverted without being modelled. Channels, Shape (K), are those of the last
    convolution that carry views.

    Returns:
        ``levels``, Shape (L), the intensities; ``responses``, Shape (L, K, values, values).

    Raises:
        IncompatibleError: black and white images have the same features.
    """
    with torch.no_grad():
        linear = all(type(step.activation).__name__ in LINEAR for step in chain.convolutions)
        levels = torch.linspace(0, 1, 2 if linear else CURVED_LEVELS)
        features_of = features_before(network, chain.dense[0].name)
        greys = levels[:, None, None, None].expand(-1, *shape)
        features = torch.cat([features_of(grey) for grey in greys.split(1)])
        count = chain.convolutions[-1].layer.out_channels
        side = round((features.shape[1] / count) ** 0.5)
        maps = features.unflatten(1, (count, side, side))[:, channels]
        if (maps[-1] - maps[0]).abs().max() <= FAINTEST * maps.abs().max():
            raise IncompatibleError(
                f"after {len(chain.convolutions)} convolutions black and white images have the "
                "same features; choose a larger beta or an activation that does not saturate"
            )
        return {"levels": levels.numpy(), "responses": maps.numpy()}
