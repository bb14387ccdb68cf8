"""Exact embeddings of a simulated batch; feature inversion is tested with `cpa_fi`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.attacks.first_layer import output_slopes
from gleak.attacks.observation import Observation
from gleak.attacks.sparse_fi import negative_share, unmix_nonnegative
from gleak.attacks.unmixing.mixtures import Mixture
from gleak.attacks.unmixing.relu_search import draw_samples
from gleak.core.registry import parse
from tests.attacks.cases import Make

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
    outputs = seen.model.get_submodule(LAYER)(embeddings).detach().flatten(0, 1)
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


def test_in_noise_embeddings_are_approximate(case: tuple[Observation, Tensor, Tensor]) -> None:
    seen, _, _ = case
    noisy = {name: value + 1e-3 * torch.randn_like(value) for name, value in seen.update.items()}
    found = SPEC.reconstruct(replace(seen, update=noisy))
    assert found.embeddings is not None
    assert found.embeddings.any(2).all()
    assert not found.converged.any()


@pytest.mark.parametrize(
    ("client", "kept", "exact"),
    [
        ("fedsgd", 1.0, True),
        ("fedavg+local_steps=5+local_lr=0.01", 1.0, False),
        ("fedsgd", 0.9, False),
    ],
)
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


NEURONS, FEATURES = 64, 400


def draw(samples: int, zeros: float, seed: int) -> tuple[Tensor, Mixture]:
    """Draw embeddings with a share of zeros, and a single-precision gradient that mixes them."""
    stream = torch.Generator().manual_seed(seed)
    values = torch.rand(2, samples, FEATURES, generator=stream).double()
    embeddings = values * (torch.rand(values.shape, generator=stream) > zeros)
    gradients = torch.randn(2, NEURONS, samples, generator=stream).double()
    return embeddings, Mixture((gradients @ embeddings).float(), gradients.sum(2).float())


def unmixed(mixture: Mixture, samples: int) -> tuple[Tensor, Tensor]:
    """Return the embeddings scaled by their factors, and the objective."""
    found = unmix_nonnegative(mixture, samples)
    factors = found.rows @ mixture.bias.double()[..., None]
    return found.rows @ mixture.weight.double() / factors, found.objective


@pytest.mark.parametrize("samples", [1, 2, 12])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_embeddings_are_exact_in_size_and_sign(samples: int, seed: int) -> None:
    truth, mixture = draw(samples, 0.8, seed)
    found, objective = unmixed(mixture, samples)
    order = torch.cosine_similarity(truth[:, :, None], found[:, None], dim=3).argmax(2)
    assert torch.equal(order.sort(1).values, torch.arange(samples).expand(2, samples))
    matched = found.take_along_dim(order[..., None], 1)
    torch.testing.assert_close(matched, truth, atol=1e-3, rtol=1e-3)
    assert objective.tolist() == [0, 0]


def test_embeddings_without_zeros_or_that_hardly_differ_are_not_accepted() -> None:
    _, mixture = draw(12, 0.0, 0)
    found, objective = unmixed(mixture, 12)
    assert found.shape == (2, 12, FEATURES)
    assert objective.tolist() == [12, 12]
    truth, _ = draw(3, 0.8, 0)
    truth[:, 2] = truth[:, 1] * (1 + 1e-9 * torch.rand(FEATURES))
    gradients = torch.randn(2, NEURONS, 3, generator=torch.Generator().manual_seed(0)).double()
    found, objective = unmixed(Mixture(gradients @ truth, gradients.sum(2)), 3)
    assert found.shape == truth.shape
    assert (objective >= 1).all()


def test_the_share_of_negative_values_does_not_depend_on_the_sign() -> None:
    sources = torch.tensor([[3.0, 0.0, 4.0], [-12.0, 5.0, 0.0], [12.0, -5.0, 0.0]])
    torch.testing.assert_close(negative_share(sources), torch.tensor([0.0, 5 / 13, 5 / 13]))
    torch.testing.assert_close(negative_share(-sources), negative_share(sources))
