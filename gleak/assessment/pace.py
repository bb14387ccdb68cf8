"""Speed of the attacks on the deployment's own clients, by which its assessment is sized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gleak.assessment.adequacy import with_default_budget
from gleak.core.settings import Scale
from gleak.runtime import provenance
from gleak.studies.axis_labels import is_control
from gleak.studies.cell import Cell
from gleak.studies.estimate import Plan
from gleak.studies.machine import START_SECONDS, Machine
from gleak.studies.stage_files import reconstruction_of
from gleak.studies.stages import path_of
from gleak.studies.study import Study


class Timed(NamedTuple):
    """CPU time of an attack for one client, by its budget."""

    evaluations: int
    seconds: float


@dataclass(frozen=True)
class Pace:
    """CPU time of the attack on the clients of each cell, measured with small budgets.

    The time of a client is a constant, such as for closed forms, and a multiple of the evaluations.
    If it was measured with one budget, all of it is taken as such a multiple.

    Args:
        timed: cell with default sizes -> its times, with ascending budgets.
        total: seconds that measuring took.
        results: folder of all outputs.
        made: outputs of the attacks that were measured, which are not made again.
    """

    timed: Mapping[Cell, Sequence[Timed]]
    total: float
    results: Path
    made: frozenset[Path] = frozenset()

    def minutes(self, study: Study, scale: Scale, plan: Plan, machine: Machine) -> float:
        """Return the time of a study on one core: attacks as measured, others as estimated."""
        measured = {
            path_of(reconstruction_of(cell), self.results): seconds
            for cell in attacked(study, scale)
            if (seconds := self._seconds(cell)) is not None
        }
        start = START_SECONDS[machine.start_method] / machine.relative_speed
        return (
            sum(
                start + measured[job.output] if job.output in measured else job.seconds(machine)
                for job in plan
                if job.output not in self.made
            )
            / 60
        )

    def _seconds(self, cell: Cell) -> float | None:
        """Return the time of the attack on all clients of a cell; None if it was not measured."""
        times = self.timed.get(_at_default_size(cell))
        if times is None:
            return None
        last, slope = times[-1], 0.0
        if len(times) == 1 and last.evaluations:
            slope = last.seconds / last.evaluations
        for few, many in pairwise(times):
            if many.evaluations > few.evaluations:
                rate = (many.seconds - few.seconds) / (many.evaluations - few.evaluations)
                slope = max(0.0, rate)
        constant = max(0.0, last.seconds - slope * last.evaluations)
        victims: int = cell.client.victims
        return victims * (constant + slope * _evaluations(cell))


def attacked(study: Study, scale: Scale) -> Iterator[Cell]:
    """Yield the cells of all grids whose samples are attacked, controls left out, each once."""
    cells = dict.fromkeys(cell for name in study.grids for cell in study.grid(name, scale).cells)
    yield from (cell for cell in cells if cell.end_kind == "attack" and not is_control(cell))


def read_pace(pilots: Sequence[Study], scale: Scale, results: Path) -> Pace | None:
    """Return the pace by small assessments, of ascending budgets, as far as they were run.

    None if the first was not.
    """
    timed: dict[Cell, list[Timed]] = {}
    made: set[Path] = set()
    total = 0.0
    for pilot in pilots:
        cells = [
            (cell, path_of(reconstruction_of(cell), results)) for cell in attacked(pilot, scale)
        ]
        if not all(file.is_file() for _, file in cells):
            break
        made |= {file for _, file in cells}
        for cell, file in cells:
            if not (file.parent / provenance.FILE).is_file():  # refused in its job
                continue
            seconds = float(provenance.load(file.parent)["cpu_seconds"])
            total += seconds
            each = Timed(_evaluations(cell), seconds / cell.client.victims)
            timed.setdefault(_at_default_size(cell), []).append(each)
    return Pace(timed, total, results, frozenset(made)) if made else None


def _at_default_size(cell: Cell) -> Cell:
    """Return a cell with the default number of victims and budget."""
    sizes = {"client": cell.client.setting(), "attack": with_default_budget(cell.attack)}
    return Cell({**cell.specs, **sizes})


def _evaluations(cell: Cell) -> int:
    found: int = cell.attack.cost().evaluations
    return found
