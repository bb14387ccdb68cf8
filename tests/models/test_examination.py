"""Networks that are refused before any work, with the name of a layer and a remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.core.errors import IncompatibleError
from gleak.models.examination import check_searchable, check_trainable
from tests.zoo import CLASSES, NETWORKS, SHAPE


class Layer(nn.Module):
    """Layer that applies a function of itself and its inputs."""

    def __init__(self, compute: Callable[[Layer, Tensor], object]) -> None:
        super().__init__()
        self.compute, self.generator, self.inner = compute, torch.Generator(), nn.Identity()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, inputs: Tensor) -> object:
        return self.compute(self, inputs)


def counting(layer: Layer, inputs: Tensor) -> Tensor:
    layer.count += 1
    return inputs * layer.count


def growing(layer: Layer, inputs: Tensor) -> Tensor:
    layer.scale.data += 1
    return inputs * layer.scale


def remembering_draws(layer: Layer, inputs: Tensor) -> Tensor:
    """Draw in training mode only, and keep a value that changes evaluation mode."""
    if layer.training:
        layer.count += torch.rand(())
    return inputs + layer.count


REFUSED: dict[str, tuple[Callable[[Layer, Tensor], object], str]] = {
    "tuple": (lambda _, x: (x, x), "returns a tuple, not a tensor of logits; wrap"),
    "dictionary": (lambda _, x: {"logits": x}, "returns a dict, not a tensor of logits; wrap"),
    "another number of logits": (lambda _, x: x[:, :2], r"\(3, 2\) .*expected \(3, 4\)"),
    "NaN": (lambda _, x: (x - 99).log(), r"'2.0' \(Layer\) returns values that are not finite"),
    "NaN in derivatives": (lambda _, x: (x - x).sqrt() + x, "gradient of .*not finite"),
    "changes a parameter": (growing, r"'2.0' \(Layer\) changes its parameter 'scale'"),
    "changes with every pass": (counting, r"'2.0' \(Layer\) returns different values"),
    "draws in evaluation mode": (
        lambda _, x: functional.dropout(x, 0.5),
        r"'2.0' \(Layer\) draws random numbers in evaluation mode.*training=self.training",
    ),
    "draws from numpy": (
        lambda _, x: x + float(np.random.default_rng().random()),
        r"'2.0' \(Layer\) returns different values.*by torch's functions",
    ),
    "draws from a generator of its own": (
        lambda layer, x: x + torch.rand((), generator=layer.generator),
        r"'2.0' \(Layer\) returns different values",
    ),
    "keeps what it draws": (remembering_draws, r"'2.0' \(Layer\) returns different values"),
    "raises": (lambda _, x: x @ x, r"'2.0' \(Layer\) does not accept samples of shape \(3, 8, 8\)"),
    "vectorised by the network": (
        lambda layer, x: torch.func.vmap(layer.inner)(x),
        r"'2.0.inner' \(Identity\) runs inside of torch.func.vmap.*; give it the whole batch",
    ),
    "detached": (lambda _, x: x.detach(), "the logits depend on no trained parameter"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_layer_and_the_remedy_are_named(case: str) -> None:
    compute, message = REFUSED[case]
    layers = nn.Flatten(), nn.Linear(192, CLASSES), nn.Sequential(Layer(compute))
    with pytest.raises(IncompatibleError, match=message):
        check_trainable(nn.Sequential(*layers), SHAPE, CLASSES)


class Looked(nn.Module):
    """A dense layer, and an embedding of a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.table = nn.Linear(192, CLASSES), nn.Embedding(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs.flatten(1)) + self.table((inputs[:, 0, 0, 0] * 7.99).long())


def test_a_layer_that_raises_outside_of_the_samples_range_is_refused_by_searches_only() -> None:
    check_trainable(Looked(), SHAPE, CLASSES)
    with pytest.raises(IncompatibleError, match=r"'table' \(Embedding\) does not accept .*clamp"):
        check_searchable(Looked(), SHAPE)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Flatten(), nn.LazyLinear(CLASSES)], r"parameter 1\.weight is not initialised"),
        (
            [nn.Flatten(), nn.Linear(192, 6), nn.Linear(6, CLASSES).double()],
            r"1\.bias in torch.float32 and 2\.bias in",
        ),
        (
            [nn.Flatten(), nn.Linear(192, CLASSES).requires_grad_(False)],
            "no parameter that requires a gradient",
        ),
        (
            [nn.Conv2d(3, 4, 3), nn.CrossMapLRN2d(2), nn.Flatten(), nn.Linear(144, CLASSES)],
            r"layer '1' \(CrossMapLRN2d\) cannot be differentiated",
        ),
    ],
)
def test_layers_of_torch_that_cannot_be_trained_are_named(
    layers: list[nn.Module], message: str
) -> None:
    with pytest.raises(IncompatibleError, match=message):
        check_trainable(nn.Sequential(*layers), SHAPE, CLASSES)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_examination_changes_nothing() -> None:
    for build in NETWORKS.values():
        examined = build().train()
        before = {name: value.clone() for name, value in examined.state_dict().items()}
        check_trainable(examined, SHAPE, CLASSES)
        assert all(layer.training for layer in examined.modules())
        state = examined.state_dict()
        assert all(torch.equal(state[name], value) for name, value in before.items())
