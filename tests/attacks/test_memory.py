"""A real shortage of memory: chunks are halved until they fit, or the job says what to do.

Where almost nothing is left, libraries that torch calls end by a segmentation fault now and then;
so a victim too large for any machine is one whose search allocates more than there can be.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gleak
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.run_attack import attack
from gleak.core.registry import parse

SPEC = "dlg+iterations=3"
SHORT = """
import resource, sys
from pathlib import Path
import torch
from gleak.attacks.run_attack import attack
from gleak.attacks.matching import engine
from gleak.core.registry import parse
from gleak.runtime.logs import log_to

torch.set_num_threads(1)
(cell, output), spec = map(Path, sys.argv[1:3]), sys.argv[3]
spare, needed = map(int, sys.argv[4:])
solve = engine._solve_chunk

def in_little_memory(*words):
    torch.empty(needed, dtype=torch.uint8)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + spare, resource.RLIM_INFINITY))
    try:
        return solve(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

engine._solve_chunk = in_little_memory
with log_to(None):
    files = (cell / "update.h5", cell / "model.h5", {}, output)
    attack(parse("attack", spec), *files, seed=3, device="cpu")
"""
MEGABYTE = 2**20


@pytest.fixture
def cell(simulate: Callable[..., Path]) -> Path:
    return simulate(model="lenet+width=4", client="fedsgd+batch_size=8+victims=128")


def run(cell: Path, output: Path, spare: int, needed: int = 0) -> subprocess.CompletedProcess[str]:
    """Attack with so many bytes more than what is held when the search begins.

    Every search also needs a tensor of ``needed`` bytes.
    """
    return subprocess.run(
        [sys.executable, "-c", SHORT, str(cell), str(output), SPEC, str(spare), str(needed)],
        cwd=Path(gleak.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_chunks_are_halved_until_they_fit(cell: Path, tmp_path: Path) -> None:
    ended = run(cell, tmp_path / "short.h5", spare=120 * MEGABYTE)
    assert ended.returncode == 0, ended.stderr
    assert "out of memory: continuing with 64 victims at a time" in ended.stderr
    files = (cell / "update.h5", cell / "model.h5", {})
    attack(parse("attack", SPEC), *files, tmp_path / "ample.h5", seed=3, device="cpu")
    short, ample = (Reconstruction.read(tmp_path / f"{name}.h5") for name in ("short", "ample"))
    np.testing.assert_array_equal(short.evaluations, ample.evaluations)
    np.testing.assert_allclose(short.inputs, ample.inputs, atol=1e-3)


@pytest.mark.slow
def test_memory_for_not_even_one_victim_is_told(cell: Path, tmp_path: Path) -> None:
    ended = run(cell, tmp_path / "short.h5", spare=120 * MEGABYTE, needed=2**62)
    assert ended.returncode == 1
    assert "not even one victim fits into memory; use a larger machine" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "short.h5").exists()
