"""Studies: one file per paper, read into grids of cells, figures and expectations.

Snakemake imports this module to build its graph, so nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import find, load
from gleak.core.settings import SCALES, Scale
from gleak.core.spec import build_spec
from gleak.core.yaml_input import load_mapping, read_model
from gleak.studies.at_scales import AtScales, starting_with
from gleak.studies.axis_values import AxisReader
from gleak.studies.captions import Conditions, caption, summarise_conditions
from gleak.studies.cell import Cell
from gleak.studies.claims import Expectation, sort_of, written_claims
from gleak.studies.grid import Grid, check_labels, expand
from gleak.studies.refusals import Refusal
from gleak.studies.search.chosen import Adopted, chosen_file, read_choices
from gleak.studies.search.declaration import Search, SearchFile, read_search
from gleak.studies.shown_metrics import (
    Instead,
    check_instead,
    claim_with,
    figure_with,
    shown_metrics,
)
from gleak.studies.study_file import GridFile, StudyFile, inherited

if TYPE_CHECKING:
    from gleak.studies.figure_spec import FigureSpec

T = TypeVar("T")


@dataclass(frozen=True)
class Study:
    """A paper's experiments.

    Args:
        name: name of the file without its suffix.
        title, paper: texts of the study file.
        grids: name -> scale -> grid.
        figures: name -> spec.
        expectations: claims, in the order of the file.
        searches: name -> scale -> search.
        metrics: scale -> metrics of figures and claims -> those that are measured in their place.
    """

    name: str
    title: str
    paper: str
    grids: Mapping[str, Mapping[str, Grid]]
    figures: Mapping[str, FigureSpec]
    expectations: list[Expectation]
    searches: Mapping[str, Mapping[str, Search]]
    metrics: Mapping[str, Instead] = field(default_factory=dict)

    def grid(self, name: str, scale: str) -> Grid:
        """Return a grid at a scale.

        Raises:
            SpecError: the grid or scale is unknown, or an attack refers to a search that has
                changed since its result was adopted.
        """
        with error_context(f"study {self.name!r}"):
            grid: Grid = _known("scale", scale, _known("grid", name, self.grids))
        with error_context(f"study {self.name!r}, grid {name!r}, scale {scale!r}"):
            for search in grid.searches.values():
                search.check_choice()
        return grid

    def examined(self, scale: str, data_dir: Path) -> Study:
        """Return the study without, at one scale, the cells that user-defined networks do not fit.

        These cells become refusals. Nothing is built if no model is user-defined.

        Args:
            scale: scale at which networks are built.
            data_dir: the user's data folder.

        Raises:
            SpecError: the scale is unknown, or a module or function does not exist.
            IncompatibleError: a grid has no attacked cell left.
        """
        grids: dict[str, Mapping[str, Grid]] = {}
        for name, scales in self.grids.items():
            with error_context(f"study {self.name!r}, grid {name!r}, scale {scale!r}"):
                grid: Grid = _known("scale", scale, scales)
                grids[name] = _replaced(scales, scale, grid.examined(data_dir))
        return replace(self, grids=grids)

    def refused(self, scale: str) -> dict[str, tuple[Refusal, ...]]:
        """Return the refused cells of each grid at a scale."""
        return {name: scales[scale].refused for name, scales in self.grids.items()}

    def search(self, name: str, scale: str) -> Search:
        """Return a search at a scale.

        Raises:
            SpecError: the search or scale is unknown.
        """
        with error_context(f"study {self.name!r}"):
            search: Search = _known("scale", scale, _known("search", name, self.searches))
        return search

    def check_choices(self) -> None:
        """Raise an error if a search has changed since its result was adopted.

        Raises:
            SpecError: a search has changed; names the first, and its scale.
        """
        for scales in self.searches.values():
            for scale, search in scales.items():
                with error_context(f"study {self.name!r}, scale {scale!r}"):
                    search.check_choice()

    def substitutes(self, scale: str) -> list[str]:
        """Return a line for each search without an adopted result at a scale: what is used."""
        searches = [scales[scale] for scales in self.searches.values()]
        return [search.substitute for search in searches if search.substitute]

    def figure(self, name: str, scale: str = "paper") -> FigureSpec:
        """Return a figure's spec, with the metrics that are measured at a scale.

        Raises:
            SpecError: the figure is unknown.
        """
        with error_context(f"study {self.name!r}"):
            found: FigureSpec = _known("figure", name, self.figures)
        return figure_with(found, self.metrics.get(scale, {}))

    def claims(self, scale: str) -> list[Expectation]:
        """Return the expectations, with the metrics that are measured at a scale."""
        instead = self.metrics.get(scale, {})
        return [claim_with(claim, instead) for claim in self.expectations]

    def caption(self, figure: str, scale: str) -> str:
        """Return a figure's caption with the conditions of a scale; see `captions.caption`."""
        grids = zip(self.drawn(figure, scale), self.drawn(figure, "paper"), strict=True)
        return caption(self.figure(figure), list(grids), scale)

    def conditions(self, figure: str, scale: str) -> Conditions:
        """Return the conditions that are printed below a figure; see `summarise_conditions`."""
        return summarise_conditions(self.figure(figure), self.drawn(figure, scale), scale)

    def position(self, figure: str) -> int:
        """Return the place of a figure in the order of the study file, from 1."""
        return list(self.figures).index(figure) + 1

    def drawn(self, figure: str, scale: str) -> list[Grid]:
        """Return the grids that a figure plots; empty for figures of registered specs."""
        return [self.grid(name, scale) for name in self.figure(figure).grids]

    def shown_cells(self, figure: str, scale: str) -> list[Cell]:
        """Return the cells whose reconstructions a figure shows, refused cells included.

        Empty if the figure plots scores.
        """
        spec = self.figure(figure)
        if spec.needs != "reconstructions":
            return []
        grids = self.drawn(figure, scale)
        return [c for g in grids for c in spec.chosen(g.names, g.scored_cells)]

    def shown(self, figure: str, scale: str) -> list[Cell]:
        """Return the cells whose reconstructions a figure needs; empty if it plots scores."""
        shown = set(self.shown_cells(figure, scale))
        grids = self.drawn(figure, scale)
        return [cell for grid in grids for cell in grid.cells if cell in shown]


def load_study(path: Path | str, scales: Sequence[Scale] = SCALES) -> Study:
    """Read a study file and check it.

    Adopted results of searches are read from the folder ``chosen/`` next to it. If a search has no
    adopted result, or has changed since, its base attack is used.

    Args:
        path: of the study file.
        scales: scales at which grids are read and checked; at the others, when they are first used.

    Raises:
        SpecError: the file is invalid; names the file, study, grid, scale and axis, and the nearest
            valid name.
        IncompatibleError: all cells of a grid are incompatible.
    """
    path = Path(path)
    where = f"{path}: study {path.stem!r}"
    file = read_model(StudyFile, _load_file(path), where)
    adopted = _read_adopted(chosen_file(path), file.searches)
    searches: dict[str, AtScales[Search]] = {}
    for name in file.searches:
        searches[name] = _search_of(name, file, adopted, dict(searches), where)
    grids = _grids(file, searches, scales, where)
    study = Study(
        name=path.stem,
        title=file.title,
        paper=file.paper,
        grids=grids,
        figures={
            name: _figure(written, grids, scales, f"{where}, figure {name!r}")
            for name, written in file.figures.items()
        },
        expectations=[
            _expectation(written, grids, scales, f"{where}, expect {written.get('id', place)!r}")
            for place, written in enumerate(_claims(file, where), start=1)
        ],
        searches=searches,
        metrics={scale: {**file.metrics, **file.changes(scale).metrics} for scale in SCALES},
    )
    _check_ids(study, where)
    shown = list(shown_metrics(study.figures.values(), study.expectations))
    for scale, instead in study.metrics.items():
        with error_context(f"{where}, scale {scale!r}"):
            check_instead(instead, shown)
    return study


def _load_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        hint = nearest(path.stem, {file.stem for file in path.parent.glob("*.yaml")})
        raise SpecError(f"{path}: no study file; {hint}")
    return load_mapping(path, "study file", "title, paper, grids, figures")


def _search_of(
    name: str,
    study: StudyFile,
    adopted: Adopted,
    earlier: Mapping[str, Mapping[str, Search]],
    where: str,
) -> AtScales[Search]:
    """Return a search, given those that are written before it."""
    with error_context(f"{where}, searches"):
        written = inherited(name, study.searches, merged=SCALES)
    place = f"{where}, search {name!r}"
    file = read_model(SearchFile, written, place)

    def read(scale: Scale) -> Search:
        with error_context(f"{place}, scale {scale!r}"):
            search = read_search(name, file.at(scale), file.patches(scale))
            if file.after is not None:
                search = search.after(_known("earlier search", file.after, earlier)[scale])
            entry = adopted.get(scale, {}).get(name)
            return search if entry is None else search.adopting(entry)

    return AtScales(read)


def _read_adopted(path: Path, searches: Collection[str]) -> Adopted:
    """Return the adopted results of the study's searches, by scale."""
    adopted = read_choices(path)
    for name in (name for entries in adopted.values() for name in entries):
        if name not in searches:
            raise SpecError(
                f"{path}: the study has no search {name!r}; take it out, {nearest(name, searches)}"
            )
    return adopted


def _grids(
    study: StudyFile,
    searches: Mapping[str, AtScales[Search]],
    scales: Sequence[Scale],
    where: str,
) -> dict[str, AtScales[Grid]]:
    """Return every grid, read and checked at some scales."""
    for search in searches.values():
        search.compute(scales)
    readers = AtScales(lambda scale: AxisReader(study, scale, _at(scale, searches)))
    files = {name: _grid_file(name, study, where) for name in study.grids}
    grids = {name: _grid(name, file, readers, where) for name, file in files.items()}
    for grid in grids.values():
        grid.compute(scales)
    for name, file in files.items():
        with error_context(f"{where}, grid {name!r}, labels"):
            check_labels(file.labels, (grid.names for grid in grids[name].values_from(scales)))
    with error_context(f"{where}, labels"):
        every = (grid for scale in starting_with(scales) for grid in _at(scale, grids).values())
        check_labels(study.labels, (grid.names for grid in every))
    with error_context(where):
        for scale in scales:
            readers[scale].check_patches()
    return grids


def _at(scale: Scale, known: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    return {name: values[scale] for name, values in known.items()}


def _grid(name: str, file: GridFile, readers: AtScales[AxisReader], where: str) -> AtScales[Grid]:
    return AtScales(lambda scale: expand(name, file, readers[scale], f"{where}, grid {name!r}"))


def _grid_file(name: str, study: StudyFile, where: str) -> GridFile:
    with error_context(f"{where}, grids"):
        written = inherited(name, study.grids, merged=("labels", *SCALES))
    return read_model(GridFile, written, f"{where}, grid {name!r}")


def _claims(study: StudyFile, where: str) -> list[dict[str, Any]]:
    with error_context(f"{where}, expect"):
        return list(written_claims(study.expect))


def _figure(
    written: Mapping[str, Any],
    grids: Mapping[str, AtScales[Grid]],
    scales: Sequence[Scale],
    where: str,
) -> FigureSpec:
    fields = dict(written)
    with error_context(where):
        kind = fields.pop("kind", None)
        if not isinstance(kind, str):
            fault = "missing" if kind is None else "no name"
            raise SpecError(f"key 'kind' is {fault}; valid: {', '.join(load('figure'))}")
        spec: Any = build_spec(find("figure", kind), fields)
        drawn = [_known("grid", name, grids) for name in spec.grids]
    for scale in scales:
        with error_context(f"{where}, scale {scale!r}"):
            spec.check_together([(g[scale].names, g[scale].scored_cells) for g in drawn])
    return spec


def _expectation(
    written: Mapping[str, Any],
    grids: Mapping[str, AtScales[Grid]],
    scales: Sequence[Scale],
    where: str,
) -> Expectation:
    with error_context(where):
        expectation = read_model(sort_of(written), written, "expectation")
        judged = _known("grid", expectation.grid, grids)
        expectation.check(grid.names for grid in judged.values_from(scales))
    for scale in scales:
        with error_context(f"{where}, scale {scale!r}"):
            expectation.groups(judged[scale].names, judged[scale].scored_cells)
    return expectation


def _check_ids(study: Study, where: str) -> None:
    ids = [expectation.id for expectation in study.expectations]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise SpecError(f"{where}, expect: id {', '.join(twice)} is given twice")


def _replaced(scales: Mapping[str, Grid], scale: str, grid: Grid) -> AtScales[Grid]:
    """Return a grid's scales with another grid at one of them."""
    return AtScales(lambda each: grid if each == scale else scales[each])


def _known(what: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise SpecError(f"unknown {what} {name!r}; {nearest(name, known)}")
    return known[name]
