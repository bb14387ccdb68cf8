"""Captions of figures: what is shown, how to read it, its conditions, and those of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gleak.core.markup import to_rst
from gleak.core.spec import Spec, field_text
from gleak.data.base import DatasetSpec
from gleak.studies.axis_labels import Axis, AxisLabels, is_control
from gleak.studies.cell import TRUTH, Cell
from gleak.studies.figure_spec import FigureSpec
from gleak.studies.grid import Grid
from gleak.studies.search.declaration import SpecSearch

MOST_LABELS = 8
"""Values of one level that are listed; of more only the first and the number are given."""
HEADINGS = {
    "dataset": "Data",
    "model": "Network",
    "training": "Training",
    "crafting": "Crafting",
    "client": "Clients",
    "defense": "Defence",
    "attack": "Attacks",
}
NOTHING_DONE = {"crafting": "honest", "defense": "none"}
"""Level -> the spec that does nothing; conditions leave it out where there is no other."""
ALWAYS_TOLD = {"batch_size", "victims"}
"""Fields of clients that are told even if they have their defaults."""


def caption(figure: FigureSpec, grids: Sequence[tuple[Grid, Grid]], scale: str) -> str:
    """Return a figure's caption in reStructuredText, with its experimental conditions.

    Each of its grids is given at the scale that is drawn and at that of the paper.
    """
    reproduces = f"Reproduces {to_rst(figure.reproduces)}." if figure.reproduces else ""
    conditions_of = [_conditions_in_full(figure, ours, paper) for ours, paper in grids]
    networks = [f"**{key}:** {to_rst(text)}." for key, text in _trained(figure, scale).items()]
    texts = [to_rst(figure.caption), reproduces, figure.reading, *conditions_of, *networks]
    return "\n\n".join(text for text in texts if text)


def summarise_conditions(figure: FigureSpec, grids: Sequence[Grid], scale: str) -> dict[str, str]:
    """Return the conditions that are printed below a figure; those of several grids are joined.

    Attacks, of which the figure has the labels, are among them if there is only one, and so are
    searches whose result is not adopted.
    """
    texts: dict[str, list[str]] = {}
    parts = [conditions(_cells(figure, grid), grid.names) for grid in grids]
    for part in [*parts, _trained(figure, scale)]:
        for heading, text in part.items():
            texts.setdefault(heading, []).append(text)
    texts.pop("Attacks", None)
    if several := [str(grid.networks) for grid in grids if grid.networks > 1]:
        texts["Networks of each cell"] = several
    for search in (search for grid in grids for search in _not_adopted(figure, grid)):
        texts[f"Search {search.name} not adopted"] = ["base attack"]
    told = {heading: "; ".join(dict.fromkeys(several)) for heading, several in texts.items()}
    return {**told, "Scale": scale} if told else {}


def _trained(figure: FigureSpec, scale: str) -> dict[str, str]:
    """Return the networks whose training a figure shows, each with its public dataset."""
    texts = [f"{one.knowledge} on {one.dataset}" for one in figure.trainings(scale)]
    return {"Networks": "; ".join(texts)} if texts else {}


def _cells(figure: FigureSpec, grid: Grid) -> list[Cell]:
    return figure.chosen(grid.names, grid.scored_cells)


def conditions(cells: Sequence[Cell], names: AxisLabels) -> dict[str, str]:
    """Return the conditions of the cells of a grid: heading -> text."""
    rows: dict[str, str] = {}
    attacked = [cell for cell in cells if "attack" in cell.specs and not is_control(cell)]
    for level, heading in HEADINGS.items():
        having = attacked if level == "attack" else [c for c in cells if level in c.specs]
        specs = list(dict.fromkeys(cell.specs[level] for cell in having))
        if {spec.name for spec in specs} <= {NOTHING_DONE.get(level)}:
            continue
        labels = list(dict.fromkeys(_label(names, level, spec) for spec in specs))
        one_attack = level == "attack" and len(labels) == 1
        rows["Attack" if one_attack else heading] = _enumerate(labels)
        if level != "client":
            continue
        for key in dict.fromkeys(key for spec in specs for key in type(spec).model_fields):
            clients = [spec for spec in specs if key in type(spec).model_fields]
            if key in ALWAYS_TOLD or any(f"+{key}=" in str(spec) for spec in clients):
                title = Axis("client", key).title(names)
                texts = (field_text(spec, key) for spec in clients)
                rows[title[0].upper() + title[1:]] = _enumerate(texts)
    return rows


def _label(names: AxisLabels, level: str, spec: Spec) -> str:
    """Return the label of a spec, with what it does not say of its fields."""
    if isinstance(spec, DatasetSpec):
        channels, *sides = spec.shape
        grey = " grey" if channels == 1 else ""
        size = f"{' × '.join(map(str, sides))}{grey} pixels" if sides else f"{channels} features"
        return f"{names.heading(level, spec)}, {size}"
    if level == "client":
        return names.labels.get(spec.name, spec.name)
    label = names.label(level, spec)
    if level == "attack":
        budget = getattr(spec, "iterations", None)
        return label if budget is None else f"{label} ({budget} iterations)"
    fields = str(spec).partition("+")[2]
    is_bare = label == names.labels.get(spec.name, spec.name)
    return f"{label} ({fields.replace('+', ', ')})" if fields and is_bare else label


def _enumerate(labels: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(labels))
    if len(distinct) > MOST_LABELS:
        return f"{distinct[0]} and {len(distinct) - 1} others"
    return "; ".join(distinct) if any(", " in label for label in distinct) else ", ".join(distinct)


def _conditions_in_full(figure: FigureSpec, ours: Grid, paper: Grid) -> str:
    """Return one line per condition, then the scale and what it changes."""
    cells, names = _cells(figure, ours), ours.names
    own, published = conditions(cells, names), conditions(_cells(figure, paper), paper.names)
    changed = [f"{key}: {text}" for key, text in published.items() if own.get(key) != text]
    shown = {spec for cell in cells for spec in cell.specs.values()}
    substituted = [
        f"``{value}`` with ``{theirs}``"
        for level, pairs in names.substituted.items()
        for value, theirs in pairs.items()
        if level != "dataset" and value in shown and value.setting() != theirs.setting()
    ]
    tuned = [
        f"``{value}`` from ``{base}``"
        for pairs in names.bases.values()
        for value, base in pairs.items()
        if value in shown and value != base
    ]
    weak = [
        f"{_enumerate(names.label(level, spec) for level, spec in weak.specs.items())}: "
        f"{weak.reason}"
        for weak in ours.weak
        if weak.cells & {*cells}
    ]
    not_adopted = [search.substitute for search in _not_adopted(figure, ours)]
    lines = {
        **{heading: to_rst(text) for heading, text in own.items()},
        "Scale": f"{ours.scale}, {_size(cells, ours)}",
        "At the scale of the paper": to_rst(". ".join(changed)),
        "Compared with other settings of the paper": "; ".join(substituted),
        "Chosen by a search": "; ".join(tuned),
        "Not searched": to_rst("; ".join(not_adopted)),
        "No better than blind": to_rst("; ".join(weak)),
    }
    return "\n".join(f"| **{heading}:** {text}." for heading, text in lines.items() if text)


def _size(cells: Sequence[Cell], grid: Grid) -> str:
    """Return the number of cells, of those that were refused, and of networks."""
    count = sum("attack" not in cell.specs or cell.attack.name != TRUTH for cell in cells)
    refused = len({grid.names.cell(refusal.levels) for refusal in grid.refused} & {*cells})
    parts = [f"{count} {'cell' if count == 1 else 'cells'}"]
    parts += [f"{refused} of them refused (n/a)"] if refused else []
    parts += [f"{grid.networks} networks each"] if grid.networks > 1 else []
    return ", ".join(parts)


def _not_adopted(figure: FigureSpec, grid: Grid) -> list[SpecSearch]:
    """Return the searches of the attacks shown that have no adopted result."""
    shown = {cell.specs.get("attack") for cell in _cells(figure, grid)}
    searches = [search for attack, search in grid.searches.items() if attack in shown]
    return [search for search in searches if search.substitute]
