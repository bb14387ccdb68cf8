"""Runs whose jobs are forked give what runs give whose jobs are started one by one."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.runtime.forkserver import SUPPORTED

if TYPE_CHECKING:
    from tests.project import Project

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="Linux only")

CELL = "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/none"
LONG = "invertgrad+iterations=300"
TIMES = re.compile(r"^\S+ \S+ |\d+(\.\d+)? s\b", re.MULTILINE)


def files(folder: Path, pattern: str) -> dict[Path, Path]:
    return {path.relative_to(folder): path for path in folder.rglob(pattern)}


def table(path: Path) -> tuple[list[str], int]:
    """Column names of a benchmark file, and its number of rows."""
    header, *rows = path.read_text().splitlines()
    assert all(float(row.split("\t")[0]) > 0 for row in rows)
    return header.split("\t"), len(rows)


def test_artifacts_logs_and_benchmarks_are_those_of_processes_of_their_own(
    project: Project,
) -> None:
    made = {method: project.root / method for method in ("fork", "spawn")}
    for method, folder in made.items():
        target = folder / "artifacts" / CELL / "invertgrad+iterations=3/reconstruction.h5"
        project.run(target, results_dir=folder, start_method=method)
    artifacts = {method: files(folder, "*.h5") for method, folder in made.items()}
    assert artifacts["fork"].keys() == artifacts["spawn"].keys()
    for name, path in artifacts["fork"].items():
        assert path.read_bytes() == artifacts["spawn"][name].read_bytes(), name
    logs = {method: files(folder, "*.log") for method, folder in made.items()}
    for name, path in logs["spawn"].items():
        said = (each.read_text() for each in (path, logs["fork"][name]))
        assert len({TIMES.sub("", text) for text in said}) == 1, name
    benchmarks = {method: files(folder, "*.tsv") for method, folder in made.items()}
    assert len(benchmarks["spawn"]) == len(logs["spawn"]) == 4
    for name, path in benchmarks["spawn"].items():
        assert table(path) == table(benchmarks["fork"][name]), name


def server_of(run: int) -> int | None:
    """Process ID of the server that a run of Snakemake started."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            serves = b"multiprocessing.forkserver" in path.read_bytes()
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if serves and parent == run:
            return int(path.parent.name)
    return None


@pytest.mark.slow
def test_jobs_of_a_server_that_dies_fail_by_name_and_resume(project: Project) -> None:
    output = project.results / "artifacts" / CELL / LONG / "reconstruction.h5"
    log = project.results / "logs" / CELL / LONG / "attack.log"
    with project.slowed() as slow:
        with project.started(output) as run:
            run.wait_for(lambda: log.exists() and "left" in log.read_text())
            server = server_of(run.process.pid)
            assert server
            os.kill(server, signal.SIGKILL)
            result = run()
        assert result.code == 1
        assert re.search("Error in rule attack", result.text)
        assert "has ended, and this job with it; run snakemake again" in result.text
        assert "stopped by SIGTERM; the state is saved" in log.read_text()
        slow.unlink()
        project.run(output)
    assert "resuming from this checkpoint" in log.read_text()


@pytest.mark.parametrize(
    ("options", "forked"),
    [
        ([], True),
        (["--set-resources", "prepare_dataset:gpu_quarters=1"], False),
        (["--set-threads", "prepare_dataset=2"], False),
        (["--no-hooks"], False),
        (["another version"], False),
    ],
    ids=["plain", "GPU", "threads", "on a node", "another Snakemake"],
)
def test_other_jobs_are_not_forked(options: list[str], forked: bool, project: Project) -> None:
    """The parent of a forked job is the server; on a node Snakemake runs without hooks."""
    script = project.root / "workflow_scripts/prepare_dataset.py"
    told = project.root / "parent"
    tell = f"""
import os
Path({str(told)!r}).write_bytes(Path(f"/proc/{{os.getppid()}}/cmdline").read_bytes())
"""
    script.write_text(script.read_text() + tell)
    if options == ["another version"]:
        rules = project.root / "rules/forkserver.smk"
        rules.write_text(
            rules.read_text().replace("TRIED = ((9, 27), (9, 28))", "TRIED = ((8, 0), (8, 1))")
        )
        options = []
    project = replace(project, options=("--cores", "2"))
    project.run(project.results / "artifacts/breast_cancer/dataset.h5", *options)
    assert (b"multiprocessing.forkserver" in told.read_bytes()) == forked
