"""`gleak assess`, from a description to a report, in a folder that is no clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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
BUDGET = re.compile(r"=\d+")
SMALL = {"model": "lenet", "data": "digits", "victims": 5, "budget": {"minutes": 0.3}}


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
    assert "5 clients, 1000 iterations" in printed
    assert re.search(r"^attack +\d+$", printed, re.MULTILINE)


def run(folder: Path, name: str, **keys: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a small deployment with some other keys."""
    (folder / f"{name}.yaml").write_text(json.dumps({**SMALL, **keys}))
    code, printed = assess(folder, f"{name}.yaml")
    file = folder / f"{name}-report/report.json"
    assert file.is_file(), printed
    return code, json.loads(file.read_text())


def outline(content: Any) -> Any:
    """A report without its numbers: keys, names, counts and verdicts."""
    if isinstance(content, dict):
        kept = {key: value for key, value in content.items() if key != "losses"}
        return {key: outline(value) for key, value in kept.items()}
    if isinstance(content, list):
        return [outline(each) for each in content]
    if isinstance(content, str):
        return BUDGET.sub("=N", content)
    return "number" if isinstance(content, float) else content


def expected(above: int, verdict: str, defense: str = "none") -> dict[str, Any]:
    """The part of a report that says what was found."""
    mean = {"value": "number", "low": "number", "high": "number"}
    return {
        "verdict": verdict,
        "exposures": [
            {
                "cell": f"digits/lenet/untrained/honest/fedsgd+victims=N/{defense}/best+budget=N",
                "attack": "best+budget=N",
                "metric": "ssim",
                "threshold": "number",
                "better": "higher",
                "clients": 5,
                "above": above,
                **dict.fromkeys(("share", "attacked", "blind", "gain"), mean),
            }
        ],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployments")


def test_an_undefended_client_is_exposed(folder: Path) -> None:
    code, report = run(folder, "open")
    assert code == 3
    found = {key: outline(report[key]) for key in ("verdict", "exposures")}
    assert found == expected(5, "exposed")
    page = (folder / "open-report/report.html").read_text()
    assert "5 of 5" in page
    assert page.count('<img src="data:image/png;base64,') == 6


@pytest.mark.slow
def test_noise_hides_the_client_and_cells_are_shared(folder: Path) -> None:
    before = {*folder.glob("results/artifacts/**/update.h5")}
    code, report = run(folder, "noisy", defense="dp+sigma=0.1", defenses=["topk"])
    assert code == 0
    found = {key: outline(report[key]) for key in ("verdict", "exposures")}
    assert found == expected(0, "not found", "dp+sigma=N.1")
    gain = report["exposures"][0]["gain"]
    assert gain["low"] <= 0, "not better than the guess without the update"
    rows = {each["defense"]: each for each in report["defenses"]}
    assert [each["above"] for each in rows["none"]["exposures"]] == [5]
    assert rows["topk"]["kilobytes"] < rows["none"]["kilobytes"]
    assert rows["dp+sigma=0.1"]["guarantees"]["epsilon_prv"] > 0
    after = {*folder.glob("results/artifacts/**/update.h5")}
    assert before < after, "the undefended cell is used again"
    again, printed = assess(folder, "noisy.yaml")
    assert again == 0
    assert "jobs" not in printed.split("report", 1)[1].splitlines()[0]


@pytest.mark.slow
def test_what_a_crafting_server_and_other_batches_change(folder: Path) -> None:
    code, report = run(
        folder,
        "crafted",
        victims=3,
        budget={"minutes": 1},
        attacker={"kind": "crafting_server", "grants": ["labels"]},
        vary={"batch_size": [2]},
    )
    assert code == 3
    assert [each["attack"] for each in report["crafted"]] == ["fishing"]
    attacks = {outline(each["attack"]) for each in report["exposures"]}
    assert attacks == {"best+budget=N", "invertgrad+iterations=N+labels=known"}
    assert {each["crafting"]: each["alarms"] > 0 for each in report["audits"]} == {
        "honest": False,
        "fishing": True,
    }
    (batches,) = report["variations"]
    assert [(each["value"], each["deployed"]) for each in batches["points"]] == [
        ("1", True),
        ("2", False),
    ]


@pytest.mark.slow
def test_captured_updates_are_assessed_with_and_without_their_samples(tmp_path: Path) -> None:
    model = {"model": "mlp+activation=relu", "thresholds": {"psnr": 40}}
    assert python(tmp_path, STATES)[0] == 0
    for name, truth in (("told", ["--truth", "truth.safetensors"]), ("bare", [])):
        words = f"import {name} --dataset digits --model {model['model']} --batch-size 2"
        files = ["--before", "before.safetensors", "--gradients", "sent.safetensors", *truth]
        (tmp_path / "config.yaml").write_text("studies: []\n")
        (tmp_path / "data").mkdir(exist_ok=True)
        code, printed = python(tmp_path, PROGRAM, *words.split(), *files)
        assert code == 0, printed
        code, report = run(tmp_path, f"of-{name}", captures=[name], **model)
        assert code == 3
        assert report["exposures"][0]["above"] > 0
        captured = [(each["above"], each["clients"]) for each in report["captured"]]
        assert captured == ([(1, 1)] if truth else [])
        assert [each["converged"] for each in report["unchecked"]] == ([] if truth else [1])
        assert any("without their true samples" in each for each in report["not_tried"]) != bool(
            truth
        )
