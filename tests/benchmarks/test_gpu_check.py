"""The GPU check on a CPU: all steps at a small scale, and faults that it must find."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import gpu_check
from benchmarks.gpu_bench import CPU, STEPS, Bench, Finding, Step
from benchmarks.gpu_check import BEGIN, END, PARTS, findings
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.optimizers import Evaluation, OptimizerState
from gleak.runtime.checkpointing import Journal

aten = torch.ops.aten
ROUNDED = {aten.convolution, aten.convolution_backward, aten.mm, aten.addmm, aten.bmm}
PAGE = Path(__file__).parents[2] / "docs" / "results" / "gpu.md"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(CPU, small=True, folder=tmp_path)


def failed(step: str, bench: Bench) -> list[str]:
    return [each.check for each in findings(STEPS[step], bench) if each.passed is False]


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=pytest.mark.slow) if "paper" in s else s for s in STEPS]
)
def test_no_step_fails_on_a_cpu(step: str, bench: Bench) -> None:
    found = list(findings(STEPS[step], bench))
    assert found
    assert [each for each in found if each.passed is False] == []


class TensorFloats(TorchDispatchMode):
    """Rounds the operands of products and convolutions to ten bits, as TF32 does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in ROUNDED:
            args = [rounded(each) for each in args]
        return func(*args, **(kwargs or {}))


def rounded(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def test_operands_rounded_to_ten_bits_fail(bench: Bench) -> None:
    with TensorFloats():
        assert failed("precision", bench) == [
            "lenet of cpl, gleak's flags",
            "fc2 of cpl, gleak's flags",
        ]


def test_evaluations_that_differ_fail(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = GradientMatching.evaluate

    def noisy(self: GradientMatching, points: torch.Tensor) -> Evaluation:
        found = evaluate(self, points)
        return Evaluation(
            found.objective,
            found.distance,
            found.gradient * (1 + 1e-6 * torch.randn_like(found.gradient)),
        )

    monkeypatch.setattr(GradientMatching, "evaluate", noisy)
    assert "lenet by cpl" in failed("repeat", bench)


@pytest.mark.parametrize(
    ("cls", "name", "replacement"),
    [
        (OptimizerState, "resume", lambda self, state: None),
        (Journal, "_read", lambda self: {}),
    ],
    ids=["from another state", "from the beginning"],
)
def test_a_search_that_resumes_wrongly_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cls: type, name: str, replacement: Any
) -> None:
    monkeypatch.setattr(cls, name, replacement)
    assert failed("resume", bench) == ["stopped half way"]


def test_batches_that_cannot_be_divided_fail(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradientMatching, "in_microbatches", lambda self, count: None)
    assert failed("memory", bench) == ["runs to its end"]


def stub(*given: Finding | Exception) -> Step:
    """A step that yields these findings, and raises these errors."""

    def run(bench: Bench) -> Any:
        """Stub."""
        for each in given:
            if isinstance(each, Exception):
                raise each
            yield each

    return Step(run, part=1, expected=1, limit=10)


GOOD, BAD, TOLD = (
    Finding(name, verdict, "1", "| < 2")
    for name, verdict in (("good", True), ("bad", False), ("told", None))
)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    steps = {
        "right": stub(GOOD),
        "broken": stub(TOLD, RuntimeError("first\nsecond")),
        "wrong": stub(BAD),
    }
    for name in STEPS.copy():
        monkeypatch.delitem(STEPS, name)
    for name, each in steps.items():
        monkeypatch.setitem(STEPS, name, each)
    out = tmp_path / "gpu.json"
    return lambda *arguments: gpu_check.main(["cpu", "--small", "--out", str(out), *arguments])


def test_results_of_several_calls_are_one_page(
    check: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    assert check("--only", "right") == 0
    assert check("--only", "broken,wrong", "--page", str(page)) == 1
    assert "FAIL  runs to its end: RuntimeError: first [" in capsys.readouterr().out
    steps = json.loads((tmp_path / "gpu.json").read_text())["steps"]
    assert [*steps] == ["right", "broken", "wrong"]
    text = page.read_text()
    assert re.fullmatch(rf"before\n{BEGIN}card none.*{END}after\n", text, re.DOTALL)
    assert "1 PASS, 2 FAIL, 1 NOTE." in text
    assert "| broken | told | NOTE | 1 | / < 2 |" in text
    assert "Not run" not in text


def test_what_was_not_run_is_said(check: Callable[..., int], tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"{BEGIN}{END}")
    check("--only", "right", "--page", str(page))
    assert "Not run: broken, wrong." in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cuda"], "can use no GPU of this machine; use device 'cpu'"),
        (["gpu"], "unknown device 'gpu'"),
        (["cpu", "--only", "presicion"], "unknown step 'presicion'; did you mean 'precision'?"),
        (["cpu", "--out", "{folder}/none/gpu.json"], "there is no folder"),
        (["cpu", "--out", "{folder}/other.json"], "has results with card 'H100'"),
        (["cpu", "--out", "{folder}/broken.json"], "no results of this check"),
        (
            ["cpu", "--out", "{folder}/new.json", "--page", "{folder}/page.md"],
            "has no lines <!-- m",
        ),
        (["cpu", "--out", "{folder}/new.json", "--page", "{folder}/none.md"], "No such file"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text('{"machine": {"card": "H100"}, "steps": {}}')
    (tmp_path / "broken.json").write_text("[]")
    (tmp_path / "page.md").write_text("nothing\n")
    given = [each.format(folder=tmp_path) for each in arguments]
    out = [] if "--out" in given else ["--out", str(tmp_path / "new.json")]
    assert gpu_check.main([*given, *out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpu_check: ")
    assert told in line


def test_each_call_takes_at_most_ten_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--list"]) == 0
    told = capsys.readouterr().out
    for part in PARTS:
        assert 0 < sum(each.limit for each in STEPS.values() if each.part == part) <= 600
        assert f"part {part}: " in told
    assert all(re.search(rf"^  {name} ", told, re.MULTILINE) for name in STEPS)


def test_the_page_has_a_place_for_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
