from __future__ import annotations

import math
import os
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.store import HeldErrors
from gleak.core.errors import StoppedError
from gleak.core.registry import parse
from gleak.runtime import checkpointing as module
from gleak.runtime.checkpointing import Checkpoint, Journal, origin_of, strip_prefix

STEPS = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.h5"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is written."""
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "COST", math.inf)


def count(path: Path, origin: str = "", stop_at: int = -1, number: int = signal.SIGTERM) -> int:
    """Count to `STEPS`; gives how many steps this run took."""
    taken = 0
    with Journal(path, origin) as journal:
        part = journal.part()
        done = int(part.stored.get("done", 0))
        with part.stepping():
            while done < STEPS:
                if done == stop_at:
                    os.kill(os.getpid(), number)
                part.step(lambda done=done: {"done": torch.tensor(done)})
                done, taken = done + 1, taken + 1
    return taken


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_job_resumes(path: Path, number: int) -> None:
    with pytest.raises(StoppedError) as caught:
        count(path, stop_at=3, number=number)
    assert signal.Signals(number).name in str(caught.value)
    assert f"saved in {path}: run again" in str(caught.value)
    assert count(path) == STEPS - 3
    assert not path.exists()
    assert count(path) == STEPS


@pytest.mark.usefixtures("eager")
def test_two_jobs_of_one_cell_do_not_disturb_each_other(path: Path) -> None:
    """The second resumes from what the first wrote, and removes it when it has finished."""
    with Journal(path) as journal:
        part = journal.part()
        with part.stepping():
            for done in range(STEPS):
                part.step(lambda done=done: {"done": torch.tensor(done)})
                assert count(path) == STEPS - done
                assert not path.exists()
    assert not [*path.parent.iterdir()]


@pytest.mark.usefixtures("eager")
def test_a_job_that_is_killed_leaves_its_last_writing(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Journal(path) as journal:
        part = journal.part()
        with part.stepping():
            part.step(lambda: {"done": 4})
            raise ZeroDivisionError
    assert count(path) == STEPS - 4


def test_writing_takes_a_small_share_of_the_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "SECONDS", 10.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Journal, "_write", lambda journal: clock.__setitem__(0, clock[0] + 3.0))
    with Journal(path) as journal:
        journal.part().step(lambda: pytest.fail("it is not time yet"))
        writings = []
        while clock[0] < 1000:
            clock[0] += 1.0
            if journal.due:
                writings.append(clock[0])
                journal.save()
    assert writings[0] == 10
    assert 3 * len(writings) / clock[0] == pytest.approx(module.COST, rel=0.2)


@pytest.mark.parametrize(
    ("origin", "cut", "fault"),
    [("other", 0, "checkpoint of another job or other code"), ("one", 9, "unusable")],
)
def test_with_a_checkpoint_that_is_not_its_own_a_job_starts_from_the_beginning(
    path: Path, caplog: pytest.LogCaptureFixture, origin: str, cut: int, fault: str
) -> None:
    with pytest.raises(StoppedError):
        count(path, origin="one", stop_at=2)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut])
    assert count(path, origin) == STEPS
    assert fault in caplog.text
    assert not path.exists()


def test_a_checkpoint_of_another_device_is_named_and_not_used(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def resume(device: str) -> dict[str, np.ndarray]:
        with pytest.raises(StoppedError), Journal(path, "one", device) as journal:
            stored = journal.part("0").stored
            journal.part("0").keep({"done": len(device)})
            os.kill(os.getpid(), signal.SIGTERM)
        return stored

    assert not resume("NVIDIA H100")
    assert not resume("cpu")
    assert "made on NVIDIA H100, and this job runs on cpu" in caplog.text
    assert "starts from the beginning" in caplog.text
    assert "put it back for a run on NVIDIA H100" in caplog.text
    caplog.clear()
    assert resume("cpu")["done"] == len("cpu")
    assert "runs on" not in caplog.text


@pytest.mark.usefixtures("eager")
def test_a_full_disk_costs_the_checkpoint_and_not_the_job(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(disk: HeldErrors, data: bytes) -> int:
        disk.error = OSError(28, "No space left on device")
        return len(data)

    monkeypatch.setattr(HeldErrors, "write", full)
    assert count(path) == STEPS
    assert "the job continues" in caplog.text
    assert "No space left" in caplog.text
    with pytest.raises(StoppedError, match="no checkpoint was saved"):
        count(path, stop_at=1)
    assert list(path.parent.iterdir()) == []


def test_finished_parts_are_not_done_again(path: Path) -> None:
    with pytest.raises(StoppedError), Journal(path) as journal:
        first = journal.part()
        first.keep({"result": np.arange(3)})
        first.part("0-2").keep({"inner": np.nan})
        journal.part().part("0-2").keep({"inner": True})
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("between parts a job stops at once")
    with Journal(path) as journal:
        first, second = journal.part(), journal.part()
        assert first.stored["result"].tolist() == [0, 1, 2]
        assert list(first.stored) == ["result"]
        assert np.isnan(first.part("0-2").stored["inner"])
        assert second.part("0-2").stored["inner"].dtype == bool
        assert not second.stored


def test_stored_values_are_copies_and_those_of_a_failed_part_are_dropped() -> None:
    values, part = torch.zeros(2), Journal().part()
    part.keep({"values": values})
    values += 1
    assert part.stored["values"].tolist() == [0, 0]
    with pytest.raises(MemoryError), part.stepping():
        raise MemoryError
    assert not part.stored


@pytest.mark.usefixtures("eager")
def test_writing_takes_the_memory_of_one_copy_of_the_state(path: Path) -> None:
    """That of the file when it is read back; torch's own memory is not traced."""
    state = {"pairs": torch.rand(2**21), "points": torch.rand(2**18)}
    size = sum(value.nbytes for value in state.values())
    with Journal(path) as journal:
        part = journal.part()
        part.step(dict)
        tracemalloc.start()
        part.step(lambda: state)
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert Checkpoint.read(path).state["1:pairs"].tobytes() == state["pairs"].numpy().tobytes()
    assert peak <= 1.1 * size
    assert kept <= 0.1 * size, "nothing is left of it"


def test_a_state_is_asked_for_whenever_the_file_is_written(path: Path) -> None:
    """After the last step too, until the part has kept its result."""
    state = {"done": 0}
    with pytest.raises(StoppedError), Journal(path) as journal:
        part = journal.part()
        with part.stepping():
            part.step(lambda: state)
            state = {"done": 1}
            os.kill(os.getpid(), signal.SIGTERM)
    with Journal(path) as journal:
        part = journal.part()
        assert int(part.stored["done"]) == 1
        part.step(dict)
        assert not part.stored, "what was read of it is not held beside it"
        part.keep({"result": 2})
        journal.save()
        assert {"1:result", "job:seconds", "job:cpu_seconds"} == set(Checkpoint.read(path).state)


def test_costs_of_runs_that_were_broken_off_are_added(path: Path) -> None:
    for spent in (0.0, 7.0):
        with pytest.raises(StoppedError), Journal(path) as journal:
            assert journal.earlier.get("cpu_seconds", 0.0) == pytest.approx(spent, abs=1)
            journal._clocks["cpu_seconds"] -= 7.0
            journal.part().keep({"done": 1})
            os.kill(os.getpid(), signal.SIGTERM)
    with Journal(path) as journal:
        assert journal.earlier["cpu_seconds"] == pytest.approx(14.0, abs=1)


def test_signals_are_handled_for_as_long_as_a_job_of_the_main_thread_runs(path: Path) -> None:
    before = [signal.getsignal(number) for number in module.SIGNALS]
    with Journal(path):
        assert [signal.getsignal(number) for number in module.SIGNALS] != before
    assert [signal.getsignal(number) for number in module.SIGNALS] == before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(count, path).result() == STEPS


def test_a_job_follows_from_specs_code_inputs_and_seed(images: Dataset, tmp_path: Path) -> None:
    for name in ("one", "other"):
        images.write(tmp_path / f"{name}.h5")
    spec, changed = (parse("attack", text) for text in ("cpl", "cpl+alpha=0.5"))
    file, same = tmp_path / "one.h5", tmp_path / "other.h5"
    stage = "gleak.attacks.run_attack"
    origins = [
        origin_of(stage, [spec], [file], 1),
        origin_of(stage, [changed], [file], 1),
        origin_of("gleak.training.train_model", [spec], [file], 1),
        origin_of(stage, [spec], [file], 2),
        origin_of(stage, [spec], [file, file], 1),
    ]
    assert len(set(origins)) == len(origins)
    assert origin_of(stage, [spec], [same], 1) == origins[0]


def test_names_below_a_prefix_are_those_after_its_dot() -> None:
    assert strip_prefix("a", {"a.b": 1, "ab.c": 2, "a": 3, "a.b.c": 4}) == {"b": 1, "b.c": 4}


def test_a_checkpoint_is_an_artifact_like_others(path: Path) -> None:
    with pytest.raises(StoppedError):
        count(path, origin="this", stop_at=2)
    found = Checkpoint.read(path)
    assert found.origin == "this"
    assert {"1:done", "job:seconds", "job:cpu_seconds"} == set(found.state)
