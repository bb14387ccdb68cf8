from __future__ import annotations

from dataclasses import replace

from gleak.experiments.captions import caption
from gleak.experiments.study import Study


def test_the_caption_of_models_states_what_there_is(study: Study):
    text = study.caption("accuracy", "quick")
    assert "Scale *quick*: 2 cells; ``digits`` stands in for ``mnist``; dataset" in text
    assert text.endswith("model ``lenet``.")


def test_the_caption_says_what_a_search_chose(study: Study):
    grid = study.grid("attacks", "quick")
    attack = grid.names.values["attack"][0]
    tuned = replace(grid.names, bases={"attack": {attack: f"{attack}+alpha=3"}})
    text = caption(study.figures["speed"], [replace(grid, names=tuned)])
    assert f"``{attack}`` is ``{attack}+alpha=3`` as a search chose it" in text
    assert "as a search chose it" not in study.caption("speed", "quick")


def test_the_caption_states_the_conditions(study: Study):
    text = study.caption("speed", "quick")
    for words in (
        "How fast.",
        "Reproduces Table 2.",
        "Scale *quick*: 3 cells of 2 victims",
        "``digits`` stands in for ``mnist``",
        "model ``lenet``",
    ):
        assert words in text
