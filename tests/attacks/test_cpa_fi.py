"""Unmixing followed by inversion, the unmixing replaced by one whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.cpa_fi import CPAFI, CPAFIGM
from gleak.attacks.run_attack import observe
from gleak.core.registry import parse
from gleak.models.layer_search import features_before
from gleak.observation import Observation
from gleak.unmixing.mixtures import Sources

Make = Callable[..., tuple[Observation, Private]]
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
    told = np.array([[True, True], [True, False], [True, True]])
    np.testing.assert_array_equal(found.embeddings[told], truth.embeddings[:, ::-1][told])
    features = features_before(seen.model, LAYER)
    reached = features(torch.from_numpy(found.inputs).flatten(0, 1)).unflatten(0, (3, 2))
    wanted = torch.from_numpy(found.embeddings)
    cosines = torch.cosine_similarity(reached[:, :, None], wanted[:, None], dim=3)
    assert torch.equal(cosines.argmax(2)[told], torch.tensor([0, 1, 0, 0, 1]))
    assert (found.objective < 0.1 * found.trace_objective[:, 0])[[0, 2]].all()
    assert found.converged.tolist() == [True, False, True]


def test_without_gradients_two_layers_are_read(simulate: Callable[..., Path]) -> None:
    folder = simulate(**CELL)
    paths = folder / "update.h5", folder / "model.h5"
    spec = parse("attack", f"cpa_fi+iterations=2+{SHORT}")
    seen = observe(*paths, {}, reads=spec.reads, seed=5, device="cpu")
    assert set(seen.update) == {f"{LAYER}.weight", f"{LAYER}.bias", "classifier.3.bias"}
    spec.reconstruct(seen).validate()
    every = observe(*paths, {}, reads=CPAFIGM().reads, seed=5, device="cpu")
    assert set(every.update) == {name for name, _ in every.model.named_parameters()}


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
