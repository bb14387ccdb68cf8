"""Files of a record: tables of scores and their conditions, which are written together.

The conditions of a grid are those of the cells in its table. A stop between the two files leaves
``<grid>.pending.yaml``, from which the next run that records completes the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict

from gleak.artifacts.atomic import atomic, discard, held
from gleak.core.yaml_input import load_mapping, read_model

SUFFIX = ".csv.gz"
CONDITIONS = "conditions.yaml"
PENDING = ".pending.yaml"
LOCK = ".recording.lock"


class Conditions(BaseModel):
    """Conditions under which the scores of a grid were computed, by the jobs of the last level.

    Args:
        commits: of gleak's source, "unknown" outside a git repository; several if the run was
            continued after a change.
        versions: of gleak and torch.
        devices: that computed the cells.
        threads: of a job.
        begun, ended: times of the first and the last job, in UTC.
        cells: number of cells that were computed.
        cpu_hours: without the jobs that these depend on.
        samples: numbers of samples by dataset and split, from which victims were drawn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    commits: list[str]
    versions: list[str]
    devices: list[str]
    threads: list[int]
    begun: str
    ended: str
    cells: int
    cpu_hours: float
    samples: dict[str, dict[str, int]] = {}

    def and_those_of(self, others: Conditions) -> Conditions:
        """Return the conditions of the cells of both."""
        lists = ("commits", "versions", "devices", "threads")
        return Conditions(
            **{each: distinct([*getattr(self, each), *getattr(others, each)]) for each in lists},
            begun=min(self.begun, others.begun),
            ended=max(self.ended, others.ended),
            cells=self.cells + others.cells,
            cpu_hours=round(self.cpu_hours + others.cpu_hours, 3),
            samples=self.samples | others.samples,
        )


class Pending(BaseModel):
    """Conditions that are valid from the moment at which the table has a digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    conditions: Conditions


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """Record into a folder alone; wait until another process has ended, and complete its files.

    Raises:
        ArtifactError: no permission or no space.
    """
    with held(folder / LOCK):
        for pending in sorted(folder.glob(f"*{PENDING}")):
            _complete(pending)
        yield


def save_record(grid: str, scores: pd.DataFrame, conditions: Conditions, folder: Path) -> None:
    """Write the table of a grid and its conditions into the folder of a record.

    Raises:
        ArtifactError: no permission or no space; what was recorded before is still there.
    """
    buffer = BytesIO()
    scores.to_csv(
        buffer,
        index=False,
        float_format="%.6g",
        lineterminator="\n",
        compression={"method": "gzip", "mtime": 0},  # equal tables give equal bytes
    )
    table = buffer.getvalue()
    pending = Pending(sha256=sha256(table).hexdigest(), conditions=conditions)
    _write_yaml(folder / f"{grid}{PENDING}", pending.model_dump())
    with atomic(folder / f"{grid}{SUFFIX}") as temporary:
        temporary.write_bytes(table)
    _complete(folder / f"{grid}{PENDING}")


def _complete(pending: Path) -> None:
    """Write the pending conditions of a table, unless the table was not written."""
    grid, folder = pending.name.removesuffix(PENDING), pending.parent
    written = read_model(Pending, load_mapping(pending, "pending", "fields"), str(pending))
    table = folder / f"{grid}{SUFFIX}"
    if table.is_file() and sha256(table.read_bytes()).hexdigest() == written.sha256:
        recorded = {**read_conditions(folder), grid: written.conditions}
        content = {name: facts.model_dump() for name, facts in sorted(recorded.items())}
        _write_yaml(folder / CONDITIONS, content)
    discard(pending)


def _write_yaml(path: Path, content: Any) -> None:
    with atomic(path) as temporary:
        temporary.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def read_conditions(folder: Path) -> dict[str, Conditions]:
    """Return the conditions of each recorded grid; none if there is no record.

    Raises:
        SpecError: the file is not valid; names it.
    """
    path = folder / CONDITIONS
    if not path.is_file():
        return {}
    content = load_mapping(path, "conditions of a record", "grids")
    return {
        grid: read_model(Conditions, facts, f"{path}: {grid}") for grid, facts in content.items()
    }


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return different values in order of first appearance."""
    return list(dict.fromkeys(values))
