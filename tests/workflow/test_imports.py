"""Jobs import what their work needs, and no more."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.runtime.forkserver import SUPPORTED
from tests.test_architecture import HEAVIEST_IMPORTS

if TYPE_CHECKING:
    from tests.project import Project

ROOT = Path(__file__).parents[2]
TABLES = {"pandas"}
LIGHT = {
    "craft_parameters": set(),
    "gather_shards": set(),
    "prepare_dataset": set(),
    "score": TABLES,
    "score_members": TABLES,
    "score_model": TABLES,
    "draw_candidates": set(),
    "score_parameters": TABLES,
    "tabulate": TABLES,
    "draw": TABLES,
    "judge": TABLES,
}
"""Heavy packages that a script without torch imports before its work."""
CELL = "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/none/blind"
JOBS = {
    "score": TABLES | {"scipy", "skimage"},
    "attack": {"torch"},
    "simulate_clients": {"torch"},
    "train_model": {"torch"},
}
"""Heavy packages that the jobs of a cell with a simple attack have imported at their end."""
TELL = """
import sys
with open({told!r}, "w") as file:
    file.write(" ".join(sys.modules))
"""


def imported_by(script: str) -> list[str]:
    """Modules that a script imports at its top level."""
    names = []
    for node in ast.parse(Path(script).read_text()).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    return names


def heavy(modules: str) -> set[str]:
    return set(HEAVIEST_IMPORTS) & set(modules.split())


@pytest.mark.parametrize("name", LIGHT)
def test_scripts_that_need_no_torch_import_none(name: str) -> None:
    names = imported_by(str(ROOT / f"workflow_scripts/{name}.py"))
    source = f"import sys, {', '.join(names)}; print(*sys.modules)"
    command = [sys.executable, "-c", source]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert heavy(result.stdout) == LIGHT[name]


FORKABLE = """
import os, torch

def fail(*_):
    raise AssertionError("CUDA was asked for")

torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = fail
import {names}
import gleak.runtime.torchvision_import, lpips, matplotlib.pyplot, seaborn
import skimage.metrics, sklearn.datasets
assert len(os.listdir("/proc/self/task")) == 1
"""


@pytest.mark.skipif(not SUPPORTED, reason="Linux only")
def test_a_process_with_the_modules_of_all_scripts_can_be_forked() -> None:
    """Imports start no thread, where OpenMP may have four, and do not ask for CUDA."""
    scripts = sorted((ROOT / "workflow_scripts").glob("*.py"))
    names = {name for script in scripts for name in imported_by(str(script))}
    environment = {**os.environ, "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"}
    source = FORKABLE.format(names=", ".join(sorted(names)))
    subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True, env=environment)


@pytest.mark.usefixtures("no_weights")
def test_jobs_import_what_their_specs_need(project: Project) -> None:
    told = {name: project.root / f"{name}.txt" for name in JOBS}
    for name, path in told.items():
        script = project.root / f"workflow_scripts/{name}.py"
        script.write_text(script.read_text() + TELL.format(told=str(path)))
    project.run(project.results / f"artifacts/{CELL}/scores.csv", start_method="spawn")
    assert {name: heavy(path.read_text()) for name, path in told.items()} == JOBS
