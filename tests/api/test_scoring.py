"""`gleak.score`: the metrics of the workflow, from samples alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.attacks.run_attack import attack as run_attack
from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.metrics.score import score as score_files
from gleak.metrics.score_table import LEVEL_COLUMNS
from gleak.models.broadcast import load_network

SPEC = "invertgrad+iterations=3"
SMALL = {"recovered", "ssim"}
"""Metrics that images of eight pixels are too small for."""
OF_FILES = {"perturbation", "sent_kilobytes", "seconds", "peak_memory"}


def test_the_values_are_those_of_the_score_stage(
    simulate: Callable[..., Path], random_weights: Path, tmp_path: Path
) -> None:
    folder = simulate(client="fedsgd+batch_size=3+victims=1")
    found = tmp_path / "reconstruction.h5"
    run_attack(parse("attack", SPEC), folder / "update.h5", folder / "model.h5", {}, found, seed=3)
    specs = {"client": "fedsgd", "attack": "blind", "grants": ""}
    columns = {**dict.fromkeys(LEVEL_COLUMNS, "none"), **specs}
    table = score_files(folder / "private.h5", tmp_path / "scores.csv", columns, found)

    update = Update.read(folder / "update.h5").update
    model = load_network(Model.read(folder / "model.h5"), "model.h5")
    values = {name: torch.from_numpy(each.decode()[0, 0]) for name, each in update.items()}
    truth = Private.read(folder / "private.h5")
    result = gleak.attack(SPEC, model, values, (3, 8, 8), batch_size=3, seed=3)
    scores = gleak.score(result, truth.inputs[0], truth.labels[0])
    of_samples = table[~table["metric"].isin(OF_FILES)]
    missing = of_samples["status"] == "unavailable"
    assert {*scores.unavailable} - OF_FILES == {*of_samples[missing]["metric"]} == SMALL
    assert {*scores} - OF_FILES == {*of_samples[~missing]["metric"]}
    for metric, rows in of_samples[~missing].groupby("metric"):
        np.testing.assert_array_equal(np.atleast_1d(scores.samples[metric]), rows["value"])
        assert scores[metric] == pytest.approx(rows["value"].mean())


def test_samples_are_compared_with_those_they_match_best() -> None:
    truth = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    scores = gleak.score(truth[[2, 0, 1]], truth)
    assert scores.assignment.tolist() == [1, 2, 0]
    assert (scores["mse"], scores["success_content"]) == (0, 1)
    assert scores.samples["mse"].shape == (3,)
    fewer = gleak.score(truth[:1], truth)
    assert fewer.assignment.tolist() == [0, -1, -1]
    assert np.isnan(fewer.samples["psnr"]).tolist() == [False, True, True]
    assert (fewer["mse"], fewer["success_content"]) == (0, pytest.approx(1 / 3))


def test_metrics_of_labels_need_labels() -> None:
    model = nn.Sequential(nn.Linear(6, 3))
    found = gleak.attack("aono", model, [torch.ones(3, 6), torch.ones(3)], shape=(6,))
    row = torch.rand(1, 6)
    assert "success_labels" in gleak.score(found, row, [1])
    assert "success_labels" not in gleak.score(found, row)
    with pytest.raises(SpecError, match="the samples have no labels to compare with"):
        gleak.score(row, row, [1])


@pytest.mark.usefixtures("no_weights")
def test_an_unavailable_metric_gives_its_reason() -> None:
    image = torch.rand(1, 3, 8, 8)
    scores = gleak.score(image, image)
    assert "lpips" not in scores
    with pytest.raises(KeyError, match=r"lpips: .*squeezenet.* is missing"):
        scores["lpips"]
    with pytest.raises(KeyError, match=r"psnrs: no such metric; computed: .*psnr"):
        scores["psnrs"]
    assert "lpips" in repr(scores)
    assert "unavailable" in repr(scores)
