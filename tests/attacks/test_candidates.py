"""Candidates of an ensemble: the best so far, missing samples, and samples of two candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks import candidates
from gleak.attacks.base import MID_GREY
from gleak.attacks.candidates import (
    FINISHED,
    JOINED,
    LEAST_GAIN,
    MARGIN,
    NOT_RUN,
    POLISHED,
    Batch,
    Candidates,
    assigned,
    filled,
    join_samples,
)
from gleak.attacks.matching.unsent_values import Unsent
from gleak.core.errors import GleakError
from gleak.core.registry import parse

VALUES = 3
TRUTH = np.linspace(0, 0.9, 2 * 4 * VALUES).reshape(2, 4, VALUES).astype(np.float32)
"""Of two victims with four samples."""
LABELS = np.arange(8).reshape(2, 4) % 4
LABEL_COST = 100.0


@dataclass(frozen=True)
class Known:
    """Stands in for the posterior of some victims: a distance to the true samples, in any order.

    It counts the samples with another label than that of the nearest true sample.
    """

    rows: Sequence[int] = (0, 1)
    is_determined: bool = True

    @property
    def observation(self) -> Any:
        return SimpleNamespace(victims=len(self.rows), of_victims=lambda rows: rows)

    @property
    def problem(self) -> Any:
        return SimpleNamespace(shape=TRUTH.shape[1:])

    @property
    def determined(self) -> np.ndarray:
        return np.full(len(self.rows), self.is_determined)

    def keep(self, rows: np.ndarray) -> Known:
        return replace(self, rows=np.array(self.rows)[rows].tolist())

    def labelled(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return labels, self.criterion(inputs, labels)

    def distances(self, inputs: np.ndarray) -> np.ndarray:
        """Compute squared distances of the samples, Shape (V, N, ...), to the true ones."""
        truth = TRUTH[np.array(self.rows)]
        return ((inputs[:, :, None] - truth[:, None]) ** 2).sum(3)

    def squared_error(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return self.distances(inputs).min(1).sum(1)

    def criterion(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        nearest = self.distances(inputs).argmin(2)
        wrong = np.take_along_axis(LABELS[np.array(self.rows)], nearest, 1) != labels
        return 1e4 * self.squared_error(inputs, labels) + LABEL_COST * wrong.sum(1)


def reconstruction(
    inputs: np.ndarray, labels: np.ndarray = LABELS, **fields: Any
) -> Reconstruction:
    converged = np.ones(len(inputs), bool)
    return Reconstruction(inputs=inputs, labels=labels, converged=converged, **fields)


def half_right(*, first: bool) -> Batch:
    """Return samples of which the first or the last two are exact, and all are in another order."""
    inputs = TRUTH.copy()
    inputs[:, 2 * first :][:, :2] += 0.03
    order = [3, 1, 0, 2] if first else [2, 3, 1, 0]
    inputs, labels = inputs[:, order], LABELS[:, order]
    return Batch(inputs, labels, Known().criterion(inputs, labels))


def test_samples_of_two_candidates_are_joined_where_that_lowers_the_criterion() -> None:
    posterior = Known()
    pair = half_right(first=True), half_right(first=False)
    for one, other in (pair, pair[::-1]):
        found = join_samples(posterior, one, other)
        np.testing.assert_allclose(np.sort(found.inputs, 1), TRUTH, atol=1e-6)
        assert (found.criterion < np.minimum(one.criterion, other.criterion)).all()
        expected = posterior.criterion(found.inputs, found.labels)
        np.testing.assert_array_equal(found.criterion, expected)


def test_samples_of_large_batches_are_exchanged_in_parts() -> None:
    """The better samples of the first batch are in two parts, so that one exchange brings them."""
    posterior = Known()
    worse = Batch(TRUTH + 0.02, LABELS, posterior.criterion(TRUTH + 0.02, LABELS))
    other = TRUTH + np.array([0, 0, 0.1, 0.1], np.float32)[:, None]
    halves = Batch(other, LABELS, posterior.criterion(other, LABELS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "EXCHANGED", 2 * TRUTH.shape[1])
        found = join_samples(posterior, worse, halves)
    expected = np.concatenate([TRUTH[:, :2], TRUTH[:, 2:] + 0.02], 1)
    np.testing.assert_allclose(found.inputs, expected, atol=1e-6)


def test_a_worse_candidate_changes_nothing() -> None:
    posterior = Known()
    best = Batch(TRUTH, LABELS, posterior.criterion(TRUTH, LABELS))
    worse = half_right(first=True)
    found = join_samples(posterior, worse, best)
    np.testing.assert_array_equal(found.inputs, TRUTH)
    np.testing.assert_array_equal(found.labels, LABELS)


def test_samples_that_were_not_found_are_those_of_the_others_that_resemble_none_found() -> None:
    inputs = TRUTH[:, [2, 0, 3, 1]] + 0.01
    inputs[0, [1, 2]] = MID_GREY
    others = TRUTH[:, ::-1]
    completed, whole = filled(inputs, others)
    assert whole.tolist() == [False, True]
    np.testing.assert_array_equal(completed[1], inputs[1])
    np.testing.assert_array_equal(completed[0, [0, 3]], inputs[0, [0, 3]])
    left = {tuple(sample) for sample in completed[0, [1, 2]]}
    assert left == {tuple(sample) for sample in TRUTH[0, [0, 3]]}


def test_a_victim_of_which_nothing_was_found_remains_grey() -> None:
    grey = np.full_like(TRUTH, MID_GREY)
    completed, whole = filled(grey, TRUTH)
    np.testing.assert_array_equal(completed, grey)
    assert not whole.any()


def test_each_sample_is_assigned_another_one() -> None:
    assert assigned(TRUTH[0, [3, 1]], TRUTH[0]).tolist() == [3, 1]
    assert sorted(assigned(TRUTH[0, [1, 1, 1, 1]], TRUTH[0])) == [0, 1, 2, 3]


def candidates_of(**fields: Any) -> Candidates:
    posterior: Any = Known(**fields)
    return Candidates(posterior)


BOTH = np.arange(2)


def test_the_best_candidate_of_each_victim_is_kept() -> None:
    found = candidates_of()
    near, far = TRUTH + 0.05, TRUTH + 0.2
    found.consider(["a"] * 2, "first", BOTH, reconstruction(np.stack([near[0], far[1]])))
    found.consider(["b"] * 2, "second", BOTH, reconstruction(np.stack([far[0], near[1]])))
    result = found.reconstruction()
    np.testing.assert_allclose(result.inputs, near)
    names = [[one.attack for one in result.candidates(row) if one.chosen] for row in range(2)]
    assert names == [["a"], ["b"]]
    assert result.objective is not None
    np.testing.assert_array_equal(result.objective, Known().criterion(near, LABELS))


def test_joined_samples_are_another_candidate_which_has_not_converged() -> None:
    found = candidates_of()
    for first in (True, False):
        batch = half_right(first=first)
        name = "a" if first else "b"
        found.consider([name] * 2, "run", BOTH, reconstruction(batch.inputs, batch.labels))
    result = found.reconstruction()
    for row in range(2):
        *_, last = result.candidates(row)
        assert (last.reason, last.chosen) == (JOINED, True)
    assert not result.converged.any()
    np.testing.assert_allclose(np.sort(result.inputs, 1), TRUTH, atol=1e-6)


def test_a_tiny_gain_is_no_reason_to_exchange_samples() -> None:
    near = TRUTH.copy()
    near[:, 0] += 1e-2 * (LEAST_GAIN / (2 * VALUES)) ** 0.5
    worse = TRUTH + 0.05
    worse[:, 0] = TRUTH[:, 0]
    found = candidates_of()
    found.consider(["near"] * 2, "run", BOTH, reconstruction(near))
    found.consider(["worse"] * 2, "run", BOTH, reconstruction(worse))
    assert JOINED not in {one.reason for one in found.listed[0]}


def test_what_is_missing_is_taken_from_the_best_candidate_and_the_victim_has_not_converged() -> (
    None
):
    found = candidates_of()
    found.consider(["a"] * 2, "run", BOTH, reconstruction(TRUTH + 0.05))
    exact = TRUTH.copy()
    exact[0, 1] = MID_GREY
    found.consider(["b"] * 2, "run", BOTH, reconstruction(exact))
    result = found.reconstruction()
    np.testing.assert_allclose(result.inputs[0, 1], TRUTH[0, 1] + 0.05)
    np.testing.assert_array_equal(result.inputs[0, [0, 2, 3]], TRUTH[0, [0, 2, 3]])
    assert result.converged.tolist() == [False, True]


def test_evaluations_of_all_attacks_are_added() -> None:
    found = candidates_of()
    for spent in ([3, 4], [10, 20]):
        counted = reconstruction(TRUTH + 0.1, evaluations=np.array(spent))
        found.consider(["a"] * 2, "run", BOTH, counted)
    found.consider(["b"] * 2, "run", BOTH, reconstruction(TRUTH))
    result = found.reconstruction()
    assert np.asarray(result.evaluations).tolist() == [13, 24]
    assert [one.evaluations for one in result.candidates(1)] == [4, 20, 0]


def test_what_was_not_sent_is_added_to_the_criterion_that_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def added(posterior: Known, inputs: np.ndarray, labels: np.ndarray) -> Unsent:
        assert inputs.shape[0] == labels.shape[0] == len(posterior.rows) == 1
        much = posterior.rows == [0] and inputs[0, 0, 0] < 0.045
        return Unsent(added=1e5 if much else 1.0, larger=0)

    monkeypatch.setattr(candidates, "unsent_values", added)
    found = candidates_of()
    found.note(parse("attack", "aono"), "does not suit")
    for name, error in (("a", 0.05), ("b", 0.04)):
        found.consider([name] * 2, "run", BOTH, reconstruction(TRUTH + np.float32(error)))
    before = [[one.criterion for one in listed] for listed in found.listed]
    found.count_unsent()
    result = found.reconstruction()
    for victim, (name, more) in enumerate([("a", [1.0, 1e5]), ("b", [1.0, 1.0])]):
        (chosen,) = [one.attack for one in result.candidates(victim) if one.chosen]
        assert chosen == name
        after = [one.criterion for one in found.listed[victim]]
        np.testing.assert_allclose(np.subtract(after, before[victim]), [np.nan, *more])
    np.testing.assert_allclose(result.inputs[0], TRUTH[0] + 0.05)
    np.testing.assert_allclose(result.inputs[1], TRUTH[1] + 0.04)


def test_what_was_not_sent_does_not_count_where_the_best_samples_say_that_it_is_missing_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def added(posterior: Known, inputs: np.ndarray, labels: np.ndarray) -> Unsent:
        error = (inputs - TRUTH[posterior.rows]).mean()
        return Unsent(added=1e5, larger=float(error < 0.045))

    monkeypatch.setattr(candidates, "unsent_values", added)
    found = candidates_of()
    for name, error in (("a", 0.05), ("b", 0.04)):
        found.consider([name] * 2, "run", BOTH, reconstruction(TRUTH + np.float32(error)))
    before = [[one.criterion for one in listed] for listed in found.listed]
    found.count_unsent()
    assert [[one.criterion for one in listed] for listed in found.listed] == before
    assert found.chosen.tolist() == [1, 1]


def test_samples_at_their_likely_scale_are_chosen_whatever_their_criterion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "likely_scale", lambda *_: 1.5)
    found = candidates_of()
    found.consider(["a"] * 2, "run", BOTH, reconstruction(np.stack([TRUTH[0] + 0.1, TRUTH[1]])))
    found.rescale()
    result = found.reconstruction()
    np.testing.assert_allclose(result.inputs[0], 1.5 * (TRUTH[0] + 0.1), rtol=1e-6)
    np.testing.assert_allclose(result.inputs[1], TRUTH[1])
    before, after = result.candidates(0)
    assert (before.chosen, after.chosen) == (False, True)
    assert after.criterion > before.criterion and after.reason == candidates.RESCALED
    assert np.asarray(result.evaluations)[0] == before.evaluations + after.evaluations


@pytest.mark.parametrize(("is_determined", "open_victims"), [(True, [1]), (False, [0, 1])])
def test_victims_are_open_until_all_that_was_sent_is_explained(
    is_determined: bool, open_victims: list[int]
) -> None:
    found = candidates_of(is_determined=is_determined)
    found.consider(["a"] * 2, "run", BOTH, reconstruction(np.stack([TRUTH[0], TRUTH[1] + 0.1])))
    assert found.open_victims.tolist() == open_victims


Find = Callable[[np.ndarray], Reconstruction]


def attack_that(find: Find) -> Any:
    """Stands in for an attack, which is given the victims as observation."""

    class Attack:
        reconstruct = staticmethod(find)

        def __str__(self) -> str:
            return "own"

    return Attack()


def test_an_attack_is_run_on_victims_that_are_open() -> None:
    found, asked = candidates_of(), []
    found.consider(["a"], "run", BOTH[:1], reconstruction(TRUTH[:1], LABELS[:1]))

    def find(rows: np.ndarray) -> Reconstruction:
        asked.append(rows.tolist())
        return reconstruction(TRUTH[rows] + 0.1, LABELS[rows])

    criterion = found.run(attack_that(find), "why")
    assert asked == [[1]]
    assert np.isinf(criterion[0]) and np.isfinite(criterion[1])
    assert [one.reason for one in found.listed[0]] == ["run", NOT_RUN]
    assert [one.reason for one in found.listed[1]] == ["why"]


def test_without_any_candidate_there_is_no_result_and_nothing_to_polish() -> None:
    found = candidates_of()
    found.note(parse("attack", "aono"), "does not suit")
    found.polish(BOTH, 3, "further")
    with pytest.raises(GleakError, match=r"no attack found samples of victim 0 \(aono: does not"):
        found.reconstruction()


def test_samples_of_another_shape_are_refused() -> None:
    with pytest.raises(GleakError, match=r"found samples of shape \(3, 3\), and clients have"):
        candidates_of().consider(["a"] * 2, "run", BOTH, reconstruction(TRUTH[:, 1:]))


def test_the_candidate_of_the_stage_of_least_error_is_chosen_whatever_its_criterion() -> None:
    candidates = Candidates(Known())
    for name, distance in [("near", 0.01), ("second", 0.02), ("far", 0.05), ("unknown", 0.0)]:
        candidates.consider(
            [name] * 2, f"by {name}", np.arange(2), reconstruction(TRUTH + distance)
        )
    assert [candidates.listed[row][candidates.chosen[row]].attack for row in (0, 1)] == [
        "unknown"
    ] * 2
    stages = {"far": -20.0, "near": -15.0, "second": -20.0 + MARGIN / 2}
    errors = {(name, f"by {name}"): error for name, error in stages.items()}
    candidates.choose_by(errors, 1)
    found = candidates.reconstruction()
    chosen = [next(one for one in found.candidates(row) if one.chosen) for row in (0, 1)]
    assert [one.attack for one in chosen] == ["unknown", "second"]
    np.testing.assert_array_equal(found.inputs[1], chosen[1].inputs)
    assert found.objective is not None
    assert found.objective[1] == chosen[1].criterion
    assert found.converged.tolist() == [True, False]
    candidates.choose_by({("not listed", "by none"): -30.0}, 1)
    assert candidates.listed[1][candidates.chosen[1]].attack == "second"


def test_a_search_from_an_attack_that_is_not_listed_counts_as_the_first_of_its_kind() -> None:
    candidates = Candidates(Known())
    for name, reason, distance in [("a", "run", 0.0), ("a", "polished", 0.05), ("b", "run", 0.1)]:
        candidates.consider([name] * 2, reason, np.arange(2), reconstruction(TRUTH + distance))
    errors = {("a", "run"): -5.0, ("c", "polished"): -20.0, ("d", "polished"): -1.0}
    candidates.choose_by(errors, 0)
    assert candidates.listed[0][candidates.chosen[0]].reason == "polished"


def test_a_search_starts_from_the_candidates_of_the_named_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates, starts = Candidates(Known()), []
    for name, distance in [("aono", 0.3), ("dlg", 0.1)]:
        candidates.consider([name] * 2, "run", np.arange(2), reconstruction(TRUTH + distance))

    def search(self: Known, labels: np.ndarray, iterations: int, start: np.ndarray) -> Any:
        starts.append((self.rows, start))
        return reconstruction(start - 0.1, labels)

    monkeypatch.setattr(Known, "search", search, raising=False)
    places = candidates.places(parse("attack", "aono"))
    assert places.tolist() == [0, 0]
    assert candidates.places(parse("attack", "cpa")).tolist() == [-1, -1]
    candidates.polish(BOTH, 5, "further", places=np.array([-1, 0]))
    ((rows, start),) = starts
    assert list(rows) == [1]
    np.testing.assert_allclose(start, TRUTH[1:] + 0.3, atol=1e-6)
    assert candidates.listed[1][-1].attack == "aono"
    assert candidates.listed[0][-1].reason == "run"


def test_candidates_that_were_computed_from_an_attacks_own_are_none_of_its_own() -> None:
    candidates = Candidates(Known())
    for reason, distance in [("run", 0.3), (POLISHED, 0.1), (FINISHED, 0.4)]:
        candidates.consider(["aono"] * 2, reason, BOTH, reconstruction(TRUTH + distance))
    assert candidates.places(parse("attack", "aono")).tolist() == [0, 0]


def test_an_earlier_candidate_is_kept_where_another_gains_little() -> None:
    candidates = Candidates(Known())
    candidates.consider(["first"] * 2, "", BOTH, reconstruction(TRUTH + 0.1))
    before = candidates.chosen.copy()
    shifts = np.array([0.0999, 0.01], dtype=np.float32)[:, None, None]
    candidates.consider(["second"] * 2, "", BOTH, reconstruction(TRUTH + shifts))
    gains = [one[0].criterion - one[1].criterion for one in candidates.listed]
    candidates.keep_chosen(before, BOTH, sum(gains) / 2)
    assert list(candidates.chosen) == [0, 1]
    np.testing.assert_array_equal(candidates.best.inputs[0], TRUTH[0] + np.float32(0.1))
    assert list(candidates.converged) == [False, True]


def test_the_own_samples_of_an_attack_are_chosen_where_the_best_came_of_them() -> None:
    candidates, rows = Candidates(Known()), np.arange(2)
    first, second = parse("attack", "map"), parse("attack", "invertgrad")
    candidates.consider([str(first)] * 2, "", rows, reconstruction(TRUTH + 0.1))
    better = TRUTH + np.array([0.01, 0.3], dtype=np.float32)[:, None, None]
    candidates.consider([str(first)] * 2, "polished", rows, reconstruction(better))
    worse = TRUTH + np.array([0.4, 0.02], dtype=np.float32)[:, None, None]
    candidates.consider([str(second)] * 2, "", rows, reconstruction(worse))
    candidates.choose_own(first)
    np.testing.assert_array_equal(candidates.best.inputs[0], TRUTH[0] + np.float32(0.1))
    assert candidates.listed[1][candidates.chosen[1]].attack == str(second)
    assert not candidates.converged[0]
