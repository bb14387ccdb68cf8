"""Check gleak on one GPU: is it right, how fast is it, and in how much memory?

    make gpu-check                                     all steps, within 30 minutes
    make gpu-check ARGS="--part 1"                     the first of three calls of at most 10
    make gpu-check ARGS="--part 3 --page docs/results/gpu.md"
    python -m benchmarks.gpu_check cpu --small         the same steps without a GPU

Each finding is PASS, FAIL, or NOTE where there is nothing to fail. Results so far are written after
each step, and calls with the same file add to it. Exit code: 1 if a step of this call failed, 2 for
arguments that are wrong.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import gleak
from benchmarks import gpu_parity, gpu_steps  # noqa: F401 - which register their steps
from benchmarks.gpu_bench import STEPS, Bench, Finding, Step
from gleak.core.errors import GleakError, nearest
from gleak.runtime.device import choose_device

OUT = Path(__file__).with_name("gpu.json")
PARTS = (1, 2, 3)
BEGIN, END = "<!-- measured: make gpu-check -->\n", "<!-- end of measured -->\n"
VERDICTS = {True: "PASS", False: "FAIL", None: "NOTE"}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").splitlines()[0])
    made.add_argument("device", nargs="?", default="cuda", help="cuda (default), cuda:1, or cpu")
    made.add_argument("--out", type=Path, default=OUT, help="results as JSON (default %(default)s)")
    made.add_argument("--only", help="names of steps, with commas between them")
    made.add_argument("--part", type=int, choices=PARTS, help="the steps of one call of three")
    made.add_argument("--small", action="store_true", help="few victims and iterations")
    made.add_argument("--page", type=Path, help="page whose measured part is written from the JSON")
    made.add_argument("--list", action="store_true", help="list the steps and their minutes")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.list:
        print(listed())
        return 0
    try:
        steps = chosen(given.only, given.part)
        bench = Bench(numbered(choose_device(given.device)), given.small, given.out.parent)
        results = opened(given.out, machine(bench))
        page = given.page and given.page.read_text(encoding="utf-8")
        if page and not (BEGIN in page and END in page):
            raise GleakError(f"{given.page}: has no lines {BEGIN.strip()} and {END.strip()}")
    except (GleakError, OSError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    failed = False
    for name in steps:
        failed |= not run(name, bench, results)
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if page:
        before, _, rest = page.partition(BEGIN)
        text = f"{before}{BEGIN}{measured(results)}{END}{rest.partition(END)[2]}"
        given.page.write_text(text, encoding="utf-8")
    return int(failed)


def numbered(device: torch.device) -> torch.device:
    """Return a device with its number, which functions about a GPU's memory need."""
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def listed() -> str:
    lines = []
    for part in PARTS:
        own = {name: step for name, step in STEPS.items() if step.part == part}
        expected, limit = (
            sum(getattr(s, key) for s in own.values()) for key in ("expected", "limit")
        )
        lines.append(f"part {part}: {expected / 60:.0f} minutes expected, {limit / 60:.1f} at most")
        lines += [
            f"  {name:12} {step.expected / 60:4.1f} of {step.limit / 60:.1f} min  {step.title}"
            for name, step in own.items()
        ]
    return "\n".join(lines)


def chosen(only: str | None, part: int | None) -> list[str]:
    """Return the names of the steps to run.

    Raises:
        GleakError: an unknown name; the error names the nearest.
    """
    names = STEPS if only is None else only.split(",")
    for name in names:
        if name not in STEPS:
            raise GleakError(f"unknown step {name!r}; {nearest(name, STEPS)}")
    return [name for name in names if part in (None, STEPS[name].part)]


def machine(bench: Bench) -> dict[str, Any]:
    """Return what results depend on."""
    return {
        "card": torch.cuda.get_device_name(bench.device) if bench.gpu else "none (a CPU)",
        "driver": driver() if bench.gpu else "none",
        "gleak": gleak.__version__,
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
        "cuDNN": str(torch.backends.cudnn.version() or "none"),
        "Python": platform.python_version(),
        "scale": "small" if bench.small else "whole",
    }


def driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer.stdout.split("\n")[0].strip()


def opened(path: Path, conditions: dict[str, Any]) -> dict[str, Any]:
    """Return earlier results of the same machine, to which further steps are added.

    Raises:
        GleakError: the file is no JSON, or of another machine; or its folder is missing.
    """
    if not path.parent.is_dir():
        raise GleakError(f"{path}: there is no folder {path.parent}; make it")
    if not path.exists():
        return {"machine": conditions, "steps": {}}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        theirs = found["machine"]
    except (ValueError, KeyError, TypeError) as error:
        raise GleakError(
            f"{path}: no results of this check ({error}); give another --out"
        ) from None
    differing = [key for key, value in conditions.items() if theirs.get(key) != value]
    if differing:
        key = differing[0]
        raise GleakError(
            f"{path}: has results with {key} {theirs.get(key)!r}, and this is {conditions[key]!r}; "
            "give another --out, or delete the file"
        )
    return found


def run(name: str, bench: Bench, results: dict[str, Any]) -> bool:
    """Run a step, print and keep its findings; return False if one of them is FAIL."""
    step, began, found = STEPS[name], bench.clock(), []
    print(f"{name}: {step.title}", flush=True)
    for finding in findings(step, bench):
        print(
            f"  {VERDICTS[finding.passed]}  {finding.check}: {finding.measured} "
            f"[{finding.expected}]",
            flush=True,
        )
        found.append(asdict(finding))
    results["steps"][name] = {
        "title": step.title,
        "seconds": round(bench.clock() - began, 1),
        "date": datetime.now(UTC).date().isoformat(),
        "findings": found,
    }
    return all(finding["passed"] is not False for finding in found)


def findings(step: Step, bench: Bench) -> Iterator[Finding]:
    """Run a step; an error, or the end of its time, is a finding that failed."""
    try:
        with time_limit(step.limit):
            yield from step.run(bench)
    except Exception as error:  # of any kind: the other steps go on
        text = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        yield Finding("runs to its end", False, text, f"no error, within {step.limit} s")


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than its limit of {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measured(results: Mapping[str, Any]) -> str:
    """Return results as Markdown: conditions, and a table of all findings."""
    steps = results["steps"]
    dates = sorted({each["date"] for each in steps.values()})
    facts = {**results["machine"], "date": " to ".join(dict.fromkeys((dates[0], dates[-1])))}
    rows = [
        [name, one["check"], VERDICTS[one["passed"]], one["measured"], one["expected"]]
        for name, each in steps.items()
        for one in each["findings"]
    ]
    counts = [sum(row[2] == verdict for row in rows) for verdict in VERDICTS.values()]
    counted = ", ".join(f"{n} {v}" for n, v in zip(counts, VERDICTS.values(), strict=True))
    missing = [name for name in STEPS if name not in steps]
    left = f"\n\nNot run: {', '.join(missing)}." if missing else ""
    head = ["step", "check", "verdict", "measured", "expected"]
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines
    )
    conditions = "; ".join(f"{key} {value}" for key, value in facts.items())
    return f"{conditions}.\n\n{counted}.{left}\n\n{table}\n"


if __name__ == "__main__":
    sys.exit(main())
