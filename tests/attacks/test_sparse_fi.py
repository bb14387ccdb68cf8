"""Exact embeddings of a simulated batch; feature inversion is tested with `cpa_fi`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.artifacts.private import Private
from gleak.attacks.first_layer import output_slopes
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.relu_search import draw_samples
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

Make = Callable[..., tuple[Observation, Private]]
SPEC = parse("attack", "sparse_fi+inversion_iterations=2")
LAYER = "classifier.0"
MODEL = "vgg_small+width=16+hidden=64"


@pytest.fixture
def case(make_photo_case: Make) -> tuple[Observation, Tensor, Tensor]:
    """An observation, sparse embeddings, and their labels; the gradient is that of the layer."""
    seen, _ = make_photo_case(SPEC, "fedsgd+batch_size=6+victims=2", MODEL)
    width = seen.update[f"{LAYER}.weight"].shape[3]
    stream = torch.Generator().manual_seed(0)
    embeddings = (torch.randn(2, 6, width, generator=stream) - 0.8).relu()
    labels = torch.randint(seen.classes, (2, 6), generator=stream)
    dense = seen.model.get_submodule(LAYER)
    outputs = dense(embeddings).detach().flatten(0, 1)
    unused = torch.zeros(12, *seen.input_shape)
    slopes = output_slopes(seen, LAYER, unused, labels.flatten(), outputs)
    slopes = slopes.unflatten(0, (2, 6)) / 6
    layer = {
        f"{LAYER}.weight": (slopes.mT @ embeddings)[:, None],
        f"{LAYER}.bias": slopes.sum(1)[:, None],
    }
    return replace(seen, update={**seen.update, **layer}), embeddings, labels


def test_embeddings_and_the_label_of_each_are_exact(
    case: tuple[Observation, Tensor, Tensor],
) -> None:
    seen, embeddings, labels = case
    found = SPEC.reconstruct(seen)
    assert found.embeddings is not None
    recovered = torch.from_numpy(found.embeddings)
    order = torch.cdist(embeddings, recovered).argmin(2)
    assert torch.equal(order.sort(1).values, torch.arange(6).expand(2, 6))
    matched = recovered.take_along_dim(order[..., None], 1)
    torch.testing.assert_close(matched, embeddings, atol=1e-4, rtol=1e-4)
    assert torch.equal(torch.from_numpy(found.labels).take_along_dim(order, 1), labels)
    assert found.converged.all()


def test_in_noise_embeddings_are_approximate(
    case: tuple[Observation, Tensor, Tensor],
) -> None:
    seen, _, _ = case
    noisy = {name: value + 1e-3 * torch.randn_like(value) for name, value in seen.update.items()}
    found = SPEC.reconstruct(replace(seen, update=noisy))
    assert found.embeddings is not None
    assert found.embeddings.any(2).all()
    assert not found.converged.any()


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
def test_embeddings_of_both_signs_are_refused(activation: str) -> None:
    fields = {"dataset": "photos", "model": f"vgg_small+activation={activation}"}
    specs = [parse(level, text) for level, text in fields.items()]
    with pytest.raises(IncompatibleError, match="embeddings that are not negative"):
        SPEC.check(*specs, parse("client", "fedsgd"))


CLIENTS = [
    ("fedsgd", 1.0, True),
    ("fedavg+local_steps=5+local_lr=0.01", 1.0, False),
    ("fedsgd", 0.9, False),
]


@pytest.mark.parametrize(("client", "kept", "exact"), CLIENTS)
def test_only_embeddings_that_explain_the_gradient_are_exact(
    client: str, kept: float, exact: bool
) -> None:
    """Zeros alone do not show it: embeddings of local steps and of values not sent have them."""
    torch.manual_seed(0)
    features = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    network = nn.Sequential(*features, nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    image = draw_samples((3, 16, 16), torch.Generator().manual_seed(0))[:1]
    update = gleak.compute_update(network, image, torch.arange(1), client=client)
    sizes = torch.cat([value.abs().flatten() for value in update.values()])
    least = sizes[sizes > 0].quantile(1 - kept)
    sent = {name: value.where(value.abs() >= least, 0) for name, value in update.items()}
    found = gleak.attack(SPEC, network, sent, (3, 16, 16), client=client)
    assert found.converged == exact
