"""Report of ``gleak rehearse``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from textwrap import fill

from gleak.cli.common import WIDTH
from gleak.core.errors import SpecError, nearest
from gleak.core.settings import Settings
from gleak.rehearsal.rehearse_cells import GridReport, Outcome, Rehearsal
from gleak.runtime.virtual_gpu import GIGABYTE
from gleak.studies.cell import Cell
from gleak.studies.study import Study

NOTE = (
    "Memory of all tensors at once, in a GPU of {memory:g} GB, of which an attack takes as many "
    "victims at once as fit; without CUDA's context (about 0.5 GB), cuDNN's workspace and the "
    "growth of the histories of L-BFGS. Not rehearsed are what the CPU computes: datasets, "
    "crafting, encodings of defences, scores, figures."
)


def rehearse_studies(
    studies: Sequence[Study], settings: Settings, grids: Collection[str], memory: float
) -> int:
    """Rehearse studies and print a line for each grid, and one for each kind of failure.

    Args:
        studies: examined at the scale of the settings.
        settings: of the run.
        grids: names of the grids to rehearse; empty for all.
        memory: of the GPU, in gigabytes.

    Returns:
        1 if a cell failed, else 0.

    Raises:
        SpecError: there is no such grid.
    """
    known = {name for study in studies for name in study.grids}
    if unknown := [name for name in grids if name not in known]:
        raise SpecError(f"--grid: unknown grid {unknown[0]!r}; {nearest(unknown[0], known)}")
    rehearsal = Rehearsal(int(memory * GIGABYTE), settings.data_dir)
    failed = 0
    for study in studies:
        for name in study.grids:
            if not grids or name in grids:
                report = rehearsal.grid(study.name, study.grid(name, settings.scale))
                print(describe(report), flush=True)
                failed += len(report.failed)
    print(fill(NOTE.format(memory=memory), WIDTH))
    return min(failed, 1)


def describe(report: GridReport) -> str:
    """Describe the rehearsal of a grid: counts, the largest memory, and every failure once."""
    counts = {
        "ok": len(report.outcomes) - len(report.failed),
        "failed": len(report.failed),
        "refused": report.refused,
    }
    found = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    lines = [f"{report.study} {report.grid}: {found or 'no cells'}{_largest(report)}"]
    return "\n".join([*lines, *_failures(report)])


def _largest(report: GridReport) -> str:
    passed = {cell: each for cell, each in report.outcomes.items() if not each.fault}
    if not passed:
        return ""
    cell, most = max(passed.items(), key=lambda pair: pair[1].bytes)
    return f"; at most {most.bytes / GIGABYTE:.2g} GB ({most.stage} of {cell})"


def _failures(report: GridReport) -> list[str]:
    """Return a line for each fault, with its first cell and the number of the others."""
    cells: dict[Outcome, list[Cell]] = defaultdict(list)
    for cell, outcome in report.failed.items():
        cells[outcome].append(cell)
    return [
        f"  stage {outcome.stage} of {first}{f' and {len(others)} others' if others else ''}: "
        f"{outcome.fault}"
        for outcome, (first, *others) in cells.items()
    ]
