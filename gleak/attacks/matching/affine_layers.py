"""Layers with trained parameters that are affine in their inputs and in their parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

from gleak.attacks.matching import kernels
from gleak.core.lazy import torch

FEW_POSITIONS = 32
"""Positions of an image below which oneDNN, which copies the weight in each call, is slower."""
LARGE_CONVOLUTION = 2**23
"""Multiplications of a sample from which, on a CPU, each victim's gradient of the weight is a call
of its own: then oneDNN is slower for groups."""
FEW_PATCHES = 2**15
"""Values of a sample's patches up to which, on a CPU, their matrix products are faster than oneDNN:
for LeNet's convolutions two to four times."""


@dataclass(frozen=True)
class AffineLayer(ABC):
    """A layer that maps a batch to a batch, affine in inputs and in weight and bias.

    Its derivative by its parameters along a direction has the form of the layer itself. All victims
    share the layer, and each has a direction of its own.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def suited(self, inputs: torch.Tensor) -> AffineLayer:
        """Return the form of the layer that is fastest for inputs of this shape."""
        return self

    def taken(self, inputs: torch.Tensor) -> torch.Tensor:
        """Arrange inputs as the layer's other methods take them."""
        return inputs

    def given(self, slopes: torch.Tensor) -> torch.Tensor:
        """Apply the adjoint of `taken`."""
        return slopes

    @abstractmethod
    def stacked(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> AffineLayer:
        """Return layers with weights and biases of V victims, as one layer for split values."""

    def split(self, rows: torch.Tensor, victims: int) -> torch.Tensor:
        """Arrange rows, Shape (V * N, ...), as stacked layers take them."""
        return rows.unflatten(0, (victims, -1))

    def by_victim(self, split: torch.Tensor, victims: int) -> torch.Tensor:
        """Return a view of split values; Shape (V, N, ...)."""
        return split

    @abstractmethod
    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs, as a new tensor."""

    @abstractmethod
    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the outputs' derivative along a tangent of the inputs."""

    @abstractmethod
    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Apply the adjoint of `linear`, whose inputs have this shape, as a new tensor."""

    @abstractmethod
    def gradients(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int
    ) -> list[torch.Tensor]:
        """Compute each victim's gradients of weight and bias, if any, from split values."""


@dataclass(frozen=True)
class DenseLayer(AffineLayer):
    """A dense layer.

    Args:
        least_rows: on a CPU a product of fewer rows is computed as one of so many. With
            `kernels.LEAST_ROWS` a sample's outputs do not depend on how many others are computed
            with it.
    """

    least_rows: int = 0

    def stacked(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> StackedDense:
        return StackedDense(weight, bias)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        return outputs if self.bias is None else outputs + self.bias

    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._product(inputs, self.weight.mT)

    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return self._product(outputs, self.weight)

    def gradients(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int
    ) -> list[torch.Tensor]:
        rows = grad_outputs.flatten(1, -2)
        weight = rows.mT @ inputs.flatten(1, -2)
        return [weight] if self.bias is None else [weight, rows.sum(1)]

    def _product(self, rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        missing = self.least_rows - len(rows)
        if missing <= 0 or not kernels.on_cpu(rows):
            return rows @ matrix
        return (torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) @ matrix)[: len(rows)]


@dataclass(frozen=True)
class StackedDense(DenseLayer):
    """Dense layers of V victims, with weights (V, outputs, inputs) and biases (V, outputs)."""

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        bias = 0 if self.bias is None else _broadcast(self.bias[:, None], inputs)
        return self.linear(inputs) + bias

    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ _broadcast(self.weight.mT, inputs)

    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return outputs @ _broadcast(self.weight, outputs)


def _broadcast(matrices: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Give matrices of V victims the number of dimensions of rows, Shape (V, N, ..., features)."""
    return matrices[(slice(None), *[None] * (rows.ndim - matrices.ndim))]


Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvolutionLayer(AffineLayer):
    """A convolution with zero padding; its weight has the layout that `kernels` chooses.

    The convolutions of V victims are one, with the channels of each victim as a group: for a small
    image, calling a convolution takes as long as computing it.

    Args:
        stride, padding, dilation, groups: as in `nn.Conv2d`.
    """

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def suited(self, inputs: torch.Tensor) -> AffineLayer:
        if not kernels.on_cpu(inputs):
            return self
        images = inputs.shape[1:]
        if images not in self._forms:
            self._forms[images] = self._form(images)
        return self._forms[images]

    @cached_property
    def _forms(self) -> dict[torch.Size, AffineLayer]:
        return {}

    def _form(self, images: torch.Size) -> AffineLayer:
        outputs, _, *kernel = self.weight.shape
        settings = (self.stride, self.padding, self.dilation)
        places, size = patch_places(images, (kernel[0], kernel[1]), *settings)
        if self.groups > 1 or len(places) > FEW_PATCHES:
            return self
        bias = None if self.bias is None else self.bias[None, :, None]
        weight = self.weight.reshape(1, outputs, -1)
        return PatchedConvolution(weight, bias, places, self.weight.shape, images, size)

    def stacked(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Self:
        bias = None if bias is None else bias.flatten()
        groups = len(weight) * self.groups
        return replace(self, weight=weight.flatten(0, 1), bias=bias, groups=groups)

    def split(self, rows: torch.Tensor, victims: int) -> torch.Tensor:
        """Put the channels of all victims beside each other; Shape (N, V * C, H, W)."""
        if victims == 1:
            return rows
        split = rows.unflatten(0, (victims, -1))
        if not kernels.on_cpu(rows):
            return split.transpose(0, 1).flatten(1, 2)
        return split.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)

    def by_victim(self, split: torch.Tensor, victims: int) -> torch.Tensor:
        return split.unflatten(1, (victims, -1)).transpose(0, 1)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._convolve(inputs, self.bias)

    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._convolve(inputs, None)

    def _convolve(self, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if _onednn_takes(inputs):
            settings = (self.padding, self.stride, self.dilation, self.groups)
            return torch.mkldnn_convolution(inputs, self.weight, bias, *settings)
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return torch.nn.functional.conv2d(inputs, self.weight, bias, *settings)

    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if _onednn_takes(outputs) and self._reflected is not None:
            return self._reflected.linear(outputs)
        shape = torch.Size([len(outputs), self.groups * self.weight.shape[1], *shape[2:]])
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return torch.nn.grad.conv2d_input(shape, self.weight, outputs, *settings)  # type: ignore[attr-defined]

    @cached_property
    def _reflected(self) -> ConvolutionLayer | None:
        """The adjoint as a convolution, if the stride is 1."""
        reach = zip(self.dilation, self.weight.shape[2:], self.padding, strict=True)
        across, along = (dilation * (side - 1) - padding for dilation, side, padding in reach)
        if self.stride != (1, 1) or min(across, along) < 0:
            return None
        grouped = self.weight.unflatten(0, (self.groups, -1))
        weight = grouped.transpose(1, 2).flatten(0, 1).flip(2, 3)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return replace(self, weight=weight, bias=None, padding=(across, along))

    def gradients(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int
    ) -> list[torch.Tensor]:
        small = self.weight.numel() * grad_outputs.shape[2:].numel() < LARGE_CONVOLUTION
        if small or not kernels.on_cpu(inputs):
            weight = self._weight_gradient(inputs, grad_outputs, victims)
        else:
            pairs = zip(inputs.chunk(victims, 1), grad_outputs.chunk(victims, 1), strict=True)
            weight = torch.cat([self._weight_gradient(*own) for own in pairs])
        if self.bias is None:
            return [weight]
        return [weight, self.by_victim(grad_outputs, victims).contiguous().sum((3, 4)).sum(1)]

    def _weight_gradient(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int = 1
    ) -> torch.Tensor:
        outputs, *rest = self.weight.shape
        settings = (self.stride, self.padding, self.dilation, self.groups * victims)
        gradient = torch.nn.grad.conv2d_weight(  # type: ignore[attr-defined]
            inputs, (victims * outputs, *rest), grad_outputs, *settings
        )
        return gradient.contiguous().unflatten(0, (victims, -1))


@dataclass(frozen=True)
class PatchedConvolution(AffineLayer):
    """A convolution as a product of its weight with the patches that it sees, (M, C kh kw, h w).

    Weight and bias have the Shapes (1, O, C kh kw) and (1, O, 1), or a first axis of V victims.

    Args:
        places: see `patch_places`.
        shape: of the weight, (O, C, kh, kw).
        images: shape of an input, (C, H, W).
        size: of an output, (h, w).
    """

    places: torch.Tensor
    shape: torch.Size
    images: torch.Size
    size: Pair

    def split(self, rows: torch.Tensor, victims: int) -> torch.Tensor:
        return rows

    def by_victim(self, split: torch.Tensor, victims: int) -> torch.Tensor:
        return split.unflatten(0, (victims, -1))

    def taken(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = torch.nn.functional.pad(inputs.flatten(1), (0, 1))
        patches = flat.index_select(1, self.places)
        return patches.view(len(inputs), self.weight.shape[2], -1)

    def given(self, slopes: torch.Tensor) -> torch.Tensor:
        sums = slopes.new_zeros(len(slopes), self.images.numel() + 1)
        sums.scatter_add_(1, self.places.expand(len(slopes), -1), slopes.view(len(slopes), -1))
        return sums[:, :-1].view(-1, *self.images)

    def stacked(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Self:
        bias = None if bias is None else bias[:, :, None]
        return replace(self, weight=weight.flatten(2), bias=bias)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return self.linear(inputs)
        bias, weight = (_for_rows(value, len(inputs)) for value in (self.bias, self.weight))
        return torch.baddbmm(bias, weight, inputs).view(len(inputs), -1, *self.size)

    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = torch.bmm(_for_rows(self.weight, len(inputs)), inputs)
        return outputs.view(len(inputs), -1, *self.size)

    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return torch.bmm(_for_rows(self.weight.mT, len(outputs)), outputs.flatten(2))

    def gradients(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int
    ) -> list[torch.Tensor]:
        slopes = grad_outputs.flatten(2)
        weight = _by_victim(torch.bmm(slopes, inputs.mT), victims).view(victims, *self.shape)
        return [weight] if self.bias is None else [weight, _by_victim(slopes.sum(2), victims)]


def _for_rows(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Repeat values of one or of V victims for each of so many rows."""
    if len(values) == 1:
        return values.expand(rows, -1, -1)
    return values if len(values) == rows else values.repeat_interleave(rows // len(values), 0)


def _by_victim(values: torch.Tensor, victims: int) -> torch.Tensor:
    """Sum values of the samples of each victim; Shape (V * N, ...) to (V, ...)."""
    return values if len(values) == victims else values.unflatten(0, (victims, -1)).sum(1)


@lru_cache
def patch_places(
    images: torch.Size, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[torch.Tensor, Pair]:
    """Return the place in a flat image of every value of its patches, and the size of the outputs.

    Shape (C kh kw h w); padding has the place after the last one.
    """
    count, (across, along) = images.numel(), padding
    numbers = torch.arange(count, dtype=torch.double).view(1, *images)  # exact, as for `unfold`
    padded = torch.nn.functional.pad(numbers, (along, along, across, across), value=count)
    found = torch.nn.functional.unfold(padded, kernel, dilation, 0, stride)
    reach = (d * (side - 1) + 1 for d, side in zip(dilation, kernel, strict=True))
    free = zip(padded.shape[2:], reach, stride, strict=True)
    height, width = ((side - used) // step + 1 for side, used, step in free)
    return found.long().flatten(), (height, width)


def _onednn_takes(images: torch.Tensor) -> bool:
    """Return True if oneDNN can convolve these images.

    torch calls it for large batches only; a single small image takes up to twice as long without.
    """
    return (
        kernels.on_cpu(images)
        and images.shape[2:].numel() >= FEW_POSITIONS
        and images.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    )


@dataclass(frozen=True)
class NormalisationLayer(AffineLayer):
    """Batch norm by running mean and deviation; all values have the Shape (C, 1, 1)."""

    bias: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor

    @cached_property
    def _scale(self) -> torch.Tensor:
        return self.weight / self.deviation

    @cached_property
    def _shift(self) -> torch.Tensor:
        return torch.addcmul(self.bias, self.mean, self._scale, value=-1)

    def stacked(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Self:
        assert bias is not None
        shape = (len(weight), 1, -1, 1, 1)
        return replace(self, weight=weight.view(shape), bias=bias.view(shape))

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self._shift, inputs, self._scale)

    def linear(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self._scale

    def adjoint(self, outputs: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return outputs * self._scale

    def gradients(
        self, inputs: torch.Tensor, grad_outputs: torch.Tensor, victims: int
    ) -> list[torch.Tensor]:
        products = (inputs - self.mean).mul_(grad_outputs)
        weight = products.sum((1, 3, 4)) / self.deviation.flatten()
        return [weight, grad_outputs.sum((1, 3, 4))]


def affine_layer(module: torch.nn.Module, least_rows: int = 0) -> AffineLayer | None:
    """Return a layer, in evaluation mode, in its affine form; None if it has none.

    Args:
        module: the layer.
        least_rows: see `DenseLayer`.
    """
    layer: Any = module
    kind = type(module)
    if kind is torch.nn.BatchNorm2d and layer.affine and layer.running_mean is not None:
        deviation = (layer.running_var + layer.eps).sqrt()
        values = (layer.weight.detach(), layer.bias.detach(), layer.running_mean, deviation)
        return NormalisationLayer(*(value[:, None, None] for value in values))
    if kind not in (torch.nn.Linear, torch.nn.Conv2d):
        return None
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    if kind is torch.nn.Linear:
        return DenseLayer(weight, bias, least_rows)
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    weight = weight.contiguous(memory_format=kernels.layout(weight))
    return ConvolutionLayer(weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
