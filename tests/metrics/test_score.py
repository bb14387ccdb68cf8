from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.private import Private
from gleak.artifacts.store import Refused
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import load
from gleak.metrics.base import MetricSpec, metrics_of
from gleak.metrics.reconstruction.pixel_similarity import Mse, Psnr, Ssim
from gleak.metrics.score import score
from gleak.metrics.score_table import COLUMNS, read_scores

pytestmark = pytest.mark.usefixtures("no_weights")

SAMPLE_METRICS = {metric.name for metric in metrics_of("attack") if metric.per == "sample"}
OF_SIGNS = {"psnr_oracle_sign", "lpips_oracle_sign"}
PERFECT = {"mse": 0, "psnr": 100, "ssim": 1, "success_content": 1, "success_labels": 1}


@pytest.fixture
def run(tmp_path: Path, truth: Private, columns: dict[str, str]) -> Callable[..., pd.DataFrame]:
    """Write the artifacts, score them, and read the table back."""

    def run(reconstruction=None, *, private: Private = truth, metrics=None, provenance=None):
        private.write(tmp_path / "private.h5")
        if reconstruction is not None:
            reconstruction.write(tmp_path / "reconstruction.h5")
        if provenance is not None:
            (tmp_path / "provenance.json").write_text(json.dumps(provenance))
        output = tmp_path / "scores.csv"
        source = tmp_path / "reconstruction.h5" if reconstruction is not None else None
        table = score(tmp_path / "private.h5", output, columns, source, metrics)
        stored = read_scores([output])
        pd.testing.assert_frame_equal(table, stored, rtol=1e-8)
        return stored

    return run


def values(table: pd.DataFrame, metric: str) -> list[float]:
    return table.loc[table["metric"] == metric, "value"].tolist()


def statuses(table: pd.DataFrame, metric: str) -> list[str]:
    return table.loc[table["metric"] == metric, "status"].tolist()


def of_every_cell(modality: str) -> set[str]:
    """Metrics that ask no more of a cell than its modality."""
    undemanding = [m for m in metrics_of("attack") if type(m).applies is MetricSpec.applies]
    return {metric.name for metric in undemanding if modality in metric.modalities}


def assert_perfect(table: pd.DataFrame) -> None:
    for metric, value in PERFECT.items():
        assert values(table, metric) == pytest.approx([value] * 6)
        assert statuses(table, metric) == ["ok"] * 6


def test_a_victim_that_the_attacker_knows_is_not_scored(
    simulate: Callable[..., Path], codec: Path, tmp_path: Path, columns: dict[str, str]
):
    private = simulate(client="fedsgd+victims=3+split=train") / "private.h5"
    output = tmp_path / "scores.csv"
    with pytest.raises(
        IncompatibleError, match=r"knowledge\.h5: trained on tiny, which contains 3"
    ):
        score(private, output, columns, None, knowledge=[codec])
    assert not output.exists()


def test_the_truth_control_is_perfect_and_has_no_cost(run):
    table = run()
    assert_perfect(table)
    assert statuses(table, "iterations") == statuses(table, "seconds") == ["unavailable"] * 2


def test_there_is_one_row_per_victim_sample_and_metric(run, make_reconstruction, columns, tmp_path):
    table = run(make_reconstruction())
    first = (tmp_path / "scores.csv").read_bytes()
    run(make_reconstruction())
    assert (tmp_path / "scores.csv").read_bytes() == first
    assert tuple(table.columns) == COLUMNS
    assert set(table["metric"]) == of_every_cell("image")
    for metric, rows in table.groupby("metric"):
        samples = [0, 1, 2] if metric in SAMPLE_METRICS else [None]
        expected = [(victim, sample) for victim in (0, 1) for sample in samples]
        found = rows["sample"].astype(object).where(rows["sample"].notna(), None)
        assert list(zip(rows["victim"], found, strict=True)) == expected
    for name, text in columns.items():
        assert set(table[name]) == {text}


def test_tables_skip_the_metrics_of_images(run, make_reconstruction):
    inputs = np.random.default_rng(0).random((2, 3, 5))
    labels, indices = np.array([[0, 1, 0], [1, 1, 0]]), np.zeros((2, 3), dtype=int)
    private = Private(modality="tabular", inputs=inputs, labels=labels, indices=indices)
    found = make_reconstruction(modality="tabular", inputs=inputs, labels=labels)
    assert len(run(found, private=private, metrics=[Ssim()])) == 0
    table = run(found, private=private)
    assert set(table["metric"]) == of_every_cell("tabular")
    assert not set(table["metric"]) & {"psnr", "ssim", "lpips"}
    assert statuses(table, "categories") == ["unavailable"] * 6
    assert values(table, "mse") == [0] * 6


def test_an_oracle_chooses_among_the_signs_that_an_attack_left(run, truth, make_reconstruction):
    wrong = np.array([[True, False, True], [False, True, False]])[..., None, None, None]
    other = np.where(wrong, truth.inputs, 1 - truth.inputs)
    found = make_reconstruction(inputs=np.where(wrong, 1 - truth.inputs, truth.inputs))
    assert not OF_SIGNS & set(run(found)["metric"])
    table = run(replace(found, mirrored=other))
    assert values(table, "psnr_oracle_sign") == [100] * 6
    assert np.count_nonzero(np.array(values(table, "psnr")) == 100) == 3
    assert statuses(table, "lpips_oracle_sign") == ["unavailable"] * 6
    assert not OF_SIGNS & set(run()["metric"])


def test_embeddings_are_compared_where_both_are_there(run, truth, make_reconstruction):
    embeddings = np.random.default_rng(0).random((2, 3, 7))
    private = replace(truth, embeddings=embeddings)
    found = make_reconstruction(embeddings=3 * embeddings[:, [2, 0]])
    table = run(found, private=private)
    assert values(table, "embedding_cosine") == pytest.approx([1, 0, 1] * 2)
    assert statuses(table, "embedding_cosine") == ["ok", "unmatched", "ok"] * 2
    for table in (run(found), run(make_reconstruction(), private=private), run(private=private)):
        assert "embedding_cosine" not in set(table["metric"])


def test_an_unavailable_metric_keeps_its_rows_and_says_why_once(run, make_reconstruction, caplog):
    table = run(make_reconstruction())
    assert statuses(table, "lpips") == ["unavailable"] * 6
    assert np.isnan(values(table, "lpips")).all()
    reasons = [r for r in caplog.records if "lpips" in r.getMessage()]
    assert len(reasons) == 1
    assert reasons[0].levelno == logging.WARNING
    assert "download it with" in reasons[0].getMessage()


def test_too_few_samples_leave_the_rest_unmatched(run, truth, make_reconstruction):
    found = make_reconstruction(inputs=truth.inputs[:, [2, 0]], labels=truth.labels[:, [1, 0]])
    table = run(found)
    for metric, lost in (("mse", np.nan), ("psnr", np.nan), ("success_content", 0)):
        assert statuses(table, metric) == ["ok", "unmatched", "ok"] * 2
        expected = [PERFECT[metric], lost, PERFECT[metric]] * 2
        np.testing.assert_allclose(values(table, metric), expected, atol=1e-12)
    assert statuses(table, "success_labels").count("unmatched") == 2
    assert np.nansum(values(table, "success_labels")) == 4


def test_permuted_or_too_many_samples_are_matched_at_their_best(run, truth, make_reconstruction):
    permuted = {"inputs": truth.inputs[:, [2, 0, 1]], "labels": truth.labels[:, [1, 2, 0]]}
    assert_perfect(run(make_reconstruction(**permuted)))
    extra = np.concatenate([1 - truth.inputs, truth.inputs], axis=1)
    labels = np.concatenate([truth.labels + 5, truth.labels], axis=1)
    assert_perfect(run(make_reconstruction(inputs=extra, labels=labels)))


def test_victims_that_did_not_converge_keep_their_values(run, make_reconstruction):
    found = make_reconstruction(converged=np.array([True, False]), iterations=np.array([7, 300]))
    table = run(found, metrics=None, provenance={"cpu_seconds": 3.0, "peak_memory_mb": 10})
    assert statuses(table, "mse") == ["ok"] * 3 + ["not_converged"] * 3
    assert values(table, "mse") == [0] * 6
    assert statuses(table, "iterations") == ["ok", "not_converged"]
    assert values(table, "iterations") == [7, 300]
    assert values(table, "seconds") == [1.5, 1.5]
    assert values(table, "peak_memory") == [10, 10]


def test_labels_are_assigned_independently_of_content(run, truth, make_reconstruction):
    table = run(make_reconstruction(labels=truth.labels[:, ::-1].copy()))
    assert values(table, "mse") == [0] * 6
    assert values(table, "success_labels") == [1] * 6
    wrong = truth.labels.copy()
    wrong[0] = [9, 4, 9]
    table = run(make_reconstruction(labels=wrong))
    assert sorted(values(table, "success_labels")) == [0, 0, 1, 1, 1, 1]
    assert statuses(table, "success_labels") == ["ok"] * 6


def test_a_metric_with_fields_stands_under_its_spec(run, make_reconstruction):
    strict = load("metric")["success_content"](threshold=1e-5)
    table = run(make_reconstruction(), metrics=[Mse(), strict])
    assert list(dict.fromkeys(table["metric"])) == ["mse", "success_content+threshold=1e-5"]


def test_a_saturated_metric_is_warned_of_but_neither_the_truth_nor_a_real_attack(
    run, truth, make_reconstruction, caplog
):
    run(metrics=[Psnr()])
    run(make_reconstruction(inputs=truth.inputs**2), metrics=[Psnr()])
    assert "unsound" not in caplog.text
    run(make_reconstruction(), metrics=[Psnr()])
    assert "psnr is 100 for every image" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": np.zeros((2, 3, 1, 12, 11))},
        {
            "inputs": np.zeros((1, 3, 1, 12, 12)),
            "labels": np.zeros((1, 3), dtype=int),
            "converged": np.array([True]),
        },
        {"modality": "tabular"},
    ],
)
def test_files_of_different_experiments_are_refused(run, tmp_path, make_reconstruction, change):
    with pytest.raises(ArtifactError) as raised:
        run(make_reconstruction(**change))
    assert str(tmp_path / "private.h5") in str(raised.value)
    assert str(tmp_path / "reconstruction.h5") in str(raised.value)
    assert not (tmp_path / "scores.csv").exists()


def test_samples_an_attack_did_not_find_are_not_compared(run, truth, make_reconstruction):
    """Not even where mid-grey would be the nearest."""
    inputs = truth.inputs[:, [2, 1, 0]].copy()
    inputs[:, 1] = 0.5
    counts = np.array([[1, 0, 2], [1, 0, 1]])
    found = make_reconstruction(inputs=inputs, averaged_count=counts)
    table = run(found)
    assert statuses(table, "mse") == ["ok", "unmatched", "ok"] * 2
    np.testing.assert_allclose(values(table, "mse"), [0, np.nan, 0] * 2, atol=1e-12)
    assert values(table, "success_content") == [1, 0, 1] * 2
    assert values(table, "samples_found") == pytest.approx([1 / 3, 2 / 3])
    assert values(table, "success_labels") == [1, 0, 1] * 2
    assert values(run(make_reconstruction(inputs=inputs)), "mse")[1] > 0
    table = run(replace(found, averaged_count=np.zeros((2, 3), dtype=int)))
    assert statuses(table, "mse") == ["unmatched"] * 6
    assert values(table, "samples_found") == [0, 0]


def test_paired_samples_are_matched_to_those_of_their_label(run, truth, make_reconstruction):
    """Labels of the truth are 4 1 4 and 0 1 2; samples 0 and 1 of each victim are exchanged."""
    exchanged = truth.inputs[:, [1, 0, 2]]
    assert values(run(make_reconstruction(inputs=exchanged)), "mse") == [0] * 6
    wrong = values(run(make_reconstruction(inputs=exchanged, paired=True)), "mse")
    errors = ((exchanged - truth.inputs) ** 2).mean((2, 3, 4))
    assert wrong[1] == pytest.approx(errors[0, 1])
    assert wrong[3:] == pytest.approx(errors[1])
    labels = truth.labels[:, [1, 0, 2]]
    assert_perfect(run(make_reconstruction(inputs=exchanged, labels=labels, paired=True)))


def test_paired_samples_of_labels_nobody_has_are_not_compared(run, truth, make_reconstruction):
    labels = truth.labels.copy()
    labels[0, 1] = 9
    table = run(make_reconstruction(labels=labels, paired=True))
    assert statuses(table, "mse") == ["ok", "unmatched", "ok", "ok", "ok", "ok"]
    assert values(table, "success_labels") == [1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("refused", ["private.h5", "reconstruction.h5"])
def test_a_refusal_of_an_earlier_job_has_a_row(
    tmp_path: Path, truth: Private, columns: dict[str, str], refused: str
):
    for name in ("private.h5", "reconstruction.h5"):
        truth.write(tmp_path / name)
    Refused(reason="a does not serve b").write(tmp_path / refused)
    files = (tmp_path / "private.h5", tmp_path / "scores.csv")
    table = score(*files, columns, tmp_path / refused)
    assert table.equals(read_scores([tmp_path / "scores.csv"]))
    assert table["reason"].tolist() == ["a does not serve b"]
    assert table["attack"].tolist() == [columns["attack"]]
