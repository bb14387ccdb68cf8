"""Unmixing of embeddings followed by inversion; each tested with known results of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.artifacts.private import Private
from gleak.attacks.cpa_fi import CPAFI
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.mixtures import Sources
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.layer_search import features_before
from tests.attacks.cases import Make

NAMES = ["cpa_fi", "cpa_fi_gm"]
SHORT = "inversion_iterations=60+tv=0"
CELL = {
    "model": "vgg_small+width=8+hidden=8+activation=tanh",
    "training": "untrained",
    "client": "fedsgd+batch_size=2+victims=3",
}
LAYER = "classifier.0"


@pytest.fixture
def unmixed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Private], None]:
    """Let the unmixing find the true embeddings in reverse order, but for victim 1's first."""

    def know(truth: Private) -> None:
        values = torch.from_numpy(truth.embeddings[:, ::-1].copy())
        values[1, 1] = 0
        none = torch.zeros(len(values))
        sources = Sources(values, values[..., :1], none.long(), none)
        monkeypatch.setattr(CPAFI, "unmix_embeddings", lambda spec, observation: sources)

    return know


@pytest.mark.parametrize("name", NAMES)
def test_images_have_the_unmixed_embeddings_one_by_one(
    name: str, make_case: Make, unmixed: Callable[[Private], None]
) -> None:
    spec = parse("attack", f"{name}+{SHORT}")
    seen, truth = make_case(spec, **CELL)
    unmixed(truth)
    found = spec.reconstruct(seen)
    read = spec.reads(seen.model, seen.input_shape)
    layers = {f"{LAYER}.weight", f"{LAYER}.bias", "classifier.3.bias"}
    assert read == (layers if name == "cpa_fi" else None)
    told = np.array([[True, True], [True, False], [True, True]])
    np.testing.assert_array_equal(found.embeddings[told], truth.embeddings[:, ::-1][told])
    features = features_before(seen.model, LAYER)
    reached = features(torch.from_numpy(found.inputs).flatten(0, 1)).unflatten(0, (3, 2))
    wanted = torch.from_numpy(found.embeddings)
    cosines = torch.cosine_similarity(reached[:, :, None], wanted[:, None], dim=3)
    assert torch.equal(cosines.argmax(2)[told], torch.tensor([0, 1, 0, 0, 1]))
    assert (found.objective < 0.1 * found.trace_objective[:, 0])[[0, 2]].all()
    assert found.converged.tolist() == [True, False, True]


def test_the_weight_of_the_gradients_counts(
    make_case: Make, unmixed: Callable[[Private], None]
) -> None:
    spec = parse("attack", f"cpa_fi_gm+{SHORT}")
    seen, truth = make_case(spec, **CELL)
    unmixed(truth)
    light, heavy = (
        parse("attack", f"cpa_fi_gm+inversion_iterations=1+gm={weight}").reconstruct(seen)
        for weight in ("1e-3", "10")
    )
    assert (heavy.trace_objective[:, 0] > 2 * light.trace_objective[:, 0]).all()


SPEC = parse("attack", "cpa_fi+iterations=400+lr=0.01+mi=1")
MODEL = "vgg_small+width=16+hidden=64"
CLIENT = "fedsgd+batch_size=4+victims=2"


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


@pytest.mark.parametrize("name", ["cpa_fi", "sparse_fi"])
@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
def test_embeddings_of_both_signs_are_refused(name: str, activation: str) -> None:
    fit = parse("dataset", "photos"), parse("model", f"lenet+activation={activation}")
    with pytest.raises(IncompatibleError, match=f"activation={activation}; use activation=relu"):
        parse("attack", name).check(*fit, parse("client", "fedsgd"))
