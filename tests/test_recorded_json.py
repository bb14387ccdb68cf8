from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_json import RecordedJson

LOSS = {"properties": {"client": {"type": "integer"}, "value": {"type": "number"}}}
DOCUMENTS = RecordedJson(
    {
        "properties": {
            "when": {"type": "string", "varies": True},
            "verdict": {"type": "string"},
            "mean": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "bounds": {"additionalProperties": {"type": "number"}},
            "written": {"additionalProperties": True},
            "losses": {"items": {"$ref": "#/definitions/Loss"}},
        },
        "definitions": {"Loss": LOSS},
    }
)
DOCUMENT = {
    "when": "today",
    "verdict": "exposed",
    "mean": 0.5,
    "bounds": {"epsilon": 2.5},
    "written": {"sigma": 0.1},
    "losses": [{"client": 2, "value": 0.9}, {"client": 1, "value": 0.8}],
}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "recorded.json"
    monkeypatch.setenv("RECORD", "1")
    DOCUMENTS.check(DOCUMENT, file)
    monkeypatch.delenv("RECORD")
    return file


def test_numbers_their_order_and_what_varies_are_left_out(recorded: Path) -> None:
    losses = [{"client": 1, "value": 0.91}, {"client": 2, "value": 0.9}]
    changes = {"when": "now", "mean": 0.6, "bounds": {"epsilon": 3.5}, "losses": losses}
    DOCUMENTS.check({**DOCUMENT, **changes}, recorded)
    assert "today" not in recorded.read_text()
    assert json.loads(recorded.read_text())["written"] == {"sigma": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "not found"},
        {"mean": None},
        {"bounds": {}},
        {"written": {"sigma": 0.2}},
        {"losses": [{"client": 2, "value": 0.9}]},
        {"more": 1},
    ],
)
def test_everything_else_is_compared(recorded: Path, change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="RECORD=1"):
        DOCUMENTS.check({**DOCUMENT, **change}, recorded)
