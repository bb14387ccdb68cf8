"""`gleak assess`, from a description to a report, in a folder that is no clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from gleak.assessment.assess import prepare
from gleak.cli.json_schemas import schema_files
from gleak.core.settings import Settings
from gleak.metrics.score_table import read_scores
from gleak.studies.estimate import Plan, jobs
from gleak.studies.stage_files import StudyPart, table_of
from gleak.studies.study import load_study
from tests.project import Result

ROOT = Path(__file__).parents[2]
SNAKEMAKE = "import runpy; runpy.run_module('snakemake', run_name='__main__')"
PROGRAM = "from gleak.cli.main import main; raise SystemExit(main())"
STATES = """
import torch
from gleak.core.registry import parse
from safetensors.torch import save_file

torch.manual_seed(0)
network = parse("model", "mlp+activation=relu").build((1, 16, 16), 10)
save_file(network.state_dict(), "before.safetensors")
inputs, labels = torch.rand(2, 1, 16, 16), torch.tensor([3, 5])
torch.nn.functional.cross_entropy(network(inputs), labels).backward()
sent = {name: value.grad for name, value in network.named_parameters()}
save_file(sent, "sent.safetensors")
save_file({"inputs": inputs, "labels": labels}, "truth.safetensors")
"""
SMALL = {"model": "lenet", "data": "digits", "victims": 5, "iterations": 300}
SCHEMA = Draft7Validator(json.loads(schema_files()["report.schema.json"]))
TEN: dict[str, dict[str, Any]] = {
    "ward": {},
    "pictures": {"pictures": False},
    "threshold": {"thresholds": {"ssim": 0.3}},
    "labels": {"attacker": {"grants": ["labels"]}},
    "batch": {"client": {"batch_size": 2}},
    "batches": {"vary": {"batch_size": [2]}},
    "steps": {"client": {"local_steps": 2}},
    "network": {"model": "fc2"},
    "noise": {"defense": "gaussian+std=1e-3"},
    "defences": {"defenses": ["gaussian+std=1e-3", "topk"]},
}
"""The first deployment, and nine that differ from it in one field."""


def assess(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    return python(folder, PROGRAM, "assess", *words, "--", "--cores", "1")


def python(folder: Path, program: str, *words: str) -> tuple[int, str]:
    """Exit code and output of a program."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_an_assessment_can_be_submitted_to_slurm(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(json.dumps({**SMALL, "budget": {"scale": "quick"}}))
    profile = ROOT / "profiles/slurm"
    partitions = profile / "partitions.yaml"
    words = ["--workflow-profile", str(profile), "--slurm-partition-config", str(partitions)]
    code, printed = python(tmp_path, PROGRAM, "assess", "--", "--dry-run", *words)
    assert code == 0, printed
    assert "5 clients, 300 iterations" in printed
    assert re.search(r"^attack +\d+$", printed, re.MULTILINE)


def run(folder: Path, name: str, **keys: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a small deployment with some other keys."""
    code, report, _ = run_and_print(folder, name, **keys)
    return code, report


def run_and_print(folder: Path, name: str, **keys: Any) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and output of a small deployment with some other keys."""
    (folder / f"{name}.yaml").write_text(json.dumps({**SMALL, **keys}))
    code, printed = assess(folder, f"{name}.yaml")
    file = folder / f"{name}-report/report.json"
    assert file.is_file(), printed
    report = json.loads(file.read_text())
    SCHEMA.validate(report)
    return code, report, printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployments")


@pytest.fixture(scope="module")
def undefended(folder: Path) -> tuple[int, dict[str, Any]]:
    return run(folder, "open")


def test_an_undefended_client_is_exposed(
    folder: Path, undefended: tuple[int, dict[str, Any]]
) -> None:
    code, report = undefended
    assert code == 3
    assert (report["verdict"], report["deployment"]["budget"]["minutes"]) == ("exposed", 5)
    assert [term["name"] for term in report["terms"]] == ["ssim", "best+budget=300"]
    assert report["terms"][0]["text"].endswith("; an exact recovery has 1.")
    (own,) = report["exposures"]
    assert own["cell"] == "digits/lenet/untrained/honest/fedsgd+victims=5/none/best+budget=300"
    assert (own["threshold"], own["above"]) == (0.5, 5)
    assert own["gain"]["low"] > 0
    assert {loss["client"] for loss in own["losses"]} == {0, 1, 2, 3, 4}
    (labels,) = report["labels"]
    assert (labels["clients"], labels["share"]["value"]) == ("simulated", 1)
    assert labels["verdict"] == "exposed" and labels["guess"] < 0.2
    assert [each["kind"] for each in report["answer"]] == ["samples", "labels", "members"]
    assert (report["work"]["iterations"], report["work"]["default"]) == (300, 4800)
    (audit,) = report["audits"]
    assert (audit["crafting"], audit["alarms"]) == ("honest", 0)
    assert {fact["name"]: fact["text"] for fact in report["conditions"]} == {
        "size": "5 clients, 300 iterations each",
        "thresholds": "ssim ≥ 0.5",
        "seed": "0",
    }
    others = "captured captured_rounds unchecked crafted variations defenses refused"
    assert all(report[key] == [] for key in others.split())
    page = (folder / "open-report/report.html").read_text()
    assert "5 of 5" in page
    assert page.count('<img src="data:image/png;base64,') == 6


@pytest.mark.usefixtures("undefended")
def test_only_what_the_report_has_is_measured(folder: Path) -> None:
    (file,) = (folder / "results/artifacts").rglob("best+budget=300/scores.csv")
    measured = {metric.partition("+")[0] for metric in read_scores([file])["metric"]}
    reported = {"success_labels", "perturbation", "chosen", "choice_cost", "psnr"}
    assert measured == {"ssim", *reported}


def planned(study_file: Path, settings: Settings) -> Plan:
    """The jobs of a generated study."""
    study = load_study(study_file)
    whole = StudyPart(study, settings.scale)
    return jobs([table_of(whole, grid) for grid in study.grids], settings)


@pytest.mark.slow
def test_deployments_that_differ_in_one_field_share_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    studies, alone = [], []
    for name, keys in TEN.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps({**SMALL, **keys}))
        assessment = prepare(file, None, Settings(studies=[]), {})
        assessment.write()
        studies.append(str(assessment.study_file))
        alone.append(planned(assessment.study_file, assessment.resolved.settings))
    settings = Settings(studies=studies)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    tables = [job.output for plan in alone for job in plan if job.rule == "tabulate"]
    words = ["--snakefile", ROOT / "Snakefile", "--configfile", "all.yaml", "--dry-run", *tables]
    code, printed = python(tmp_path, SNAKEMAKE, *map(str, words))
    assert code == 0, printed
    together = Counter(job.rule for job in Result(code, printed).jobs)
    assert (sum(map(len, alone)), together.total()) == (212, 104)
    assert together == {
        "prepare_dataset": 1,
        "train_model": 2,  # lenet, fc2
        "simulate_clients": 6,  # batch 1, batch 2, two steps, fc2, noise, topk
        "attack": 13,  # best and blind on each, and the labels known
        "score": 13,
        "score_truth": 6,
        "score_parameters": 2,
        "draw_candidates": 6,
        "infer_members": 11,  # two methods on each, but one after two steps
        "score_members": 11,
        "tabulate": 33,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("undefended")
def test_noise_hides_the_client_and_cells_are_shared(folder: Path) -> None:
    keys = {"defense": "dp+sigma=0.1", "defenses": ["topk"]}
    code, report, printed = run_and_print(folder, "noisy", **keys)
    assert (code, report["verdict"]) == (4, "inconclusive"), "300 iterations, five clients"
    assert "29 of 29 jobs" in printed, "11 for each of two defences, two audits, and five tables"
    assert "What would do: iterations: 4800" in printed
    gain = report["exposures"][0]["gain"]
    assert gain["low"] <= 0, "not better than the guess without the update"
    rows = {each["defense"]: each for each in report["defenses"]}
    assert [each["above"] for each in rows["none"]["exposures"]] == [5]
    assert rows["topk"]["kilobytes"] < rows["none"]["kilobytes"]
    assert rows["dp+sigma=0.1"]["guarantees"]["epsilon_prv"] > 0
    again, printed = assess(folder, "noisy.yaml")
    assert again == 4
    assert "jobs" not in printed.split("report", 1)[1].splitlines()[0]


@pytest.mark.slow
def test_what_a_crafting_server_other_batches_and_rounds_change(folder: Path) -> None:
    code, report = run(
        folder,
        "crafted",
        victims=3,
        attacker={"kind": "crafting_server", "grants": ["labels"]},
        vary={"batch_size": [2], "rounds": [1]},
    )
    assert code == 3
    assert [each["attack"] for each in report["crafted"]] == ["fishing"]
    attacks = {each["attack"] for each in report["exposures"]}
    assert attacks == {"best+budget=300", "invertgrad+iterations=300+labels=known"}
    assert {each["crafting"]: each["alarms"] > 0 for each in report["audits"]} == {
        "honest": False,
        "fishing": True,
    }
    assert {each["field"]: values_of(each) for each in report["variations"]} == {
        "batch_size": [(1, True), (2, False)],
        "rounds": [(0, True), (1, False)],
    }
    page = (folder / "crafted-report/report.html").read_text()
    assert page.count('<img src="data:image/svg+xml;base64,') == 5
    assert re.search(r'alt="Clients above .* against rounds. By best, 0: \d+% \[.*; 1: \d+%', page)


METHODS = ("gradient_cosine", "regression")


def values_of(variation: dict[str, Any]) -> list[tuple[float, bool]]:
    """Each computed number of what varies, and whether it is deployed."""
    return [(each["number"], each["deployed"]) for each in variation["points"] if each["exposures"]]


@pytest.mark.slow
def test_captured_updates_are_assessed_with_and_without_their_samples(tmp_path: Path) -> None:
    model = {"model": "mlp+activation=relu", "thresholds": {"psnr": 40}}
    assert python(tmp_path, STATES)[0] == 0
    (tmp_path / "config.yaml").write_text("studies: []\n")
    (tmp_path / "data").mkdir()
    told = ["--truth", "truth.safetensors"]
    for names, truth in ((["told-2", "told-1"], told), (["bare"], [])):
        for name in names:
            words = f"import {name} --dataset digits --model {model['model']} --batch-size 2"
            files = ["--before", "before.safetensors", "--gradients", "sent.safetensors", *truth]
            code, printed = python(tmp_path, PROGRAM, *words.split(), *files)
            assert code == 0, printed
        code, report = run(tmp_path, f"of-{names[0]}", captures=names, **model)
        assert code == 3
        assert report["exposures"][0]["above"] > 0
        captured = [(each["above"], each["clients"]) for each in report["captured"]]
        assert captured == ([(1, 1), (1, 1)] if truth else [])
        told_apart = {
            (row["capture"], row["method"].partition("+")[0]): (row["members"], row["verdict"])
            for row in report["took_part_captured"]
        }
        both = {(name, method): (2, "exposed") for name in names for method in METHODS}
        assert told_apart == (both if truth else {})
        rounds = {each["field"]: values_of(each) for each in report["captured_rounds"]}
        assert rounds == ({"round of told": [(1, False), (2, False)]} if truth else {})
        assert [each["converged"] for each in report["unchecked"]] == ([] if truth else [1])
        untold = any("without their true samples" in each for each in report["not_tried"])
        assert untold != bool(truth)
