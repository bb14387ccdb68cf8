from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gleak.core.settings import SCALES
from gleak.studies.captions import caption
from gleak.studies.grid import Weak
from gleak.studies.study import Study, load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
CONDITION = re.compile(r"^\| \*\*(.+?):\*\* (.+)\.$", re.MULTILINE)


def conditions(study: Study, figure: str) -> dict[str, str]:
    return dict(CONDITION.findall(study.caption(figure, "quick")))


def test_the_caption_of_models_states_what_there_is(study: Study):
    found = conditions(study, "accuracy")
    assert found["Data"] == "digits (for mnist), 16 × 16 grey pixels"
    assert found["Network"] == "lenet"
    assert found["Scale"] == "quick, 2 cells"
    assert "Clients" not in found


def test_the_caption_says_what_a_search_chose(study: Study):
    grid = study.grid("attacks", "quick")
    attack = grid.names.axis("attack")[0]
    base = attack.model_copy(update={"alpha": 3.0})
    tuned = replace(grid, names=replace(grid.names, bases={"attack": {attack: base}}))
    text = caption(study.figures["speed"], [(tuned, grid)], "quick")
    assert f"| **Chosen by a search:** ``{attack}`` from ``{base}``." in text
    assert "Chosen by a search" not in study.caption("speed", "quick")


def test_the_caption_says_which_attacks_are_no_better_than_blind(study: Study):
    grid = study.grid("attacks", "quick")
    cell = grid.cells[0]
    shown = Weak(frozenset({cell}), {"attack": cell.attack}, "it has no time")
    text = caption(study.figures["speed"], [(replace(grid, weak=(shown,)), grid)], "quick")
    label = grid.names.label("attack", cell.attack)
    assert f"| **No better than blind:** {label}: it has no time." in text
    assert "No better than blind" not in study.caption("speed", "quick")


def test_the_caption_states_the_conditions_and_those_of_the_paper(study: Study):
    text = study.caption("speed", "quick")
    assert text.startswith("How fast.\n\nReproduces Table 2.\n\nEntries are means")
    found = conditions(study, "speed")
    assert [found[key] for key in ("Clients", "Batch size", "Victims")] == ["fedsgd", "1", "2"]
    assert "(300 iterations)" in found["Attacks"]
    assert found["Scale"] == "quick, 3 cells"
    assert found["At the scale of the paper"] == "Data: mnist, 28 × 28 grey pixels"


def test_a_level_on_which_nothing_is_done_is_left_out(study: Study):
    assert not {"Crafting", "Defence"} & {*conditions(study, "speed")}


def test_markup_in_labels_is_escaped(study: Study):
    assert r"labels\_known" in caption_with_label(study, "labels_known")


def caption_with_label(study: Study, label: str) -> str:
    grid = study.grid("attacks", "quick")
    names = replace(grid.names, labels={"digits": label})
    return caption(study.figures["speed"], [(replace(grid, names=names), grid)], "quick")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_caption_of_every_figure_stands_alone(path: Path) -> None:
    """It says what is shown, and names data, model, victims and the scale's budget."""
    study = load_study(path)
    for figure, spec in study.figures.items():
        text = study.caption(figure, "quick")
        assert spec.title, figure
        assert len(spec.caption) > 25, figure
        found = conditions(study, figure)
        levels = {level for grid in study.drawn(figure, "quick") for level in grid.names.values}
        wanted = {"dataset": "Data", "model": "Network", "client": "Clients", "attack": "Attack"}
        for level, heading in wanted.items():
            named = any(heading in key for key in found)
            assert named == (level in levels), (figure, heading)
        if "client" in levels:
            assert "Victims" in found, figure
        if spec.trainings("quick"):
            assert "**Networks:**" in text or "Clients" in found


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_conditions_below_figures_are_a_few_lines(path: Path) -> None:
    study = load_study(path)
    for figure in study.figures:
        for scale in SCALES:
            rows = study.conditions(figure, scale)
            assert len(rows) < 20, (figure, scale)
            assert max(map(len, rows.values()), default=0) < 400, (figure, scale)
