"""Labels by a rule, and by the objective itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gleak.attacks.map import MAP
from gleak.attacks.matching import label_search
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.label_search import (
    changed_labels,
    improved_labels,
    label_changes,
    labels_by_rule,
    likely_labels,
    objective_of,
    with_labels,
)
from gleak.attacks.observation import Observation
from tests.attacks.matching.test_label_inference import Scaled

Make = Callable[..., Any]
CLASSES = 4


def problem_of(seen: Observation) -> GradientMatching:
    return GradientMatching.of(replace(seen, granted={}), MAP().parts())


def bias_of(seen: Observation) -> str:
    return [name for name in seen.update if name.endswith("bias")][-1]


@pytest.mark.parametrize("model", ["lenet+width=3", "mlp+hidden=5"])
def test_the_label_of_one_sample_is_certain(model: str, make_observation: Make) -> None:
    seen, _, labels = make_observation(model, samples=1)
    found, certain = labels_by_rule(seen)
    assert torch.equal(found, labels)
    assert certain.all()


def unsure(seen: Observation) -> dict[str, Observation]:
    name = bias_of(seen)
    bias = seen.update[name]
    noisy = bias + 0.3 * torch.tensor([1.0, -1.0, 1.0, 1.0])
    frozen = {key: value for key, value in seen.update.items() if key != name}
    return {
        "masked": replace(seen, sent={name: torch.ones_like(bias).bool()}),
        "in a basis": replace(seen, bases={name: bias[..., None]}),
        "in a code": replace(seen, cells={name: None}),
        "noisy": replace(seen, update={**seen.update, name: noisy}),
        "unbalanced": replace(seen, update={**seen.update, name: bias + 0.1}),
        "without a bias": replace(seen, update=frozen),
    }


def test_a_label_is_uncertain_where_the_classifiers_bias_is_not_known_whole(
    make_observation: Make,
) -> None:
    seen, _, _ = make_observation(samples=1)
    for case, other in unsure(seen).items():
        _, certain = labels_by_rule(other)
        assert not certain.any(), case


def test_labels_of_a_batch_are_never_certain_but_inferred(make_observation: Make) -> None:
    seen, _, labels = make_observation(samples=2)
    found, certain = labels_by_rule(seen)
    assert not certain.any()
    assert torch.equal(found, labels.sort(1).values)


def test_without_a_classifier_labels_are_zeros(make_observation: Make) -> None:
    seen, _, _ = make_observation("mlp+hidden=5", samples=3)
    found, certain = labels_by_rule(replace(seen, model=Scaled()))
    assert found.shape == (3, 3)
    assert not found.any() and not certain.any()


def test_changes_of_labels_are_ranked_by_the_slopes() -> None:
    slopes = torch.tensor([[0.0, -3.0, 1.0], [-1.0, 0.0, 2.0]])
    found = [one.tolist() for one in changed_labels(torch.tensor([0, 1]), slopes, 9)]
    assert found[:3] == [[1, 0], [1, 1], [0, 0]]
    assert sorted(found) == [[0, 0], [0, 2], [1, 0], [1, 1], [2, 1]]
    fewer = changed_labels(torch.tensor([0, 1]), slopes, 2)
    assert [one.tolist() for one in fewer] == found[:2]


def test_equal_labels_are_not_exchanged() -> None:
    found = changed_labels(torch.tensor([1, 1]), torch.zeros(2, 3), 9)
    assert len(found) == 4
    assert all((one != 1).sum() == 1 for one in found)


def test_labels_of_large_batches_are_changed_less_often(make_observation: Make) -> None:
    assert [label_changes(samples) for samples in (1, 8, 64, 256, 1600)] == [1, 8, 10, 2, 0]
    problem, points, labels = truth_of(make_observation, 3)
    wrong = (labels + 1) % CLASSES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_search, "LABELLED", 0)
        assert torch.equal(improved_labels(problem, points, wrong), wrong)


def truth_of(make_observation: Make, samples: int) -> tuple[GradientMatching, Tensor, Tensor]:
    seen, inputs, labels = make_observation(samples=samples)
    return problem_of(seen), inputs.flatten(1), labels


@pytest.mark.parametrize("values", [1, 2**26])
def test_hypotheses_are_evaluated_in_parts(
    values: int, make_observation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_search, "VALUES", values)
    problem, points, labels = truth_of(make_observation, 2)
    every = torch.stack([labels, labels.flip(1), (labels + 1) % CLASSES], 1)
    found = objective_of(problem, points, every)
    assert found.shape == (3, 3)
    for number in range(3):
        alone = with_labels(problem, every[:, number]).evaluate(points).objective
        torch.testing.assert_close(found[:, number], alone, rtol=1e-4, atol=1e-2)
    points[1] = torch.nan
    assert objective_of(problem, points, every).isinf().tolist() == [
        [False] * 3,
        [True] * 3,
        [False] * 3,
    ]


def test_all_classes_of_one_sample_are_compared(make_observation: Make) -> None:
    problem, points, labels = truth_of(make_observation, 1)
    found = likely_labels(problem, points, torch.zeros_like(labels), 10)
    assert found.shape == (3, CLASSES, 1)
    assert torch.equal(found[:, 0], labels)
    assert (found[..., 0].sort(1).values == torch.arange(CLASSES)).all()
    values = objective_of(problem, points, found)
    assert (values.diff(dim=1) >= 0).all()
    assert likely_labels(problem, points, labels, 2).shape == (3, 2, 1)


def test_the_first_of_a_batchs_hypotheses_is_the_best_and_no_worse_than_the_given(
    make_observation: Make,
) -> None:
    problem, points, labels = truth_of(make_observation, 3)
    given = (labels + 1) % CLASSES
    found = likely_labels(problem, points, given, 6)
    assert found.shape == (3, 6, 3)
    best, before = (objective_of(problem, points, one) for one in (found[:, :1], given[:, None]))
    assert (best <= before).all()
    changed = (found != given[:, None]).sum(2)
    assert (changed <= 2).all()


@pytest.mark.parametrize("samples", [1, 3])
def test_wrong_labels_of_true_samples_are_improved_to_the_true_ones(
    samples: int, make_observation: Make
) -> None:
    problem, points, labels = truth_of(make_observation, samples)
    assert torch.equal(improved_labels(problem, points, labels), labels)
    wrong = labels.clone()
    wrong[:, 0] = (wrong[:, 0] + 1) % CLASSES
    assert torch.equal(improved_labels(problem, points, wrong), labels)
    exchanged = labels.flip(1)
    assert torch.equal(improved_labels(problem, points, exchanged), labels)
