"""Command ``gleak rehearse``: all stages of studies without data on a virtual GPU."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from textwrap import fill

from gleak.cli.common import WIDTH, add_config_option, add_scale_option
from gleak.cli.study_commands import add_studies, read_studies
from gleak.core.errors import SpecError, nearest
from gleak.rehearsal.rehearse_cells import GridReport, Rehearsal, RehearsalOutcome
from gleak.runtime.virtual_gpu import GIGABYTE
from gleak.studies.cell import Cell

NOTE = (
    "Memory of all tensors at once, in a GPU of {memory:g} GB, of which an attack takes as many "
    "victims at once as fit; without CUDA's context (about 0.5 GB), cuDNN's workspace and the "
    "growth of the histories of L-BFGS. Not rehearsed are what the CPU computes: datasets, "
    "crafting, encodings of defences, scores, figures."
)


def add_rehearse(command: ArgumentParser) -> None:
    add_studies(command)
    add_scale_option(command)
    command.add_argument(
        "--grid", action="append", default=[], metavar="GRID", dest="grids", help="only this"
    )
    text = "memory of the GPU in gigabytes; default 80"
    command.add_argument("--memory", type=float, default=80.0, metavar="GB", help=text)
    add_config_option(command)


def run_rehearse(arguments: Namespace) -> int:
    """Print a line for each grid, and one for each kind of failure; return 1 if a cell failed."""
    settings, studies = read_studies(arguments)
    wanted, memory = arguments.grids, arguments.memory
    known = {name for study in studies for name in study.grids}
    if unknown := [name for name in wanted if name not in known]:
        raise SpecError(f"--grid: unknown grid {unknown[0]!r}; {nearest(unknown[0], known)}")
    rehearsal = Rehearsal(int(memory * GIGABYTE), settings.data_dir)
    failed = 0
    for study in studies:
        for name in study.grids:
            if not wanted or name in wanted:
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
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    line = f"{report.study} {report.grid}: {counted or 'no cells'}"
    passed = {cell: outcome for cell, outcome in report.outcomes.items() if not outcome.fault}
    if passed:
        cell, most = max(passed.items(), key=lambda pair: pair[1].bytes)
        line += f"; at most {most.bytes / GIGABYTE:.2g} GB ({most.stage} of {cell})"
    cells: dict[RehearsalOutcome, list[Cell]] = defaultdict(list)
    for cell, outcome in report.failed.items():
        cells[outcome].append(cell)
    faults = [
        f"  stage {outcome.stage} of {first}{f' and {len(others)} others' if others else ''}: "
        f"{outcome.fault}"
        for outcome, (first, *others) in cells.items()
    ]
    return "\n".join([line, *faults])
