"""Hindsight metrics against candidates whose errors are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.metrics.base import Comparison
from gleak.metrics.reconstruction.hindsight import (
    ChoiceCost,
    Chosen,
    PsnrHindsight,
    SsimHindsight,
)
from gleak.metrics.score import match_to_truth, score

Make = Callable[..., Reconstruction]


def psnr_of(offset: float) -> float:
    return float(-20 * np.log10(offset))


@pytest.fixture
def truth(truth: Private) -> Private:
    """The images at half their contrast, so that errors stay in the range of values."""
    return replace(truth, inputs=truth.inputs / 2)


@pytest.fixture
def shifted(truth: Private) -> Callable[..., Candidate]:
    """Candidates for a victim, with an error of its own in each sample, in reverse order."""

    def shift(attack: str, victim: int, *offsets: float, **others: bool) -> Candidate:
        errors = np.array(offsets, dtype=np.float32)[:, None, None, None]
        inputs, labels = (truth.inputs[victim] + errors)[::-1], truth.labels[victim][::-1]
        return Candidate(attack=attack, reason="", inputs=inputs, labels=labels, **others)

    return shift


@pytest.fixture
def chosen_from(truth: Private, make_reconstruction: Make) -> Callable[..., Comparison]:
    """The comparison of an ensemble's choice with the truth."""

    def compare(*listed: Sequence[Candidate], **fields: object) -> Comparison:
        choice = [next(each for each in own if each.chosen) for own in listed]
        inputs, labels = (np.stack([getattr(c, n) for c in choice]) for n in ("inputs", "labels"))
        found = make_reconstruction(inputs=inputs, labels=labels, **fields)
        return match_to_truth(truth, found.with_candidates(listed))

    return compare


def test_hindsight_takes_the_candidate_with_the_best_mean(shifted, chosen_from):
    comparison = chosen_from(
        [
            shifted("aono", 0, 0.1, 0.1, 0.1, chosen=True),
            shifted("cpl", 0, 0.01, 0.01, 0.4),
            shifted("agic", 0, 0.2, 0.2, 0.09),
            Candidate(attack="spear", reason="no ReLU"),
        ],
        [shifted("cpl", 1, 0.01, 0.02, 0.03, chosen=True), shifted("aono", 1, 0.1, 0.1, 0.1)],
    )
    expected = [[psnr_of(s) for s in row] for row in ((0.01, 0.01, 0.4), (0.01, 0.02, 0.03))]
    np.testing.assert_allclose(PsnrHindsight().measure(comparison), expected, atol=1e-4)
    cost = np.mean(expected[0]) - psnr_of(0.1)
    np.testing.assert_allclose(ChoiceCost().measure(comparison), [cost, 0], atol=1e-4)


def test_hindsight_is_never_worse_by_any_metric(shifted, chosen_from):
    offsets = np.random.default_rng(0).uniform(0.01, 0.4, (2, 5, 3))
    listed = [
        [shifted("cpl", victim, *row, chosen=place == 2) for place, row in enumerate(rows)]
        for victim, rows in enumerate(offsets)
    ]
    comparison = chosen_from(*listed)
    for metric in (PsnrHindsight(), SsimHindsight()):
        plain = metric.plain.measure(comparison).mean(1)
        assert (metric.measure(comparison).mean(1) >= plain).all()
    best = -20 * np.log10(offsets).mean(2).min(1)
    np.testing.assert_allclose(PsnrHindsight().measure(comparison).mean(1), best, atol=1e-4)


def test_candidates_that_lack_a_matched_sample_are_left_out(shifted, chosen_from):
    """Of attacks that assign labels to samples, a label that is not there matches none."""
    far = shifted("cpl", 0, 0.4, 0.4, 0.4, chosen=True)
    near = shifted("aono", 0, 0.01, 0.01, 0.01)
    mislabelled = replace(near, labels=np.array([9, 1, 4]))
    other = [shifted("cpl", 1, 0.1, 0.1, 0.1, chosen=True)]
    for rival, offset in ((near, 0.01), (mislabelled, 0.4)):
        comparison = chosen_from([far, rival], other, paired=True)
        expected = [[psnr_of(offset)] * 3, [psnr_of(0.1)] * 3]
        np.testing.assert_allclose(PsnrHindsight().measure(comparison), expected, atol=1e-4)


def test_samples_that_were_not_found_do_not_count(shifted, chosen_from):
    listed = [
        [
            shifted("cpl", victim, 0.1, 0.1, 0.1, chosen=True),
            shifted("aono", victim, 0.2, 0.2, 1e-4),
        ]
        for victim in (0, 1)
    ]
    counts = np.array([[0, 1, 1], [0, 0, 0]])
    comparison = chosen_from(*listed, averaged_count=counts)
    assert PsnrHindsight().matched(comparison).tolist() == [[True, True, False], [False] * 3]
    found = PsnrHindsight().measure(comparison)[0, :2]
    np.testing.assert_allclose(found, psnr_of(0.1), atol=1e-4)
    np.testing.assert_array_equal(ChoiceCost().measure(comparison), [0, np.nan])


def test_chosen_counts_the_victims_for_which_an_attack_proposed_something(shifted, chosen_from):
    comparison = chosen_from(
        [shifted("cpl+tv=0.1", 0, 0.1, 0.1, 0.1, chosen=True), Candidate(attack="aono", reason="")],
        [
            shifted("aono", 1, 0.1, 0.1, 0.1, chosen=True),
            shifted("cpl", 1, 0.1, 0.1, 0.1),
            shifted("cpl+tv=0.1", 1, 0.2, 0.1, 0.1),
            Candidate(attack="spear", reason="no ReLU"),
        ],
    )
    measured = {str(each): each.measure(comparison).tolist() for each in Chosen().each(comparison)}
    np.testing.assert_equal(
        measured, {"chosen+attack=cpl": [1.0, 0.0], "chosen+attack=aono": [np.nan, 1.0]}
    )
    assert Chosen(attack="cpl").each(comparison) == [Chosen(attack="cpl")]
    among = [Chosen(attack=name).is_among(measured) for name in (None, "aono", "spear")]
    assert among == [True, True, False]


@pytest.mark.parametrize("metric", [PsnrHindsight(), SsimHindsight(), ChoiceCost(), Chosen()])
def test_other_attacks_have_none_of_these_metrics(metric, truth, make_reconstruction):
    assert metric.each(match_to_truth(truth, make_reconstruction())) == []
    assert metric.each(match_to_truth(truth, None)) == []


def test_scores_have_them_by_default(tmp_path, truth, columns, shifted, chosen_from):
    found = chosen_from(
        [shifted("aono", 0, 0.1, 0.1, 0.1, chosen=True), shifted("cpl", 0, 0.01, 0.01, 0.01)],
        [shifted("aono", 1, 0.2, 0.2, 0.2, chosen=True)],
    ).reconstruction
    spec = "/".join(columns[level] for level in list(columns)[:-2])
    replace(truth, spec=spec).write(tmp_path / "private.h5")
    replace(found, spec=f"{spec}/best").write(tmp_path / "reconstruction.h5")
    paths = (tmp_path / "private.h5", tmp_path / "scores.csv")
    table = score(*paths, columns, tmp_path / "reconstruction.h5")
    means = table[table["status"] == "ok"].groupby("metric")["value"].mean()
    assert means["choice_cost"] == pytest.approx(10, abs=1e-4)
    assert means["psnr_hindsight"] - means["psnr"] == pytest.approx(10, abs=1e-4)
    assert means["ssim_hindsight"] > means["ssim"]
    chosen = table[table["metric"].str.startswith("chosen")].set_index("metric")["value"]
    expected = pd.Series([1, 1, 0, np.nan], ["aono", "aono", "cpl", "cpl"], name="value")
    pd.testing.assert_series_equal(
        chosen,
        expected.rename("chosen+attack={}".format),
        check_index_type=False,
        check_names=False,
    )
