"""Captured updates beside the training that they are described with."""

from __future__ import annotations

from collections.abc import Iterator

from gleak.assessment.findings import Agreement
from gleak.assessment.resolved import Resolved
from gleak.captures.locations import Captures

KEPT = (
    "not computed again: the optimizer began with the state of an earlier round (state=kept), a "
    "secret of the client, which only gleak import has read; it has said how its updates fit"
)
"""What is said of updates that true samples alone do not determine."""


def agreements(resolved: Resolved) -> Iterator[Agreement]:
    """Yield for each capture how its updates fit to the described training.

    The updates are computed again from the true samples if these are known. Of clients whose
    optimiser began with an unknown state they cannot be, which contradicts nothing.
    """
    from gleak.captures.importing import check_again, describe_agreement

    captures = Captures(resolved.settings.captures)
    for cell in resolved.captured:
        found = check_again(cell, captures)
        unknown = cell.captured.state == "kept" and found.comparison is not None
        error = None if found.comparison is None or unknown else found.comparison.error
        text = KEPT if unknown else describe_agreement(found, cell.captured)
        yield Agreement(
            capture=cell.captured.capture,
            error=error,
            agrees=found.agrees or unknown,
            text=" ".join(text.removeprefix("warning: ").split()),
        )
