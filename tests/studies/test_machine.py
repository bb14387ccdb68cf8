from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gleak.core.errors import DataError
from gleak.core.settings import Settings
from gleak.studies import machine as module
from gleak.studies.machine import Machine, Speed, measure_speed, read_speed, write_speed

SPEED = Speed(speed=1.5, host="node7", measured=date(2026, 1, 2))


def configured(file: Path, **keys: Any) -> Machine:
    return Machine.configured(Settings.read({"studies": [], **keys}), file)


def test_the_speed_that_was_written_is_used(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "speed.json"
    assert configured(file).relative_speed == 1
    write_speed(SPEED, file)
    assert configured(file).speed == SPEED
    assert configured(file).relative_speed == 1.5


@pytest.mark.parametrize(
    ("keys", "method"),
    [({}, "fork"), ({"start_method": "spawn"}, "spawn"), ({"device": "cuda"}, "spawn")],
)
def test_jobs_start_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], method: str
) -> None:
    monkeypatch.setattr(module, "SUPPORTED", True)
    assert configured(tmp_path / "speed.json", **keys).start_method == method
    monkeypatch.setattr(module, "SUPPORTED", False)
    assert configured(tmp_path / "speed.json", **keys).start_method == "spawn"


@pytest.mark.parametrize("content", ["", "{}", SPEED.model_dump_json().replace("1.5", "-1")])
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    file = tmp_path / "speed.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"speed\.json: .*gleak plan --measure"):
        read_speed(file)


def test_a_machine_that_needs_half_the_time_is_twice_as_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seconds(observation: object, evaluations: int) -> float:
        return 7.0 + evaluations * module.REFERENCE_SECONDS / 2

    monkeypatch.setattr(module, "_observe", object)
    monkeypatch.setattr(module, "_attack_seconds", seconds)
    assert measure_speed().speed == 2.0


def test_the_reference_attack_runs() -> None:
    assert module._attack_seconds(module._observe(), 1) > 0
