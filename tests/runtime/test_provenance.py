from __future__ import annotations

import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gleak.core.errors import ArtifactError
from gleak.runtime import provenance
from gleak.runtime.provenance import load, record


def test_circumstances_and_cost_are_written(tmp_path: Path) -> None:
    with record(tmp_path / "new", rule="attack") as facts:
        started = time.process_time()
        while time.process_time() - started < 0.05:
            pass
        time.sleep(0.1)
        facts["victims"] = np.int64(3)
        facts["device"] = torch.device("cpu")
    found = load(tmp_path / "new")
    assert found["seconds"] >= 0.14
    assert 0.05 <= found["cpu_seconds"] < found["seconds"]
    assert 10 < found["peak_memory_mb"] < 1e5
    assert datetime.fromisoformat(found["time"]).utcoffset().total_seconds() == 0
    assert (found["rule"], found["victims"], found["device"]) == ("attack", 3, "cpu")
    assert found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert found["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found["threads"] == torch.get_num_threads()
    assert found["host"]
    assert "peak_gpu_memory_mb" not in found


def test_peak_memory_is_that_of_the_process(tmp_path: Path) -> None:
    code = (
        "import sys; from gleak.runtime.provenance import record\n"
        "with record(sys.argv[1]):\n    block = bytearray(300_000_000)\n    del block\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert 300 < load(tmp_path)["peak_memory_mb"] < 500


def test_nothing_is_written_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), record(tmp_path):
        raise KeyError("work")
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_was_used_is_recorded_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated, forgotten = [1_000_000, 7_250_000], []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        reset_peak_memory_stats=forgotten.append,
        max_memory_allocated=lambda number: allocated[number],
        get_device_name=lambda number: f"GPU {number}",
        synchronize=lambda: time.sleep(0.05),
    )
    fake = SimpleNamespace(cuda=cuda, get_num_threads=lambda: 4)
    monkeypatch.setitem(sys.modules, "torch", fake)
    with record(tmp_path):
        assert forgotten == [0, 1]
    found = load(tmp_path)
    assert (found["device"], found["peak_gpu_memory_mb"]) == ("GPU 1", 7.2)
    assert found["seconds"] >= 0.05 > found["cpu_seconds"]
    allocated[:] = [0, 0]
    with record(tmp_path):
        pass
    assert load(tmp_path)["device"] == "cpu"


def test_the_commit_is_that_of_the_source_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    assert provenance._commit() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    assert len(provenance._commit() or "") == 40
    monkeypatch.setenv("PATH", "")
    assert provenance._commit() is None


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    for content in (None, "{"):
        if content is not None:
            (tmp_path / "provenance.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"provenance\.json: cannot be read"):
            load(tmp_path)
