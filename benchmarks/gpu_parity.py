"""Steps of the GPU check for what is registered: each kind on tiny cells, here and on the CPU."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.linalg import norm

from benchmarks.gpu_bench import CPU, PIXELS, Bench, Finding, placed, step
from gleak.artifacts.update import Update
from gleak.attacks.run_attack import reconstruct
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import load, parse
from gleak.testing.attack_contract import AttackCase, shortened
from gleak.testing.tiny_cells import TinyCells, fitting_model

FITTING = {"federated": "federated+clients=4"}
FOUR_SAMPLES = "fedsgd+victims=3+batch_size=4"
ELSEWHERE = {"captured", "pretrained"}
"""What is not computed here, or takes downloaded weights."""
SAME_UPDATE = 1e-3
"""Rounding of single precision, and of several local steps."""


@step(part=1, expected=20, limit=60)
def stages(bench: Bench) -> Iterator[Finding]:
    """Trainings, clients and defences compute on this device what they compute on the CPU."""
    varied = [
        (level, FITTING.get(name, name))
        for level in ("training", "client", "defense")
        for name in sorted(load(level))
        if name not in ELSEWHERE
    ]
    with tiny_cells(bench) as both:

        def difference(level: str, name: str) -> float:
            levels = {"client": FOUR_SAMPLES, level: name}
            levels["model"] = fitting_model(**levels)
            theirs, ours = (
                Update.read(cells.simulate(**levels) / "update.h5").update for cells in both
            )
            pairs = [(theirs[key].decode(), ours[key].decode()) for key in theirs]
            return max(float(norm(b - a) / (norm(a) or 1)) for a, b in pairs)

        yield from compared(varied, difference, SAME_UPDATE, "relative difference of an update")


@step(part=1, expected=30, limit=90)
def attacks(bench: Bench) -> Iterator[Finding]:
    """Registered attacks take a few steps on this device and find what they find on the CPU."""
    with tiny_cells(bench) as (cells, _):

        def difference(_: str, name: str) -> float:
            spec = shortened(parse("attack", name))
            try:
                seen = AttackCase(cells, min(spec.modalities), 2).observe(spec)
            except IncompatibleError:
                seen = AttackCase(cells, min(spec.modalities), 1).observe(spec)
            theirs, ours = (
                reconstruct(spec, placed(seen, device), 0).inputs for device in (CPU, bench.device)
            )
            return float(np.median(np.abs(ours - theirs)))

        names = [("attack", name) for name in sorted(load("attack"))]
        yield from compared(names, difference, PIXELS, "median difference of samples")


@contextmanager
def tiny_cells(bench: Bench) -> Iterator[tuple[TinyCells, TinyCells]]:
    """Yield cells of the CPU and of the device under test, in folders that are removed."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        yield TinyCells(Path(one)), TinyCells(Path(other), str(bench.device))


def compared(
    varied: Sequence[tuple[str, str]],
    difference: Callable[[str, str], float],
    limit: float,
    what: str,
) -> Iterator[Finding]:
    """Yield a finding for each level of these specs; one that differs or ends in an error fails."""
    for level in dict.fromkeys(level for level, _ in varied):
        faults, absent, largest, count = [], [], 0.0, 0
        for name in (name for other, name in varied if other == level):
            count += 1
            try:
                found = difference(level, name)
            except ArtifactError:  # of files that are downloaded
                absent.append(name)
                continue
            except Exception as error:  # of any kind: the others go on
                traceback.print_exc()
                faults.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
                continue
            largest = max(largest, found)
            if not found <= limit:
                faults.append(f"{name}: {found:.1e}")
        yield Finding(
            f"{level}: {what}",
            not faults,
            ("; ".join(faults) or f"{largest:.1e} at most, of {count - len(absent)}")
            + "".join(f"; {name}: its weights are missing" for name in absent),
            f"<= {limit:g} for each",
        )
