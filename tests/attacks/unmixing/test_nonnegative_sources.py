"""Exact unmixing of sparse nonnegative sources; the truth is drawn, so it is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.attacks.unmixing.mixtures import Mixture
from gleak.attacks.unmixing.nonnegative_sources import negative_share, unmix_nonnegative

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


def cosines(truth: Tensor, found: Tensor) -> Tensor:
    return torch.cosine_similarity(truth[:, :, None], found[:, None], dim=3)


@pytest.mark.parametrize("samples", [1, 2, 12])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_embeddings_are_exact_in_size_and_sign(samples: int, seed: int) -> None:
    truth, mixture = draw(samples, 0.8, seed)
    found, objective = unmixed(mixture, samples)
    order = cosines(truth, found).argmax(2)
    assert torch.equal(order.sort(1).values, torch.arange(samples).expand(2, samples))
    matched = found.take_along_dim(order[..., None], 1)
    torch.testing.assert_close(matched, truth, atol=1e-3, rtol=1e-3)
    assert objective.tolist() == [0, 0]


def test_embeddings_without_zeros_are_not_accepted() -> None:
    _, mixture = draw(12, 0.0, 0)
    found, objective = unmixed(mixture, 12)
    assert found.shape == (2, 12, FEATURES)
    assert objective.tolist() == [12, 12]


def test_sources_that_hardly_differ_are_not_accepted() -> None:
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
