"""What goes wrong at night: each fault is named with file and remedy, and nothing whole is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import pytest

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.run_attack import attack
from gleak.core.registry import parse

if TYPE_CHECKING:
    from tests.project import Job, Project

MODEL = "digits/lenet/untrained+init=uniform"
LONG = "invertgrad+iterations=300"


def client(project: Project, victims: int) -> Path:
    """Folder of the updates of so many victims."""
    return project.results / "artifacts" / MODEL / f"honest/fedsgd+victims={victims}/none"


def flip_a_bit(path: Path) -> None:
    """Of a value; a file has gaps, too, where nothing is read."""
    with h5py.File(path) as file:
        largest = max(file["update"].values(), key=lambda dataset: dataset.nbytes)
        place = largest.id.get_chunk_info(0).byte_offset + 9
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def put_a_foreign_file(path: Path) -> None:
    path.unlink()
    with h5py.File(path, "w") as file:
        file["inputs"] = [0.0]


DAMAGES: dict[int, Callable[[Path], object]] = {
    1: flip_a_bit,
    2: lambda path: os.truncate(path, path.stat().st_size // 2),
    3: put_a_foreign_file,
}


def unnoticed(path: Path, damage: Callable[[Path], object]) -> None:
    """Damage a file as a disk does, that leaves its time as it was."""
    times = path.stat()
    damage(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def named(jobs: Sequence[Job]) -> set[str]:
    return {f"{job.rule} {job.wildcards.get('attack', '')}".strip() for job in jobs}


@pytest.mark.slow
def test_damaged_artifacts_are_named_and_made_again_alone(project: Project) -> None:
    updates = [client(project, victims) / "update.h5" for victims in DAMAGES]
    earlier = [path.parent / "cpl+iterations=2/scores.csv" for path in updates[:1]]
    project.run(*updates, *earlier)
    whole = [path.read_bytes() for path in updates]
    for path, damage in zip(updates, DAMAGES.values(), strict=True):
        unnoticed(path, damage)
    wanted = [path.parent / "cpl+iterations=1/scores.csv" for path in updates]
    independent = project.results / "artifacts/breast_cancer/dataset.h5"
    broken = project.snakemake(*wanted, independent, "--prioritize", *wanted)
    assert broken.code == 1
    assert independent.exists()
    for path in updates:
        assert f"ERROR {path}: " in broken.text
        assert f"it is made again by: snakemake {path}" in broken.text
        assert path.exists()
    again = project.run(*updates)
    assert again.text.count("is renamed to be made again") == len(updates)
    assert [path.read_bytes() for path in updates] == whole
    left = project.jobs(*wanted, *earlier)
    assert named(left) == {"attack cpl+iterations=1", "score cpl+iterations=1"}
    project.run(*wanted[:1], *earlier)


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_and_locks_others_out(project: Project) -> None:
    folder = client(project, 2)
    output = folder / LONG / "reconstruction.h5"
    level = folder.relative_to(project.results / "artifacts") / LONG
    log = project.results / "logs" / level / "attack.log"
    project.run(folder / "update.h5")
    with project.slowed() as slow:
        for number in (signal.SIGINT, signal.SIGTERM):
            log.unlink(missing_ok=True)
            with project.started(output) as run:
                run.wait_for(log.exists)
                second = project.snakemake(output)
                assert second.code == 1
                assert re.search("cannot be locked|LockException", second.text)
                run.wait_for(lambda: "left" in log.read_text())
                said = run.signal(number).text
            assert f"stopped by {number.name}" in log.read_text(), said
            assert [path.name for path in output.parent.iterdir()] == ["checkpoint.h5"]
            project.run("--unlock")
        assert "resuming from this checkpoint" in log.read_text()
        slow.unlink()
        project.run(output)
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "provenance.json",
        "reconstruction.h5",
    ]
    check_undisturbed(output)


def check_undisturbed(output: Path) -> None:
    """A result of the long attack is what it is without a workflow."""
    folder = output.parents[1]
    plain = folder / "plain.h5"
    files = (folder / "update.h5", folder.parents[2] / "model.h5", {})
    attack(parse("attack", LONG), *files, plain, seed=0, device="cpu")
    ours, theirs = Reconstruction.read(output), Reconstruction.read(plain)
    assert (ours.inputs == theirs.inputs).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start_method", "told"),
    [("fork", "resuming from this checkpoint"), ("spawn", r"process \d+ on .* does the same work")],
)
def test_a_job_that_a_killed_snakemake_left_and_a_rerun_do_not_meet(
    project: Project, start_method: str, told: str
) -> None:
    """A forked job stops with its server; one with a Python of its own goes on, and is awaited."""
    folder = client(project, 2)
    output = folder / LONG / "reconstruction.h5"
    level = folder.relative_to(project.results / "artifacts") / LONG
    log = project.results / "logs" / level / "attack.log"
    project.run(folder / "update.h5")
    with project.slowed() as slow, project.started(output, start_method=start_method) as run:
        run.wait_for(lambda: log.exists() and "left" in log.read_text())
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        project.run("--unlock")
        with project.started(output, start_method=start_method) as again:
            assert any(re.search(told, line) for line in again.process.stdout)
            slow.unlink()
            result = again()
    assert result.code == 0, result.text
    assert not [*log.parent.glob(".*.lock")]
    check_undisturbed(output)


NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
FULL = 'mount -t tmpfs -o size=900k none "$0" && "$@"; code=$?; find "$0" -type f; exit $code'


def may_mount(folder: Path) -> bool:
    command = [*NAMESPACE, 'mount -t tmpfs none "$0"', str(folder)]
    return (
        shutil.which("unshare") is not None and not subprocess.run(command, check=False).returncode
    )


@pytest.fixture
def mounting(project: Project) -> Project:
    project.results.mkdir()
    if not may_mount(project.results):
        pytest.skip("this machine lets nobody mount a file system of their own (unshare --mount)")
    return project


def test_a_results_folder_gone_read_only_stops_a_run_with_its_name(mounting: Project) -> None:
    within = (*NAMESPACE, READ_ONLY, str(mounting.results))
    result = replace(mounting, within=within).snakemake("results/artifacts/digits/dataset.h5")
    assert result.code != 0
    (line,) = re.findall("^gleak: .*$", result.text, re.MULTILINE)
    assert str(mounting.results) in line
    assert "results_dir" in line
    assert "Traceback" not in result.text
    assert list(mounting.results.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_stops_its_jobs_with_the_files_name_and_leaves_nothing_half(
    mounting: Project,
) -> None:
    within = (*NAMESPACE, FULL, str(mounting.results))
    target = client(mounting, 64) / "update.h5"
    result = replace(mounting, within=within).snakemake(target)
    assert result.code != 0
    assert re.search(r"ERROR \S+\.h5: could not be written .*No space left.*run again", result.text)
    assert "Traceback" not in result.text
    left = [Path(line) for line in result.text.splitlines() if line.startswith("/")]
    assert not [path for path in left if path.suffix == ".partial"]
