"""Ratios to plain autograd, which are measured in the same run and printed after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LINES = pytest.StashKey[list[str]]()
Compare = Callable[[float, float, str], None]


@pytest.fixture
def compare(request: pytest.FixtureRequest, benchmark: Any) -> Compare:
    """Note a figure's CPU seconds, those of plain autograd, and for what both are."""

    def note(seconds: float, plain: float, what: str) -> None:
        ratio = seconds / plain
        benchmark.extra_info.update(ratio_to_plain_autograd=ratio, plain_seconds=plain)
        line = f"{ratio:8.3g}  {1e3 * seconds:9.3g} ms {what}  {request.node.name}"
        request.config.stash.setdefault(LINES, []).append(line)

    return note


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a line for each figure."""
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("ratio to plain autograd in this run, CPU time")
        terminalreporter.write_line("\n".join(lines))
