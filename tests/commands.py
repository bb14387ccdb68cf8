"""What tests of commands share."""

from __future__ import annotations

import pytest

from gleak.cli.main import main

Capture = pytest.CaptureFixture[str]


def fails(capsys: Capture, *words: str) -> str:
    """The one line on stderr of a command that cannot be carried out."""
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gleak: ")
    assert captured.err.count("\n") == 1
    return captured.err
