from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import kinds_at, load
from gleak.metrics.base import Level, metrics_of
from gleak.studies.cell import (
    LEVELS,
    LONGEST_JOB,
    LONGEST_LEVEL,
    SCORED_BY,
    Cell,
    Paths,
    levels_of,
    levels_of_truth,
)
from gleak.studies.stages import STAGES

TEXTS = {
    "dataset": "digits",
    "model": "lenet+activation=tanh",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd+batch_size=4",
    "defense": "topk",
    "attack": "cpl+start=patterned~tiles=4",
}


def test_a_cell_is_its_path() -> None:
    cell = Cell.parse({**TEXTS, "seed": "1"})
    assert str(cell) == "/".join(TEXTS.values())
    assert cell.strings() == TEXTS
    assert cell == Cell.from_path(dict(zip(LEVELS, str(cell).split("/"), strict=True)))
    assert len({cell, Cell.parse(TEXTS)}) == 1
    assert Paths(Path("r")).folder(cell) == Path("r/artifacts") / str(cell)
    assert Paths(Path("r")).folder(TEXTS) == Paths(Path("r")).folder(cell)


@pytest.mark.parametrize("level", LEVELS)
def test_a_cell_may_be_cut_short(level: str) -> None:
    cell = Cell.parse(TEXTS).upto(level)
    kept = LEVELS[: LEVELS.index(level) + 1]
    assert str(cell) == "/".join(TEXTS[name] for name in kept)
    assert cell == Cell.parse({name: TEXTS[name] for name in kept})
    assert str(getattr(cell, level)) == TEXTS[level]
    assert cell.end == level


@pytest.mark.parametrize("kind", SCORED_BY)
def test_what_a_scored_cell_ends_with_has_metrics_and_what_measures_them(kind: str) -> None:
    assert set(SCORED_BY) == {*get_args(Level)}
    assert kind in {known for level in LEVELS for known in kinds_at(level)}
    assert metrics_of(kind)
    stage = STAGES[SCORED_BY[kind]]
    assert callable(getattr(import_module(stage.code), stage.rule))


def test_a_level_may_hold_specs_of_several_kinds_and_each_name_is_of_one() -> None:
    names = [name for kind in kinds_at("attack") for name in load(kind)]
    assert len(names) == len({*names})
    cells = {name: Cell.parse({**TEXTS, "attack": name}) for name in ("blind", "gradient_cosine")}
    assert [cell.end_kind for cell in cells.values()] == ["attack", "membership"]
    assert {cell.end for cell in cells.values()} == {"attack"}
    with pytest.raises(SpecError, match="unknown attack 'gradient_cosin'"):
        Cell.parse({**TEXTS, "attack": "gradient_cosin"})


def test_components_are_specs_and_those_nested_in_them() -> None:
    parts = [part.name for part in Cell.parse(TEXTS).components("model", "attack")]
    assert parts[:2] == ["lenet", "cpl"]
    assert "patterned" in parts


def test_an_attack_runs_the_optimiser_and_schedule_of_its_clients() -> None:
    """An edit of theirs changes what it does, though the update that it reads may stay."""
    client = "fedavg+optimizer=adam+schedule=cosine"
    cell = Cell.parse({**TEXTS, "client": client})
    parts = {part.name for part in cell.components("model", "attack")}
    assert {"adam", "cosine"} <= parts
    assert "fedavg" not in parts
    assert "adam" not in {part.name for part in cell.components("model", "crafting")}


def test_a_level_that_is_not_there_is_an_attribute_error() -> None:
    cell = Cell.parse({"dataset": "digits"})
    with pytest.raises(AttributeError, match="this cell has no model; it is digits"):
        _ = cell.model


@pytest.mark.parametrize(
    ("changes", "error", "fault"),
    [
        ({"model": "lenett"}, SpecError, "unknown model 'lenett'; did you mean 'lenet'"),
        ({"model": None}, SpecError, "level 'model' is left out before 'attack'"),
        ({"model": "lenet+width=0"}, SpecError, "'width'"),
        ({"training": "federated+clients=1348"}, IncompatibleError, "more than the 1347 samples"),
        (
            {"dataset": "breast_cancer"},
            IncompatibleError,
            "dataset breast_cancer: model lenet.* takes image data, not tabular data; choose",
        ),
        ({"attack": "aono"}, IncompatibleError, "aono .* model lenet.* begins with a convolution"),
        ({"client": "fedsgd+batch_size=451"}, IncompatibleError, "more than the 450 samples"),
        ({"client": "fedsgd+batch_size=11+labels=unique"}, IncompatibleError, "digits has 10"),
    ],
)
def test_faults_are_found_before_any_work(
    changes: dict[str, str | None], error: type[Exception], fault: str
) -> None:
    texts = {level: text for level, text in {**TEXTS, **changes}.items() if text}
    with pytest.raises(error, match=f"^study x: .*{fault}"):
        Cell.parse(texts, where="study x")


def test_a_level_too_long_for_a_folder_is_refused() -> None:
    module = "m" * LONGEST_LEVEL
    with pytest.raises(SpecError, match=r"model custom.* bytes, more than the 255 of a folder's"):
        Cell.parse({"dataset": "digits", "model": f"custom+factory={module}.build"})


def test_a_name_too_long_for_slurm_is_refused_there_alone() -> None:
    module = "m" * LONGEST_JOB
    cell = Cell.parse({"dataset": "digits", "model": f"custom+factory={module}.build"})
    with pytest.raises(SpecError, match="SLURM loses jobs whose names exceed 220"):
        cell.check_submission()


@pytest.mark.parametrize(
    ("fields", "defense"),
    [
        ("batch_size=8+mini_batch=4+local_steps=2", "none"),
        ("batch_size=8+mini_batch=1+local_steps=2", "secure_aggregation+clients=4"),
        ("batch_size=9+mini_batch=4+local_steps=2+drop_last=true", "none"),
        ("batch_size=8+mini_batch=3+local_steps=3", "none"),
    ],
)
def test_local_steps_take_all_samples(fields: str, defense: str) -> None:
    fewer = fields.replace("local_steps=2", "local_steps=1").replace("steps=3", "steps=2")
    texts = {**TEXTS, "defense": defense, "attack": "invertgrad"}
    Cell.parse({**texts, "client": f"fedavg+local_lr=0.1+{fields}"})
    with pytest.raises(IncompatibleError, match=r"of the . samples of a client; set local_steps="):
        Cell.parse({**texts, "client": f"fedavg+local_lr=0.1+{fewer}"})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model": "lenet"}, "model lenet has no batch normalisation; leave out batch_norm"),
        ({"defense": "fedcdp"}, "fedcdp treats every sample by itself, .* choose a defence of the"),
        ({"defense": "soteria"}, "soteria treats every sample by itself"),
        ({"defense": "secure_aggregation+clients=2"}, "each client of the sum normalises by its"),
        ({"defense": "secure_aggregation+clients=2+each=soteria"}, "soteria treats every sample"),
        ({"attack": "fi"}, "fi treats every sample by itself, .* or match gradients"),
        ({"attack": "melis"}, "melis treats every sample by itself"),
    ],
)
def test_what_treats_every_sample_by_itself_is_refused_beside_batch_statistics(
    changes: dict[str, str], fault: str
) -> None:
    model, client = "vgg_small+norm=batch", "fedsgd+batch_size=4+batch_norm=training"
    texts = {
        **TEXTS,
        "model": model,
        "client": client,
        "defense": "none",
        "attack": "gradinversion",
    }
    Cell.parse(texts)
    with pytest.raises(IncompatibleError, match=fault):
        Cell.parse({**texts, **changes})


@pytest.mark.parametrize(
    "model", ["lenet+width=12", "lenet+width=6+activation=tanh", "lenet+width=06"]
)
def test_a_path_has_one_spelling(model: str) -> None:
    with pytest.raises(SpecError, match="write it as"):
        Cell.from_path({"dataset": "digits", "model": model})


def test_levels_in_a_wrong_order_are_told_the_right_one() -> None:
    swapped = {**TEXTS, "client": TEXTS["defense"], "defense": TEXTS["client"]}
    name = TEXTS["defense"].partition("+")[0]
    fault = f"unknown client '{name}'; '{name}' is a defense; .*<client>/<defense>/<attack>$"
    with pytest.raises(SpecError, match=fault):
        Cell.from_path(swapped)
    with pytest.raises(SpecError, match="did you mean 'lenet'") as caught:
        Cell.from_path({**TEXTS, "model": "lenett"})
    assert "the levels of a path" not in str(caught.value)


@pytest.mark.usefixtures("bringing")
def test_what_an_attack_brings_is_trained_on_public_data() -> None:
    own = Cell.parse({**TEXTS, "attack": "bringing+codec=codec~size=64"})
    assert [str(found) for found in own.pretrainings] == ["digits/codec+size=64"]
    other = Cell.parse(
        {**TEXTS, "dataset": "cifar10", "attack": "bringing+codec=codec~public=photos~size=64"}
    )
    (found,) = other.pretrainings
    assert str(found) == "photos/codec+size=64"
    file = Paths(Path("r")).knowledge(found)
    assert file == Path("r/knowledge/photos/codec+size=64/knowledge.h5")
    assert not own.upto("defense").pretrainings
    assert not Cell.parse(TEXTS).pretrainings


@pytest.mark.usefixtures("bringing")
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"client": "fedsgd+split=train"}, "codec.* train split of digits, .* fedsgd.split=train"),
        ({"attack": "bringing+codec=codec"}, "2048 values are not shorter than images of 256"),
        ({"attack": "bringing+codec=codec~public=photos"}, "another public dataset"),
    ],
)
def test_knowledge_that_does_not_fit_is_refused(changes: dict[str, str], fault: str) -> None:
    with pytest.raises(IncompatibleError, match=fault):
        Cell.parse({**TEXTS, "attack": "bringing+codec=codec~size=64", **changes})


def test_a_batch_that_must_repeat_labels_does_not_fit_a_rule_that_cannot() -> None:
    texts = {**TEXTS, "client": "fedsgd+batch_size=12", "attack": "idlg"}
    with pytest.raises(
        IncompatibleError, match=r"idlg finds no label twice, but 12 samples in 10 classes"
    ):
        Cell.parse(texts)
    assert Cell.parse({**texts, "attack": "cpl"}).attack.name == "cpl"


def test_a_cell_has_a_text_at_every_level() -> None:
    cell = Cell.parse(TEXTS)
    assert levels_of(cell) == TEXTS
    assert levels_of_truth(cell.upto("defense")) == {**TEXTS, "attack": "truth"}
    assert levels_of(cell.upto("training"))["client"] == ""
