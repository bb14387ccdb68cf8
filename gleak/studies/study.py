"""Studies: one file per paper, read into grids of cells, figures and expectations.

Snakemake imports this module to build its graph, so nothing heavy is imported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import find, load
from gleak.core.settings import SCALES, Scale
from gleak.core.spec import build_spec
from gleak.core.yaml_input import load_mapping, read_model
from gleak.metrics.base import MetricSpec, ScoreSpec
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.axis_values import AxisReader
from gleak.studies.captions import caption, summarise_conditions
from gleak.studies.cell import Cell
from gleak.studies.claims import Expectation, Hides, sort_of, written_claims
from gleak.studies.figure_spec import FigureSpec, GridFigure, Instead
from gleak.studies.gates import Gates
from gleak.studies.grid import Grid, GridReader, Refusal, check_labels
from gleak.studies.search.chosen import Adopted, chosen_file, read_choices
from gleak.studies.search.declaration import SearchFile, SpecSearch, read_search
from gleak.studies.study_file import GridFile, StudyFile, inherited

T = TypeVar("T")


class AtScales(Mapping[str, T]):
    """Mapping from every scale to a value that is computed when it is first used."""

    def __init__(self, compute: Callable[[Scale], T]) -> None:
        self._compute = cache(compute)

    def __getitem__(self, scale: str) -> T:
        for known in SCALES:
            if known == scale:
                return self._compute(known)
        raise KeyError(scale)

    def __iter__(self) -> Iterator[str]:
        return iter(SCALES)

    def __len__(self) -> int:
        return len(SCALES)


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
        absent: scale -> grids that it does not have.
    """

    name: str
    title: str
    paper: str
    grids: Mapping[str, Mapping[str, Grid]]
    figures: Mapping[str, FigureSpec]
    expectations: list[Expectation]
    searches: Mapping[str, Mapping[str, SpecSearch]]
    metrics: Mapping[str, Instead] = field(default_factory=dict)
    absent: Mapping[str, frozenset[str]] = field(default_factory=dict)

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

    @property
    def scales(self) -> list[Scale]:
        """Scales that have a grid."""
        return [scale for scale in SCALES if {*self.grids} - self.absent.get(scale, frozenset())]

    def at(self, scale: str) -> Study:
        """Return the study with the grids that a scale has, their figures and claims."""
        absent = self.absent.get(scale)
        if not absent:
            return self
        grids = {name: grid for name, grid in self.grids.items() if name not in absent}
        drawn = {
            name: figure
            for name, figure in self.figures.items()
            if figure.grids and absent.isdisjoint(figure.grids)
        }
        claims = [claim for claim in self.expectations if claim.grid in grids]
        return replace(self, grids=grids, figures=drawn, expectations=claims)

    def examined(self, scale: str, data_dir: Path) -> Study:
        """Return the study without, at one scale, the cells that user-defined networks do not fit.

        These cells become refusals. Nothing is built if no model is user-defined.

        Raises:
            SpecError: the scale is unknown, or a module or function does not exist.
            IncompatibleError: a grid has no attacked cell left.
        """
        grids: dict[str, Mapping[str, Grid]] = {}
        for name, scales in self.grids.items():
            with error_context(f"study {self.name!r}, grid {name!r}, scale {scale!r}"):
                grid: Grid = _known("scale", scale, scales)
                grids[name] = _with_grid(scales, scale, grid.examined(data_dir))
        return replace(self, grids=grids)

    def refused(self, scale: str) -> dict[str, tuple[Refusal, ...]]:
        return {name: scales[scale].refused for name, scales in self.grids.items()}

    def search(self, name: str, scale: str) -> SpecSearch:
        with error_context(f"study {self.name!r}"):
            search: SpecSearch = _known("scale", scale, _known("search", name, self.searches))
        return search

    def check_choices(self) -> None:
        """Raise a `SpecError` if a search has changed since its result was adopted."""
        for scales in self.searches.values():
            for scale, search in scales.items():
                with error_context(f"study {self.name!r}, scale {scale!r}"):
                    search.check_choice()

    def substitutes(self, scale: str) -> list[str]:
        """Return a line for each search without an adopted result at a scale: what is used."""
        searches = [scales[scale] for scales in self.searches.values()]
        return [search.substitute for search in searches if search.substitute]

    def figure(self, name: str, scale: str = "paper") -> FigureSpec:
        """Return a figure's spec, with the metrics that are measured at a scale."""
        with error_context(f"study {self.name!r}"):
            figure: FigureSpec = _known("figure", name, self.figures)
        return figure.measuring(self.metrics.get(scale, {}))

    def claims(self, scale: str) -> list[Expectation]:
        instead = self.metrics.get(scale, {})
        return [claim.at(scale, instead) for claim in self.expectations]

    def asked_metrics(self, scale: str) -> dict[Cell, set[MetricSpec]]:
        """Return the metrics that the figures and claims need of each cell at a scale."""
        figures = [self.figure(name, scale) for name in self.figures]
        asked: dict[Cell, set[MetricSpec]] = defaultdict(set)
        for name, text in set(_shown_metrics(figures, self.claims(scale))):
            grid, metric = self.grids[name][scale], read_metric(text)
            for cell in (*grid.repeated, *grid.truths):
                asked[cell].add(metric)
        return asked

    def named_metrics(self, scale: str) -> Iterator[tuple[Cell, frozenset[ScoreSpec] | None]]:
        """Yield each scored cell of a scale's grids with the metrics that its grid names, or None.

        A cell of several grids is yielded for each.
        """
        for scales in self.grids.values():
            grid = scales[scale]
            yield from ((cell, grid.metrics) for cell in (*grid.repeated, *grid.truths))

    def caption(self, figure: str, scale: str) -> str:
        """Return a figure's caption with the conditions of a scale; see `captions.caption`."""
        grids = zip(self.drawn(figure, scale), self.drawn(figure, "paper"), strict=True)
        return caption(self.figure(figure), list(grids), scale)

    def conditions(self, figure: str, scale: str) -> Mapping[str, str]:
        """Return the conditions that are printed below a figure; see `summarise_conditions`."""
        return summarise_conditions(self.figure(figure), self.drawn(figure, scale), scale)

    def position(self, figure: str) -> int:
        return list(self.figures).index(figure) + 1

    def drawn(self, figure: str, scale: str) -> list[Grid]:
        """Return the grids that a figure plots; empty for figures of registered specs."""
        return [self.grid(name, scale) for name in self.figure(figure).grids]

    def shown_cells(self, figure: str, scale: str) -> list[Cell]:
        """Return the cells whose reconstructions a figure shows, with refused ones."""
        spec = self.figure(figure)
        grids = self.drawn(figure, scale) if spec.needs == "reconstructions" else []
        return [c for g in grids for c in spec.chosen(g.names, g.scored_cells)]

    def shown(self, figure: str, scale: str) -> list[Cell]:
        """Return the cells whose reconstructions a figure reads."""
        shown = set(self.shown_cells(figure, scale))
        return [cell for grid in self.drawn(figure, scale) for cell in grid.cells if cell in shown]


def _shown_metrics(
    figures: Iterable[FigureSpec], claims: Iterable[Expectation]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a grid and a metric of it that a figure or claim shows."""
    for figure in figures:
        if isinstance(figure, GridFigure):
            yield from ((figure.grid, metric) for metric in figure.used_metrics)
    for claim in claims:
        yield claim.grid, claim.metric


def load_study(path: Path | str, scales: Sequence[Scale] = SCALES) -> Study:
    """Read a study file and check it.

    Adopted results of searches are read from the folder ``chosen/`` next to it. If a search has no
    adopted result, or has changed since, its base attack is used.

    Args:
        path: of the study file.
        scales: at which grids are read and checked; at the others, when they are first used.

    Raises:
        SpecError: the file is invalid; names the file, study, grid, scale and axis, and the nearest
            valid name.
        IncompatibleError: all cells of a grid are incompatible.
    """
    path = Path(path)
    if not path.exists():
        hint = nearest(path.stem, {file.stem for file in path.parent.glob("*.yaml")})
        raise SpecError(f"{path}: no study file; {hint}")
    where = f"{path}: study {path.stem!r}"
    written = load_mapping(path, "study file", "title, paper, grids, figures")
    file = read_model(StudyFile, written, where)
    chosen = chosen_file(path)
    adopted = read_choices(chosen)
    for name in (name for entries in adopted.values() for name in entries):
        if name not in file.searches:
            raise SpecError(
                f"{chosen}: the study has no search {name!r}; take it out, "
                f"{nearest(name, file.searches)}"
            )
    return build_study(path.stem, file, where, scales, adopted)


def build_study(
    study_name: str,
    file: StudyFile,
    where: str,
    scales: Sequence[Scale] = SCALES,
    adopted: Adopted | None = None,
) -> Study:
    """Return a study of a file's content; errors begin with ``where``, the rest as `load_study`."""
    return _StudyReader(study_name, file, where, scales, adopted or {}).read()


@dataclass
class _StudyReader:
    """Reads a study; grids are checked at some scales, read at the others when first used."""

    study_name: str
    file: StudyFile
    where: str
    scales: Sequence[Scale]
    adopted: Adopted

    def __post_init__(self) -> None:
        self.searches: dict[str, AtScales[SpecSearch]] = {}
        self.files: dict[str, GridFile] = {}
        self.grid_readers: dict[str, AtScales[GridReader]] = {}
        self.grids: dict[str, AtScales[Grid]] = {}
        self.readers = AtScales(
            lambda scale: AxisReader(
                self.file, scale, {name: search[scale] for name, search in self.searches.items()}
            )
        )

    def read(self) -> Study:
        self._read_searches()
        self._read_grids()
        figures = {name: self._figure(name) for name in self.file.figures}
        claims = self._expectations()
        metrics: dict[str, Instead] = {
            scale: {**self.file.metrics, **self.file.changes(scale).metrics} for scale in SCALES
        }
        known = {metric for _, metric in _shown_metrics(figures.values(), claims)}
        for scale, instead in metrics.items():
            with error_context(f"{self.where}, scale {scale!r}"):
                _check_instead(instead, known)
        return Study(
            name=self.study_name,
            title=self.file.title,
            paper=self.file.paper,
            grids=self.grids,
            figures=figures,
            expectations=claims,
            searches=self.searches,
            metrics=metrics,
            absent={
                scale: frozenset(name for name, file in self.files.items() if not file.is_at(scale))
                for scale in SCALES
            },
        )

    def _read_searches(self) -> None:
        """Read the searches; each may come after those that are written before it."""
        for name in self.file.searches:
            with error_context(f"{self.where}, searches"):
                written = inherited(name, self.file.searches, merged=SCALES)
            place = f"{self.where}, search {name!r}"
            file = read_model(SearchFile, written, place)
            self.searches[name] = AtScales(
                partial(self._read_search, name, file, place, {**self.searches})
            )

    def _read_search(
        self,
        name: str,
        file: SearchFile,
        place: str,
        earlier: Mapping[str, AtScales[SpecSearch]],
        scale: Scale,
    ) -> SpecSearch:
        with error_context(f"{place}, scale {scale!r}"):
            search = read_search(name, file.at(scale), file.patches(scale))
            if file.after is not None:
                search = search.after(_known("earlier search", file.after, earlier)[scale])
            entry = self.adopted.get(scale, {}).get(name)
            return search if entry is None else search.adopting(entry)

    def _read_grids(self) -> None:
        """Read the grids, at the scales that are checked."""
        files = self.files
        for search in self.searches.values():
            for scale in self.scales:
                _ = search[scale]
        for name in self.file.grids:
            with error_context(f"{self.where}, grids"):
                written = inherited(name, self.file.grids, merged=("labels", *SCALES))
                if "headline" not in self.file.grids[name]:
                    written.pop("headline", None)
            files[name] = read_model(GridFile, written, f"{self.where}, grid {name!r}")
        for name, file in files.items():
            self.grid_readers[name] = AtScales(partial(self._grid_reader, name, file))
            self.grids[name] = AtScales(partial(self._grid, name))
        for name, grid in self.grids.items():
            for scale in self._scales_of([name]):
                _ = grid[scale]
        for name, file in files.items():
            with error_context(f"{self.where}, grid {name!r}, labels"):
                check_labels(file.labels, self._names([name]))
            if file.gates is not None:
                with error_context(f"{self.where}, grid {name!r}, gates"):
                    file.gates.check(self._names([name]))
        with error_context(f"{self.where}, labels"):
            check_labels(self.file.labels, self._names(self.grids))
        with error_context(self.where):
            for scale in self.scales:
                self.readers[scale].check_patches()

    def _grid_reader(self, name: str, file: GridFile, scale: Scale) -> GridReader:
        return GridReader(name, file, self.readers[scale], f"{self.where}, grid {name!r}")

    def _grid(self, name: str, scale: Scale) -> Grid:
        return self.grid_readers[name][scale].grid

    def _names(self, grids: Collection[str]) -> Iterator[AxisLabels]:
        """Yield the labels of some grids, at the scales that are checked first."""
        for scale in dict.fromkeys((*self.scales, *SCALES)):
            yield from (self.grid_readers[name][scale].names for name in grids)

    def _figure(self, name: str) -> FigureSpec:
        fields, where = dict(self.file.figures[name]), f"{self.where}, figure {name!r}"
        with error_context(where):
            kind = fields.pop("kind", None)
            if not isinstance(kind, str):
                fault = "missing" if kind is None else "no name"
                raise SpecError(f"key 'kind' is {fault}; valid: {', '.join(load('figure'))}")
            figure = cast(FigureSpec, build_spec(find("figure", kind), fields))
            drawn = [_known("grid", grid, self.grids) for grid in figure.grids]
            if figure.grids:
                figure.check_gates(self._gates(figure.grids[0]))
        for scale in self._scales_of(figure.grids):
            with error_context(f"{where}, scale {scale!r}"):
                figure.check_together([(g[scale].names, g[scale].scored_cells) for g in drawn])
        return figure

    def _expectations(self) -> list[Expectation]:
        with error_context(f"{self.where}, expect"):
            claims = list(written_claims(self.file.expect))
        expectations = [self._expectation(claim, n) for n, claim in enumerate(claims, start=1)]
        ids = Counter(expectation.id for expectation in expectations)
        if twice := sorted(name for name, times in ids.items() if times > 1):
            raise SpecError(f"{self.where}, expect: id {', '.join(twice)} is given twice")
        return expectations

    def _expectation(self, written: Mapping[str, Any], number: int) -> Expectation:
        where = f"{self.where}, expect {written.get('id', number)!r}"
        with error_context(where):
            judged = _known("grid", str(written.get("grid")), self.grids)
            if (kind := sort_of(written)) is Hides:
                written = {**written, "margin": self._margin(written)}
            expectation = read_model(kind, written, "expectation")
            expectation.check(self._names([expectation.grid]))
        for scale in self._scales_of([expectation.grid]):
            with error_context(f"{where}, scale {scale!r}"):
                expectation.groups(judged[scale].names, judged[scale].scored_cells)
        return expectation

    def _scales_of(self, grids: Collection[str]) -> list[Scale]:
        """Return the scales that are checked and have all of some grids."""
        return [s for s in self.scales if all(self.files[grid].is_at(s) for grid in grids)]

    def _gates(self, grid: str) -> Gates | None:
        return self.grid_readers[grid]["paper"].file.gates

    def _margin(self, written: Mapping[str, Any]) -> float:
        """Return the margin that the gates of a claim's grid have for its metric."""
        if "margin" in written:
            raise SpecError("margin: that of the grid's gates counts; leave it out here")
        gates, metric = self._gates(written["grid"]), written["metric"]
        margin = None if gates is None else gates.margin(metric)
        if margin is None:
            raise SpecError(f"the grid has no gates with a margin of {metric!r}; add them")
        return margin


def _with_grid(scales: Mapping[str, Grid], scale: str, grid: Grid) -> AtScales[Grid]:
    return AtScales(lambda other: grid if other == scale else scales[other])


def _check_instead(instead: Instead, known: set[str]) -> None:
    """Check what is measured at a scale in place of the metrics that figures and claims show."""
    for text, other in instead.items():
        if text not in known:
            raise SpecError(f"metrics: no figure or claim shows {text!r}; {nearest(text, known)}")
        levels = [read_metric(metric).level for metric in (text, other)]
        if len(set(levels)) > 1:
            raise SpecError(
                f"metrics: {text!r} is of cells that end with {levels[0]}, {other!r} of cells that "
                f"end with {levels[1]}; name a metric of the same cells"
            )


def _known(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise SpecError(f"unknown {what} {name!r}; {nearest(name, known)}")
    return known[name]
