from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import IncompatibleError, SpecError
from gleak.studies.axis_values import AxisReader
from gleak.studies.cell import Cell
from gleak.studies.grid import Grid, GridReader
from gleak.studies.search.declaration import SpecSearch
from gleak.studies.study_file import GridFile, StudyFile

BASE: dict[str, Any] = {
    "dataset": ["mnist", "cifar10"],
    "model": "lenet",
    "training": "untrained+init=uniform",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": ["none", "gaussian+std=1e-4"],
    "attack": ["cpl", "dlg"],
}
DATASETS = ["mnist", "cifar10", "cifar100", "lfw", "digits"]
DEFENSES = ["none", "gaussian", "laplace", "topk"]
ATTACKS = ["cpl", "dlg", "idlg", "invertgrad"]


def expanded(
    fields: dict[str, Any],
    scale: Any = "paper",
    searches: dict[str, SpecSearch] | None = None,
    **study: Any,
) -> Grid:
    """A grid of a study that holds nothing else."""
    file = StudyFile(title="t", paper="p", grids={}, figures={}, **study)
    reader = AxisReader(file, scale, searches or {})
    return GridReader("attacks", GridFile(**fields), reader, "s.yaml: study 's'").grid


def grid(scale: Any = "paper", **fields: Any) -> Grid:
    return expanded({**BASE, **fields}, scale)


def proxies(grid: Grid) -> dict[str, dict[str, str]]:
    """By level, our value -> the published one that it substitutes."""
    return {
        level: {str(ours): str(other) for ours, other in pairs.items()}
        for level, pairs in grid.names.substituted.items()
    }


def attacks(grid: Grid) -> list[str]:
    return [cell.strings()["attack"] for cell in grid.cells]


def some(values: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True)


@given(some(DATASETS), some(DEFENSES), some(ATTACKS))
def test_cells_are_every_combination_and_the_controls(
    datasets: list[str], defenses: list[str], attacks: list[str]
):
    found = grid(dataset=datasets, defense=defenses, attack=attacks)
    prefixes = len(datasets) * len(defenses)
    assert len({str(cell) for cell in found.cells}) == prefixes * (len(attacks) + 1)
    assert len(found.cells) == prefixes * (len(attacks) + 1)
    assert len(found.truths) == prefixes
    assert len(found.scored) == prefixes * (len(attacks) + 2)
    for cell in found.cells:
        assert Cell.from_path(cell.strings()).strings() == cell.strings()


def test_cells_come_in_the_order_of_the_study():
    attacks = [cell.strings()["attack"] for cell in grid(defense="none").cells]
    assert attacks == ["cpl", "dlg", "cpl", "dlg", "blind", "blind"]
    assert grid().names.values["attack"] == ("cpl", "dlg", "blind", "truth")


def test_controls_can_be_left_out_and_are_not_doubled():
    bare = grid(controls=[])
    assert not bare.truths
    assert len(bare.cells) == 8
    named = grid(attack=["blind", "cpl"])
    assert len(named.cells) == 8
    assert named.names.values["attack"] == ("blind", "cpl", "truth")


def test_zipped_axes_advance_together():
    clients = ["fedsgd+victims=2", "fedsgd+victims=3"]
    cells = grid(client=clients, zip=[["dataset", "client"]]).cells
    pairs = {(cell.strings()["dataset"], cell.strings()["client"]) for cell in cells}
    assert pairs == set(zip(BASE["dataset"], clients, strict=True))
    assert len(cells) == 2 * 2 * 3
    assert list(cells[0].strings()) == list(BASE)


def test_excluded_cells_take_their_controls_with_them():
    found = grid(exclude=[{"dataset": "mnist", "defense": "gaussian+std=0.0001"}])
    pairs = {(row["dataset"], row["defense"]) for row in found.scored}
    assert ("mnist", "gaussian+std=1e-4") not in pairs
    assert len(pairs) == 3
    one = grid(exclude=[{"attack": "dlg", "dataset": "mnist"}])
    assert len(one.cells) == len(grid().cells) - 2


def test_cells_are_declared_no_better_than_blind_by_any_level():
    declared = [
        {"cells": {"defense": "gaussian+std=1e-4"}, "reason": "noise"},
        {"cells": {"attack": "dlg", "defense": "none"}, "reason": "it diverges"},
    ]
    noise, diverging = grid(no_better_than_blind=declared).weak
    assert len(noise.cells) == 4 and len(diverging.cells) == 2
    assert {str(cell.attack) for cell in diverging.cells} == {"dlg"}
    assert (diverging.reason, str(diverging.specs["attack"])) == ("it diverges", "dlg")
    quick = {"no_better_than_blind": []}
    assert not grid("quick", no_better_than_blind=declared, quick=quick).weak


def test_a_scale_overrides_what_it_names():
    quick = {"dataset": "digits", "proxy_for": {"digits": "mnist"}, "exclude": []}
    fields = {"quick": quick, "exclude": [{"dataset": "cifar10", "attack": "dlg"}]}
    assert grid("quick", **fields).names.values["dataset"] == ("digits",)
    assert grid("quick", **fields).names.values["defense"] == ("none", "gaussian+std=1e-4")
    assert proxies(grid("quick", **fields)) == {"dataset": {"digits": "mnist"}}
    assert grid("small", **fields).scored == grid("paper", **fields).scored
    assert len(grid("paper", **fields).cells) == 10


WEAK = {"cells": {"attack": "dlg"}, "reason": "r"}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"dataset": "digit"}, "axis 'dataset': unknown dataset 'digit'; did you mean 'digits'"),
        ({"defense": "gaussian+sdt=1"}, "axis 'defense': .*field 'sdt'; did you mean 'std'"),
        ({"attack": []}, "axis 'attack': has no values"),
        ({"client": None, "quick": {"client": "fedsgd"}}, "axis 'client': has no values"),
        ({"attack": ["cpl", "truth"]}, "axis 'attack': 'truth' is a control"),
        ({"attack": ["cpl", "cpl+restarts=20"]}, "none/cpl is there more than once"),
        ({"zip": [["dataset", "client"]]}, "zip: .*equal length: dataset has 2, client has 1"),
        ({"zip": [["dataset", "cleint"]]}, "zip: unknown level 'cleint'; did you mean 'client'"),
        ({"zip": [["dataset", "attack"], ["attack", "defense"]]}, "zip: attack named twice"),
        ({"no_better_than_blind": [{**WEAK, "cells": {"attack": "gm"}}]}, "'gm'.*matches no cell"),
        ({"no_better_than_blind": [WEAK, WEAK]}, "dlg is declared twice"),
        ({"exclude": [{"dataset": "lfw"}]}, "exclude .*'lfw'.*: matches no cell"),
        ({"exclude": [{"datset": "lfw"}]}, "exclude .*: unknown level 'datset'; .*'dataset'"),
        ({"exclude": [{"dataset": "lwf"}]}, "exclude .*: unknown dataset 'lwf'"),
        ({"exclude": [{"dataset": "mnist"}, {"dataset": "cifar10"}]}, "no cell is left"),
        ({"proxy_for": {"lfw": "mnist"}}, "proxy_for: 'lfw' is on no axis"),
        ({"proxy_for": {"mnist": "lwf"}}, "proxy_for: unknown dataset 'lwf'"),
        ({"proxy_for": {"mnist": "lfw", "cifar10": "lfw"}}, "2 dataset values stand for 'lfw'"),
    ],
)
def test_faults_name_their_place(fields: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=fault) as raised:
        grid(**fields)
    assert str(raised.value).startswith("s.yaml: study 's', scale 'paper'")


MODELS: dict[str, Any] = {
    "dataset": ["mnist", "cifar10"],
    "model": "lenet",
    "training": ["central", "federated+defense=topk"],
}


def models(scale: Any = "paper", **fields: Any) -> Grid:
    return expanded({**MODELS, **fields}, scale)


def test_a_grid_of_models_ends_with_the_training():
    found = models(labels={"test_accuracy": "accuracy", "federated": "FL"})
    assert [str(cell) for cell in found.cells] == [
        f"{dataset}/lenet/{training}"
        for dataset in ("mnist", "cifar10")
        for training in ("central", "federated+defense=topk")
    ]
    assert list(found.names.values) == ["dataset", "model", "training"]
    assert found.truths == []
    later = dict.fromkeys(["crafting", "client", "defense", "attack"], "")
    assert found.scored == [{**cell.strings(), **later} for cell in found.cells]


def test_a_grid_of_broadcast_parameters_ends_with_the_crafting():
    found = models(crafting=["honest", "fishing"], labels={"audit_zeros": "zeros"})
    assert len(found.cells) == 2 * 2 * 2
    assert {cell.end for cell in found.cells} == {"crafting"}
    assert found.truths == []
    later = dict.fromkeys(["client", "defense", "attack"], "")
    assert found.scored == [{**cell.strings(), **later} for cell in found.cells]
    found.names.check_metric("audit_zeros")
    for metric in ("mse", "test_accuracy"):
        with pytest.raises(SpecError, match=r"of the grid end with crafting; .*audit_zeros"):
            found.names.check_metric(metric)


CRAFTED: dict[str, Any] = {
    "dataset": "mnist",
    "defense": "none",
    "crafting": ["honest", "honest", "fishing"],
    "attack": ["dlg", "invertgrad", "fishing"],
    "zip": [["crafting", "attack"]],
}


def test_attacks_advance_with_the_parameters_crafted_for_them():
    found = grid(**CRAFTED)
    pairs = [(row["crafting"], row["attack"]) for row in found.scored]
    attacks = list(zip(CRAFTED["crafting"], CRAFTED["attack"], strict=True))
    controls = [(crafting, "blind") for crafting in ("honest", "fishing")]
    assert pairs == [*attacks, *controls, ("honest", "truth"), ("fishing", "truth")]
    assert found.names.values["crafting"] == ("honest", "fishing")
    assert found.names.together("attack") == {"crafting", "attack"}
    assert found.names.together("model") == {"model"}
    assert grid().names.together("attack") == {"attack"}


@pytest.mark.parametrize(
    ("make", "fields", "fault"),
    [
        (grid, {"client": None}, "axis 'client' is left out before 'attack'"),
        (grid, dict.fromkeys(BASE), "the last axis is 'none'; a grid ends with one of training"),
        (grid, {"attack": None}, "the last axis is 'defense'; a grid ends with one of .*, attack"),
        (grid, {"training": None, "quick": {"client": "fedsgd"}}, "'training' is left out before"),
        (models, {"quick": {"crafting": "honest"}}, "axis 'crafting': has no values"),
        (models, {"zip": [["dataset", "attack"]]}, "zip: unknown level 'attack'; .*valid: dataset"),
        (models, {"exclude": [{"attack": "cpl"}]}, "exclude .*: unknown level 'attack'"),
        (models, {"proxy_for": {"cpl": "dlg"}}, "proxy_for: 'cpl' is on no axis"),
    ],
)
def test_axes_leave_no_gap_and_end_with_what_is_scored(
    make: Callable[..., Grid], fields: dict[str, Any], fault: str
):
    with pytest.raises(SpecError, match=f"^s.yaml: study 's'.*{fault}"):
        make(**fields)


def test_specs_that_do_not_fit_name_their_place():
    with pytest.raises(IncompatibleError, match=r"scale 'paper': .*batch_size"):
        grid(client="fedsgd+batch_size=11+labels=unique")


def test_cells_whose_specs_do_not_fit_are_left_out_with_the_reason():
    found = grid(dataset="mnist", defense="none", attack=["cpl", "aono", "dlg"])
    assert attacks(found) == ["cpl", "dlg", "blind"]
    (refusal,) = found.refused
    assert refusal.levels["attack"] == "aono"
    assert "model lenet begins with a convolution" in refusal.reason
    assert str(refusal).endswith(f"/aono: {refusal.reason}")
    assert refusal.row == {**refusal.levels, "reason": refusal.reason}
    assert [row["attack"] for row in found.scored] == ["cpl", "aono", "dlg", "blind", "truth"]
    assert not grid().refused


def test_the_controls_of_a_setting_that_cannot_be_are_left_out_too():
    found = grid(client=["fedsgd", "fedsgd+batch_size=11+labels=unique"], dataset="mnist")
    large = [row for row in found.scored if "11" in row["client"]]
    assert [refusal.levels for refusal in found.refused] == [
        *(row for row in large if row["attack"] in ("cpl", "dlg")),
        *(row for row in large if row["attack"] == "blind"),
        *(row for row in large if row["attack"] == "truth"),
    ]
    assert len(large) == 8
    assert all("11 samples with unique labels" in refusal.reason for refusal in found.refused)


def test_the_network_of_a_users_own_model_is_examined_when_that_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "grid_models.py").write_text(
        "from torch import nn\n\n"
        "def convolutional(shape, classes):\n"
        "    return nn.Sequential(nn.Conv2d(1, classes, shape[1]), nn.Flatten())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = "custom+factory=grid_models.convolutional"
    fields = {"model": model, "dataset": "digits", "defense": "none"}
    before = grid(**fields, attack=["cpl+labels=known", "aono"])
    after = before.examined(tmp_path)
    assert attacks(before) == ["cpl+labels=known", "aono", "blind"]
    assert attacks(after) == ["cpl+labels=known", "blind"]
    assert after.scored == before.scored
    assert [refusal.levels["attack"] for refusal in after.refused] == ["aono"]
    with pytest.raises(IncompatibleError, match=r"attack aono on .*; so no cell is left"):
        grid(**fields, attack="aono").examined(tmp_path)
    registered = grid()
    assert registered.examined(tmp_path) is registered


def test_each_network_has_an_independent_training():
    found = models(training="central", networks=3)
    trainings = [cell.strings()["training"] for cell in found.repeated]
    assert len(found.cells) == 2
    assert trainings == 2 * ["central", "central+repetition=1", "central+repetition=2"]


def test_each_attacked_network_has_victims_of_its_own():
    found = grid(client="fedsgd+victims=3+first=1", attack="cpl", networks=2)
    cells = [cell.strings() for cell in found.repeated]
    assert {(cell["training"], cell["client"]) for cell in cells} == {
        ("untrained+init=uniform", "fedsgd+victims=3+first=1"),
        ("untrained+init=uniform+repetition=1", "fedsgd+victims=3+first=4"),
    }


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (models, {"training": "untrained+repetition=1"}, "cannot be repeated"),
        (models, {"training": "captured"}, "cannot be repeated"),
        (models, {"training": "pretrained+weights=own.pth"}, "have the same parameters"),
    ],
)
def test_networks_that_cannot_be_repeated_are_refused(
    make: Callable[..., Grid], fields: dict[str, Any], message: str
):
    with pytest.raises((SpecError, IncompatibleError), match=message):
        make(networks=2, **fields)
