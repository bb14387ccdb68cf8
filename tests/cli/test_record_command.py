"""What ``gleak record --hours`` asks of the workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gleak.cli import record_commands
from gleak.cli.main import main
from gleak.core.errors import StoppedError


def test_the_metrics_of_the_study_are_computed_whatever_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow computes those of the configured studies."""
    asked: list[list[str]] = []

    def stop(_: Path, options: list[str], *__: Any, **___: Any) -> None:
        asked.append(options)
        raise StoppedError("stopped")

    monkeypatch.setattr(record_commands, "Workflow", stop)
    config = tmp_path / "config.yaml"
    config.write_text(f"studies: [cpl]\nresults_dir: {tmp_path}/results\n")
    words = ["record", "defences", "--scale", "quick", "--hours", "1", "--config", str(config)]
    main([*words, "--folder", str(tmp_path / "record")])
    assert [asked[0][-2:], len(asked)] == [["scale=quick", "studies=defences"], 1]
