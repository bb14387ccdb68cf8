"""Users' own networks are built once and asked what no spec tells."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import load, parse
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.own_models import _built, check_own_model, is_own
from gleak.testing.tiny_cells import SMALL_MODELS

SOURCE = """
from pathlib import Path

from torch import nn


def dense(shape, classes):
    with Path("built").open("a") as notes:
        notes.write("x")
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.ReLU(), nn.Linear(4, classes))


def convolutional(shape, classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, classes)
    )


def headless(shape, classes):
    return nn.Sequential(nn.Conv2d(1, classes, 16), nn.Flatten())


def frozen(shape, classes):
    network = dense(shape, classes)
    network[1].requires_grad_(False)
    return network


def angular(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.Hardsigmoid(), nn.Linear(4, classes))


def broken(shape, classes):
    raise ValueError("no such size")


def nothing(shape, classes):
    return "a network"


def short(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(256, classes - 1))
"""
PATH = "digits/lenet/untrained/honest/fedsgd/none/blind"
BASE = dict(zip(LEVELS, PATH.split("/"), strict=True))


@pytest.fixture(autouse=True)
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _built.cache_clear()
    (tmp_path / "networks_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def cell(factory: str, **levels: str) -> Cell:
    return Cell.parse({**BASE, "model": f"custom+factory=networks_of_mine.{factory}", **levels})


def check(factory: str, **levels: str) -> None:
    check_own_model(cell(factory, **levels), Path("nowhere"))


@pytest.mark.parametrize(
    ("factory", "levels", "fault"),
    [
        ("dense", "attack=aono", ""),
        ("dense", "attack=cpa_edges client=fedsgd+batch_size=4", ""),
        ("dense", "attack=spear defense=fedcdp", ""),
        ("dense", "crafting=fishing attack=fishing", ""),
        ("convolutional", "attack=fi defense=soteria", ""),
        ("convolutional", "attack=cpl defense=fedcdp", ""),
        ("headless", "attack=cpl+labels=known", ""),
        ("headless", "attack=melis training=federated", ""),
        ("angular", "attack=aono", ""),
        ("convolutional", "attack=aono", "attack aono on model .*convolutional: .* samples thems"),
        ("convolutional", "attack=cpa_edges", "attack cpa_edges on .* samples themselves, and"),
        (
            "dense",
            "attack=cpa_edges client=fedsgd+batch_size=5",
            "at most as many .*neurons: 5 and",
        ),
        ("dense", "attack=spear client=fedsgd+batch_size=5", "5 and 4 .layer '1'"),
        ("dense", "attack=fi", "takes the samples themselves; use cpa"),
        ("headless", "attack=cpa_fi", "this model has no such layer; use gm"),
        ("headless", "attack=cpl", "labels cannot be inferred: it has no dense layer with 10"),
        ("frozen", "attack=cpa", r"cpa on .* the gradient of 1\.bias, .* frozen"),
        ("angular", "attack=cpl", r"layer '2' \(Hardsigmoid\) has no second derivative"),
        ("headless", "defense=soteria", "defense soteria on .* no dense layer that is called once"),
        ("headless", "defense=secure_aggregation+clients=2+each=soteria", "no dense layer that is"),
        ("headless", "crafting=fishing", "crafting fishing on .* no dense layer with 10"),
        ("dense", "crafting=mkor", "crafting mkor on .* no convolutions before dense layers"),
        ("convolutional", "crafting=mkor", "crafting mkor on .*kernels|two dense layers"),
        (
            "convolutional",
            "training=federated+defense=fedcdp",
            "computes with the whole mini-batch",
        ),
        ("broken", "", r"factory, called with shape \(1, 16, 16\) and 10 .* ValueError: no such"),
        ("nothing", "", r"returns a str, not a torch\.nn\.Module"),
        ("short", "", r"custom.*short, samples of shape \(1, 16, 16\): .*\(1, 10\)|one logit"),
    ],
)
def test_networks_that_do_not_serve_a_cell_are_refused(
    factory: str, levels: str, fault: str
) -> None:
    changes = dict(text.split("=", 1) for text in levels.split())
    if "clients=2" in levels:
        changes["client"] = "fedsgd+batch_size=2"
    with pytest.raises(IncompatibleError, match=fault) if fault else nullcontext():
        check(factory, **changes)


@pytest.mark.parametrize("factory", ["no_such_function", "deeper.build"])
def test_a_factory_that_is_not_there_is_a_slip(factory: str) -> None:
    with pytest.raises(SpecError, match="set PYTHONPATH"):
        check(factory)


def test_a_network_is_built_once_and_only_as_far_as_a_cell_goes(tmp_path: Path) -> None:
    for attack in ("aono", "blind", "aono"):
        check("dense", attack=attack, defense="topk")
    check_own_model(cell("dense").upto("model"), Path("nowhere"))
    check_own_model(cell("dense").upto("dataset"), Path("nowhere"))
    assert (tmp_path / "built").read_text() == "x"


def test_classes_are_counted_in_the_folder_where_only_that_tells(tmp_path: Path) -> None:
    levels: dict[str, Any] = {"dataset": "folder+size=16+folder=mine+channels=1"}
    check("short", **levels)
    for name in ("cat", "dog"):
        (tmp_path / "nowhere/mine/train" / name).mkdir(parents=True)
    with pytest.raises(IncompatibleError, match=r"\(1, 2\)|one logit"):
        check("short", **levels)


def test_registered_models_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Cell.parse(BASE)
    monkeypatch.setattr(type(registered.model), "build", None)
    check_own_model(registered, Path("nowhere"))
    assert not is_own(registered)
    assert is_own(cell("dense"))


@pytest.mark.parametrize("text", SMALL_MODELS)
def test_networks_tell_of_themselves_what_specs_tell_of_them(text: str) -> None:
    """What a spec is known to serve, its network serves; a first layer tells the same as both."""
    dataset, model, client = (
        parse(level, spec)
        for level, spec in (("dataset", "digits"), ("model", text), ("client", "fedsgd"))
    )
    network = model.build(dataset.shape, 10).eval()

    def refuses(check: Any, *arguments: Any) -> bool:
        try:
            check(*arguments)
        except IncompatibleError:
            return True
        return False

    for name in load("attack"):
        attack = parse("attack", name)
        told = refuses(attack.check, dataset, model, client)
        found = refuses(attack.check_network, network, dataset.shape, 10, client)
        assert told or not found or attack.crafting, name
        if name in ("aono", "cpa", "cpa_edges", "fi"):
            assert told == found, name
    for name in load("crafting"):
        crafting = parse("crafting", name)
        told = refuses(crafting.check, dataset, model)
        found = refuses(crafting.check_network, network, dataset.shape, 10)
        assert told or not found, name
