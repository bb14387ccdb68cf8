"""Captured updates beside the training that they are described with."""

from __future__ import annotations

from collections.abc import Iterator

from gleak.assessment.findings import Agreement
from gleak.assessment.resolved import Resolved
from gleak.captures.locations import Captures


def agreements(resolved: Resolved) -> Iterator[Agreement]:
    """Yield for each capture how its updates fit to the described training.

    The updates are computed again from the true samples if these are known. Of clients whose
    optimiser began with an unknown state they cannot be, which contradicts nothing.
    """
    from gleak.captures.importing import check_again, describe_agreement

    captures = Captures(resolved.settings.captures)
    for cell in resolved.captured:
        found = check_again(cell, captures)
        error = None if found.comparison is None else found.comparison.error
        unknown = cell.captured.state == "kept" and found.doubt is None
        text = describe_agreement(found, cell.captured)
        yield Agreement(
            capture=cell.captured.capture,
            error=error,
            agrees=found.agrees or unknown,
            text=" ".join(text.removeprefix("warning: ").split()),
        )
