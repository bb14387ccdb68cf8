from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import load

SHAPE = (3, 4, 4)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Tanh(), nn.Linear(8, 4))


@pytest.fixture
def given(model: nn.Module) -> dict[str, Any]:
    """The update of a client with the first two of thirty candidates."""
    images, labels = torch.rand(30, *SHAPE), torch.arange(30) % 4
    sent = gleak.compute_update(model, images[:2], labels[:2])
    return {"gradients": sent, "candidates": images, "labels": labels, "batch_size": 2}


def test_members_are_ranked_first(model: nn.Module, given: dict[str, Any]) -> None:
    found = gleak.infer_members("regression", model, **given)
    assert {*found.ranked[:2].tolist()} == {0, 1}
    assert found.evidence.shape == (30,)
    assert found.rests_on == {"candidates": 30, "references": 0, "batch_size": 2}
    assert found.spec == "regression"


@pytest.mark.parametrize("name", sorted({*load("membership")} - {"fedmia"}))
def test_every_method_runs_with_references(
    name: str, model: nn.Module, given: dict[str, Any]
) -> None:
    others = torch.rand(12, *SHAPE).numpy(), np.arange(12) % 4
    found = gleak.infer_members(name, model, **given, references=others)
    assert found.evidence.isfinite().all()
    assert found.rests_on["references"] == 12


def test_the_defense_tells_which_values_were_sent(model: nn.Module, given: dict[str, Any]) -> None:
    sent = gleak.defend("topk+keep=0.2", given["gradients"])
    masks = {name: value != 0 for name, value in sent.items()}
    known, masked, unknown = (
        gleak.infer_members("regression", model, **{**given, "gradients": sent}, **told).evidence
        for told in ({"defense": "topk+keep=0.2"}, {"sent": masks}, {})
    )
    assert torch.equal(known, masked)
    assert not torch.allclose(known, unknown)


def test_equal_seeds_give_equal_evidence_and_nothing_is_changed(
    model: nn.Module, given: dict[str, Any]
) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    both = [gleak.infer_members("regression", model, **given).evidence for _ in range(2)]
    assert torch.equal(*both)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("spec", "change", "error", "fault"),
    [
        ("regresion", {}, SpecError, "did you mean 'regression'"),
        ("cpl", {}, SpecError, "'cpl' is a attack"),
        ("regression", {"candidates": torch.rand(30, 3, 4)}, IncompatibleError, "does not accept"),
        ("regression", {"candidates": torch.rand(19, *SHAPE), "labels": torch.zeros(19).long()},
         ArtifactError, "19 candidates; give at least 20"),
        ("regression", {"candidates": torch.zeros(30, *SHAPE)}, ArtifactError, "the same sample"),
        ("regression", {"labels": torch.full((30,), 9)}, ArtifactError, "labels"),
        ("regression", {"references": torch.rand(3, *SHAPE)}, ArtifactError, "expected a pair"),
        ("lira", {}, IncompatibleError, "lira needs references"),
        ("fedmia", {}, IncompatibleError, "compares a client with the others"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    spec: str,
    change: dict[str, Any],
    error: type[Exception],
    fault: str,
    model: nn.Module,
    given: dict[str, Any],
) -> None:
    with pytest.raises(error, match=fault):
        gleak.infer_members(spec, model, **{**given, **change})
