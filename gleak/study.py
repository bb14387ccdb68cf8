"""Studies: one file per paper, read into grids of cells, figures and expectations.

Importing this builds the workflow's graph, so nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from gleak.cell import Cell
from gleak.errors import SpecError, nearest
from gleak.figures.captions import caption
from gleak.figures.expectations import Expectation, sort_of
from gleak.grid import SCALES, Grid, GridFile, at, check_labels, expand
from gleak.registry import find
from gleak.spec import build_spec

if TYPE_CHECKING:
    from gleak.figures.base import FigureSpec

M = TypeVar("M", bound=BaseModel)


class StudyFile(BaseModel):
    """A study file's own keys; what stands below them is read in turn.

    Args:
        title: of the study.
        paper: a short citation.
        grids: name -> axes, see `gleak.grid.GridFile`.
        figures: name -> kind and the fields of that kind, see ``gleak list figure``.
        expect: relations the paper claims, see `gleak.figures.expectations`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    paper: str
    grids: dict[str, dict[str, Any]]
    figures: dict[str, dict[str, Any]]
    expect: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Study:
    """A paper's experiments.

    Args:
        name: of the file, without its suffix.
        title, paper: as written.
        grids: name -> scale -> grid.
        figures: name -> spec.
        expectations: in the order written.
    """

    name: str
    title: str
    paper: str
    grids: Mapping[str, Mapping[str, Grid]]
    figures: Mapping[str, FigureSpec]
    expectations: list[Expectation]

    def grid(self, name: str, scale: str) -> Grid:
        """The cells of a grid at a scale.

        Raises:
            SpecError: no such grid or scale.
        """
        with at(f"study {self.name!r}"):
            return _known("scale", scale, _known("grid", name, self.grids))

    def figure(self, name: str) -> FigureSpec:
        """A figure's spec.

        Raises:
            SpecError: no such figure.
        """
        with at(f"study {self.name!r}"):
            return _known("figure", name, self.figures)

    def caption(self, figure: str, scale: str) -> str:
        """A figure's caption with the conditions of a scale; see `gleak.figures.captions`."""
        spec = self.figure(figure)
        return caption(spec, self.grid(spec.grid, scale))

    def shown(self, figure: str, scale: str) -> list[Cell]:
        """The cells whose images a figure needs; none for figures that are drawn from scores."""
        spec = self.figure(figure)
        if spec.needs != "images":
            return []
        grid = self.grid(spec.grid, scale)
        chosen = spec.chosen(grid.names, grid.scored)
        return [cell for cell in grid.cells if cell.strings() in chosen]


def load_study(path: Path | str) -> Study:
    """Read a study file and check all of it, at every scale.

    Raises:
        SpecError: what cannot be used as written: names the file, study, grid, scale and axis, and
            the nearest valid name.
        FitError: specs that do not fit together.
    """
    path = Path(path)
    where = f"{path}: study {path.stem!r}"
    file = _read(StudyFile, _load_yaml(path), where)
    grids = {name: _grids(name, written, where) for name, written in file.grids.items()}
    study = Study(
        name=path.stem,
        title=file.title,
        paper=file.paper,
        grids=grids,
        figures={
            name: _figure(written, grids, f"{where}, figure {name!r}")
            for name, written in file.figures.items()
        },
        expectations=[
            _expectation(written, grids, f"{where}, expect {written.get('id', place)!r}")
            for place, written in enumerate(file.expect, start=1)
        ],
    )
    _check_ids(study, where)
    return study


def _load_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = nearest(path.stem, {file.stem for file in path.parent.glob("*.yaml")})
        raise SpecError(f"{path}: no study file; {hint}") from None
    except OSError as error:
        raise SpecError(f"{path}: no study file can be read there ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise SpecError(f"{path}: a study file holds a mapping: title, paper, grids, figures")
    return content


def _read(cls: type[M], written: Mapping[str, Any], where: str) -> M:
    """Build a model, all of its faults in one error."""
    try:
        return cls.model_validate(written)
    except ValidationError as error:
        faults = "; ".join(_describe(cls, fault) for fault in error.errors())
        raise SpecError(f"{where}: {faults}") from None


def _describe(cls: type[BaseModel], fault: Any) -> str:
    key = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {nearest(key, cls.model_fields)}"
    if fault["type"] == "missing":
        return f"key {key!r} is missing"
    return f"{key} = {fault['input']!r}: {fault['msg']}"


def _grids(name: str, written: dict[str, Any], where: str) -> dict[str, Grid]:
    """A grid at every scale."""
    place = f"{where}, grid {name!r}"
    file = _read(GridFile, written, place)
    grids: dict[str, Grid] = {scale: expand(name, file, scale, place) for scale in SCALES}
    with at(f"{place}, labels"):
        check_labels(file, [grid.names for grid in grids.values()])
    return grids


def _figure(
    written: Mapping[str, Any], grids: Mapping[str, Mapping[str, Grid]], where: str
) -> FigureSpec:
    fields = dict(written)
    with at(where):
        if "kind" not in fields:
            raise SpecError("key 'kind' is missing: table, line, bar or images")
        spec: Any = build_spec(find("figure", fields.pop("kind")), fields)
        scales = _known("grid", spec.grid, grids)
    for scale, grid in scales.items():
        with at(f"{where}, scale {scale!r}"):
            spec.check(grid.names, grid.scored)
    return spec


def _expectation(
    written: Mapping[str, Any], grids: Mapping[str, Mapping[str, Grid]], where: str
) -> Expectation:
    with at(where):
        expectation = _read(sort_of(written), written, "expectation")
        scales = _known("grid", expectation.grid, grids)
        expectation.check([grid.names for grid in scales.values()])
    return expectation


def _check_ids(study: Study, where: str) -> None:
    ids = [expectation.id for expectation in study.expectations]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise SpecError(f"{where}, expect: id {', '.join(twice)} is given twice")


def _known(what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise SpecError(f"unknown {what} {name!r}; {nearest(name, known)}")
    return known[name]
