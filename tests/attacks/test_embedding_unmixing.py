"""Unmixing of embeddings that are known: sparse ones, as behind a ReLU of a trained network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
SPEC = parse("attack", "cpa_fi+iterations=400+lr=0.01+mi=1")
MODEL = "vgg_small+width=16+hidden=64"
CLIENT = "fedsgd+batch_size=4+victims=2"
LAYER = "classifier.0"


@pytest.fixture
def case(make_photo_case: Make) -> tuple[Observation, Tensor, Tensor]:
    """An observation, what derivatives A of its dense layer could be, and sparse embeddings."""
    seen, _ = make_photo_case(SPEC, CLIENT, MODEL)
    victims, _, neurons, width = seen.update[f"{LAYER}.weight"].shape
    stream = torch.Generator().manual_seed(0)
    output_gradients = torch.randn(victims, neurons, 4, generator=stream)
    embeddings = (torch.randn(victims, 4, width, generator=stream) - 0.8).relu()
    return seen, output_gradients, embeddings


def observed(seen: Observation, output_gradients: Tensor, embeddings: Tensor) -> Observation:
    layer = {
        f"{LAYER}.weight": (output_gradients @ embeddings)[:, None],
        f"{LAYER}.bias": output_gradients.sum(2)[:, None],
    }
    return replace(seen, update={**seen.update, **layer})


def test_sparse_embeddings_come_out_with_their_sign(
    case: tuple[Observation, Tensor, Tensor],
) -> None:
    seen, output_gradients, embeddings = case
    unmixed = observed(seen, output_gradients, embeddings)
    found = SPEC.unmix_embeddings(unmixed).values
    cosines = torch.cosine_similarity(embeddings[:, :, None], found[:, None], dim=3)
    assert (found >= 0).all()
    assert (cosines.amax(2) > 0.98).all()
    order = cosines.argmax(2)
    assert torch.equal(order.sort(1).values, torch.arange(4).expand(2, 4))
    sizes = found.norm(dim=2).take_along_dim(order, 1) / embeddings.norm(dim=2)
    assert ((sizes > 0.5) & (sizes < 3)).all()


def test_embeddings_that_are_alike_are_zero_but_for_one(
    case: tuple[Observation, Tensor, Tensor],
) -> None:
    seen, output_gradients, embeddings = case
    embeddings[1, 3] = embeddings[1, 0]
    found = SPEC.unmix_embeddings(observed(seen, output_gradients, embeddings)).values
    assert found.any(2).sum(1).tolist() == [4, 3]


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
def test_embeddings_of_both_signs_are_refused(activation: str) -> None:
    fit = parse("dataset", "photos"), parse("model", f"lenet+activation={activation}")
    with pytest.raises(IncompatibleError, match=f"activation={activation}; use activation=relu"):
        SPEC.check(*fit, parse("client", "fedsgd"))
