"""Captions of figures: what is shown, how to read it, its conditions, and those of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gleak.core.markup import to_rst
from gleak.core.numbers import format_number
from gleak.core.spec import Spec
from gleak.studies.axis_labels import AxisLabels, is_control
from gleak.studies.cell import TRUTH, Cell
from gleak.studies.figure_spec import FigureSpec

if TYPE_CHECKING:
    from gleak.studies.grid import Grid
    from gleak.studies.search.declaration import Search

Conditions = Mapping[str, str]
"""Heading -> text: data, network, clients, and so on."""
MOST_LABELS = 8
"""Values of one level that are listed; of more only the first and the number are given."""
NOTHING_DONE = {"crafting": "honest", "defense": "none"}
"""Level -> the spec that does nothing; conditions leave it out where there is no other."""
PER_CLIENT: dict[str, Callable[[str], str]] = {
    "batch_size": "batches of {}".format,
    "local_steps": "{} local steps".format,
    "local_lr": "learning rate {}".format,
    "mini_batch": "mini-batches of {}".format,
    "classes": "{} classes in a batch".format,
    "loss": "loss {}".format,
    "batch_norm": "batch normalisation in {} mode".format,
}
"""Field of clients -> phrase with its values."""


def caption(figure: FigureSpec, grids: Sequence[tuple[Grid, Grid]], scale: str) -> str:
    """Return a figure's caption in reStructuredText, with its experimental conditions.

    Args:
        figure: its spec.
        grids: of its scores: each at the scale that is drawn, and at the scale of the paper.
        scale: the scale that is drawn.
    """
    reproduces = f"Reproduces {to_rst(figure.reproduces)}." if figure.reproduces else ""
    conditions_of = [_conditions_in_full(figure, ours, paper) for ours, paper in grids]
    networks = [f"**{key}:** {to_rst(text)}." for key, text in _trained(figure, scale).items()]
    texts = [to_rst(figure.caption), reproduces, figure.reading, *conditions_of, *networks]
    return "\n\n".join(text for text in texts if text)


def summarise_conditions(figure: FigureSpec, grids: Sequence[Grid], scale: str) -> Conditions:
    """Return the conditions of a figure, to be printed below it.

    Attacks, of which the figure has the labels, are among them if there is only one, and so are
    searches whose result is not adopted.
    """
    parts = [*(conditions(_cells(figure, grid), grid.names) for grid in grids)]
    parts += [_trained(figure, scale)]
    names = [search.name for grid in grids for search in _not_adopted(figure, grid)]
    parts += [{f"Search {name} not adopted": "base attack" for name in names}]
    texts: dict[str, list[str]] = {}
    for heading, text in (pair for part in parts for pair in part.items() if pair[0] != "Attacks"):
        texts.setdefault(heading, []).append(text)
    told = {heading: "; ".join(dict.fromkeys(several)) for heading, several in texts.items()}
    return {**told, "Scale": scale} if told else {}


def _trained(figure: FigureSpec, scale: str) -> Conditions:
    """Return the networks whose training a figure shows, each with its public dataset."""
    texts = [f"{one.knowledge} on {one.dataset}" for one in figure.trainings(scale)]
    return {"Networks": "; ".join(texts)} if texts else {}


def conditions(cells: Sequence[Cell], names: AxisLabels) -> Conditions:
    """Return the conditions of the cells of a grid that a figure shows."""
    attacked = [cell for cell in cells if "attack" in cell.specs and not is_control(cell)]
    texts = {
        "Data": _list(cells, "dataset", lambda spec: _data(names, spec)),
        "Network": _list(cells, "model", partial(_label, names, "model")),
        "Training": _list(cells, "training", partial(_label, names, "training")),
        "Crafting": _list(cells, "crafting", partial(_label, names, "crafting")),
        "Clients": _clients([cell for cell in cells if "client" in cell.specs], names),
        "Defence": _list(cells, "defense", partial(_label, names, "defense")),
        **_attacks(list(dict.fromkeys(cell.attack for cell in attacked)), names),
    }
    return {heading: text for heading, text in texts.items() if text}


def _cells(figure: FigureSpec, grid: Grid) -> list[Cell]:
    return figure.chosen(grid.names, grid.scored_cells)


def _join(pairs: Conditions, separator: str) -> str:
    return separator.join(f"{heading}: {text}" for heading, text in pairs.items())


def _conditions_in_full(figure: FigureSpec, ours: Grid, paper: Grid) -> str:
    """Return one line per condition, then the scale and what it changes."""
    cells = _cells(figure, ours)
    own = conditions(cells, ours.names)
    published = conditions(_cells(figure, paper), paper.names)
    changed = {key: text for key, text in published.items() if own.get(key) != text}
    count = sum(getattr(c.specs.get("attack"), "name", "") != TRUTH for c in cells)
    size = f"{count} {'cell' if count == 1 else 'cells'}{_refused(cells, ours)}"
    size += f", {ours.networks} networks each" if ours.networks > 1 else ""
    lines = {
        **{heading: to_rst(text) for heading, text in own.items()},
        "Scale": f"{ours.scale}, {size}",
        "At the scale of the paper": to_rst(_join(changed, ". ")),
        "Compared with other settings of the paper": _substitutions(cells, ours.names),
        "Chosen by a search": _tuned(cells, ours.names),
        "Not searched": to_rst("; ".join(one.substitute for one in _not_adopted(figure, ours))),
        "No better than blind": to_rst(_weak(cells, ours)),
    }
    return "\n".join(f"| **{heading}:** {text}." for heading, text in lines.items() if text)


def _refused(cells: Sequence[Cell], grid: Grid) -> str:
    shown = set(cells) if grid.refused else ()
    count = sum(grid.names.cell(refusal.levels) in shown for refusal in grid.refused)
    return f", {count} of them refused (n/a)" if count else ""


def _substitutions(cells: Sequence[Cell], names: AxisLabels) -> str:
    """Return what is compared with the paper's values of another setting, except datasets."""
    pairs = [
        f"``{ours}`` with ``{theirs}``"
        for level, found in names.substituted.items()
        for ours, theirs in found.items()
        if level != "dataset" and ours.setting() != theirs.setting()
        if any(cell.specs.get(level) == ours for cell in cells)
    ]
    return "; ".join(pairs)


def _tuned(cells: Sequence[Cell], names: AxisLabels) -> str:
    """Return which specs a search chose, each with the one it started from."""
    pairs = [
        f"``{ours}`` from ``{base}``"
        for level, found in names.bases.items()
        for ours, base in found.items()
        if ours != base and any(cell.specs.get(level) == ours for cell in cells)
    ]
    return "; ".join(pairs)


def _not_adopted(figure: FigureSpec, grid: Grid) -> list[Search]:
    """Return the searches of the attacks shown that have no adopted result."""
    shown = {cell.specs.get("attack") for cell in _cells(figure, grid)}
    searches = [search for attack, search in grid.searches.items() if attack in shown]
    return [search for search in searches if search.substitute]


def _weak(cells: Sequence[Cell], grid: Grid) -> str:
    """Return which attacks are declared to be no better than blind, each with the reason."""
    shown = set(cells)
    texts = [
        f"{_enumerate(grid.names.label(level, spec) for level, spec in weak.specs.items())}: "
        f"{weak.reason}"
        for weak in grid.weak
        if weak.cells & shown
    ]
    return "; ".join(texts)


def _list(cells: Sequence[Cell], level: str, label: Callable[[Spec], str]) -> str:
    """Return the labels of the values of a level, in order of appearance."""
    specs = dict.fromkeys(cell.specs[level] for cell in cells if level in cell.specs)
    if {spec.name for spec in specs} <= {NOTHING_DONE.get(level)}:
        return ""
    return _enumerate(map(label, specs))


def _enumerate(labels: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(labels))
    if len(distinct) > MOST_LABELS:
        return f"{distinct[0]} and {len(distinct) - 1} others"
    return "; ".join(distinct) if any(", " in label for label in distinct) else ", ".join(distinct)


def _data(names: AxisLabels, spec: Any) -> str:
    """Return the label of a dataset with the size of its samples."""
    return f"{names.heading('dataset', spec)}, {_size(spec.shape)}"


def _size(shape: Sequence[int]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} features"
    grey = " grey" if shape[0] == 1 else ""
    return f"{shape[1]} × {shape[2]}{grey} pixels"


def _clients(cells: Sequence[Cell], names: AxisLabels) -> str:
    """Return protocol, batches, local steps and numbers of victims."""
    specs = list(dict.fromkeys(cell.client for cell in cells))
    if not specs:
        return ""
    protocol = " or ".join(dict.fromkeys(names.labels.get(spec.name, spec.name) for spec in specs))
    phrases = [phrase(text) for key, phrase in PER_CLIENT.items() if (text := _values(specs, key))]
    unique = ["each label once"] * all(spec.labels == "unique" for spec in specs)
    repeats = [f"each batch {times} times" for times in {spec.repeats for spec in specs} - {1}]
    victims = _values(specs, "victims")
    counted = f"{victims} {'victim' if victims == '1' else 'victims'}"
    return ", ".join([protocol, *phrases, *unique, counted, *repeats])


def _values(specs: Sequence[Spec], key: str) -> str:
    """Return the values of a field; none if it is missing, or has its default in all specs."""
    having = [spec for spec in specs if key in type(spec).model_fields]
    values = list(dict.fromkeys(getattr(spec, key) for spec in having))
    unset = key not in ("batch_size", "victims", "local_steps")
    if not values or (unset and all(key not in str(spec) for spec in having)):
        return ""
    texts = [format_number(value) if isinstance(value, float) else str(value) for value in values]
    return _either(texts)


def _label(names: AxisLabels, level: str, spec: Spec) -> str:
    """Return the label of a spec; with its fields if the label is that of its name."""
    label, fields = names.label(level, spec), str(spec).partition("+")[2]
    is_bare = label == names.labels.get(spec.name, spec.name)
    return f"{label} ({fields.replace('+', ', ')})" if fields and is_bare else label


def _attacks(specs: Sequence[Any], names: AxisLabels) -> Conditions:
    """Return the labels of the attacks with their iterations, under one heading."""
    budgets: dict[str, list[str]] = {}
    for spec in specs:
        own = budgets.setdefault(names.label("attack", spec), [])
        own += [str(spec.iterations)] if "iterations" in type(spec).model_fields else []
    texts = [label + _iterations(own) for label, own in budgets.items()]
    return {"Attack" if len(texts) == 1 else "Attacks": _enumerate(texts)}


def _iterations(budgets: Sequence[str]) -> str:
    return f" ({_either(budgets)} iterations)" if budgets else ""


def _either(texts: Sequence[str]) -> str:
    """Return ``1``, ``1 or 2``, ``1, 2 or 3``."""
    distinct = list(dict.fromkeys(texts))
    return " or ".join([", ".join(distinct[:-1]), distinct[-1]] if distinct[1:] else distinct)
