from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gleak.artifacts.model import Model
from gleak.cli.files import audit_file
from gleak.cli.main import main
from gleak.metrics.audits.alarms import audits
from tests.commands import Capture, fails

MODEL = "mlp+hidden=16"
SILENT = {"audit_bias", "audit_outliers", "audit_reference"}
"""Audits with nothing to look at: it has four classes and no convolution, and no reference."""
Simulate = Callable[..., Path]


@pytest.fixture
def honest(simulate: Simulate) -> Path:
    """The folder of a small model and its dataset."""
    return simulate(model=MODEL)


@pytest.fixture
def crafted(honest: Path, tmp_path: Path) -> Path:
    """Its parameters with pairs of neurons, of which one is the other turned around."""
    model = Model.read(honest / "model.h5")
    name = next(name for name, values in model.parameters.items() if values.shape[0] == 16)
    values = model.parameters[name].copy()
    values[1::2] = -values[::2]
    path = tmp_path / "parameters.h5"
    replace(model, parameters={**model.parameters, name: values}).write(path)
    return path


def test_every_audit_has_a_record(honest: Path, capsys: Capture):
    assert main(["audit", str(honest / "model.h5"), "--data", str(honest / "dataset.h5")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of ")
    report = audit_file(honest / "model.h5", honest / "dataset.h5")
    assert [record["audit"] for record in report.records] == [audit.name for audit in audits()]
    verdicts = {record["audit"]: record["verdict"] for record in report.records}
    expected = {name: "not available" if name in SILENT else "no alarm" for name in verdicts}
    assert verdicts == expected
    assert all(record["evidence"] for record in report.records)
    assert report.alarms == []
    assert str(report).endswith(f"\n\n0 of {len(audits())} audits raise an alarm")


def test_audit_wants_the_dataset_of_the_model(honest: Path, tmp_path: Path, capsys: Capture):
    replace(Model.read(honest / "model.h5"), classes=7).write(tmp_path / "model.h5")
    words = ("audit", str(tmp_path / "model.h5"), "--data", str(honest / "dataset.h5"))
    assert "in 7 classes" in fails(capsys, *words)


def test_what_alarms_is_named_with_its_evidence(crafted: Path, capsys: Capture):
    """Without a dataset, audits that need samples say nothing."""
    assert main(["audit", str(crafted)]) == 3
    assert capsys.readouterr().out.splitlines()[-1].endswith("audit_parallel")
    report = audit_file(crafted, None)
    records = {record["audit"]: record for record in report.records}
    parallel = records["audit_parallel"]
    assert parallel["verdict"] == "alarm"
    assert parallel["evidence"] == (
        "16 of 16 rows are opposite to another row and close to no others"
    )
    assert float(parallel["statistic"]) == 14 / 16
    assert "audit_parallel" in report.alarms
    assert str(report).splitlines()[-1].endswith(", ".join(report.alarms))
    silent = {r["audit"]: r for r in report.records if r["verdict"] == "not available"}
    assert set(silent) == SILENT | {"audit_dominance", "audit_negligible", "audit_isolation"}
    for name in set(silent) - SILENT:
        assert silent[name]["statistic"] == ""
        assert "samples" in silent[name]["evidence"]


def test_an_alarm_is_explained_in_a_sentence_and_as_json(crafted: Path, capsys: Capture):
    assert main(["audit", str(crafted)]) == 3
    sentences = [line for line in capsys.readouterr().out.splitlines() if "opposites, of" in line]
    assert len(sentences) == 1
    assert sentences[0].startswith("audit_parallel (")
    assert main(["audit", str(crafted), "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert "audit_parallel" in said["alarms"]
    assert said["audits"] == audit_file(crafted, None).records


def test_layers_that_a_reference_does_not_have_alarm(
    simulate: Simulate, tmp_path: Path, capsys: Capture
):
    planted = str(simulate(model=f"planted+model={MODEL.replace('+', '~')}") / "model.h5")
    assert main(["audit", planted, "--reference", MODEL]) == 3
    assert "planted.enter, planted.leave: not in mlp" in capsys.readouterr().out
    assert audit_file(Path(planted), None, planted).records[-1]["verdict"] != "not available"
    for reference, words in {"lenet": "another architecture", "nothing": "neither a file"}.items():
        assert words in fails(capsys, "audit", planted, "--reference", reference)
