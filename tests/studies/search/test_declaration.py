from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.studies.search.chosen import Entry
from gleak.studies.search.declaration import (
    Choices,
    Declaration,
    IntegerRange,
    NumberRange,
    Range,
    SearchFile,
    SpecSearch,
    read_range,
    read_search,
)

Declare = Callable[..., SpecSearch]
CHOSEN = "cpl+iterations=3+alpha=2.5"


def entry(search: SpecSearch, chosen: str = CHOSEN) -> Entry:
    return Entry(
        chosen=chosen,
        value=0.1,
        base_value=0.2,
        metric="mse",
        trials=3,
        levels=search.cell.strings(),
        fingerprint=search.fingerprint,
    )


def test_what_is_declared_reads_as_the_same(declare: Declare):
    search = declare(attack="cpl+alpha=0.50+iterations=3", metric="success_content+threshold=0.10")
    again = read_search("weights", Declaration(**search.declared))
    assert again == search
    assert again.fingerprint == search.fingerprint


def test_the_fingerprint_is_of_the_meaning_not_of_the_writing(declare: Declare):
    written = {"ranges": {"alpha": {"low": "1e-5", "high": 10.0, "log": True}}}
    assert declare(**written, client="fedsgd+split=train+victims=2") == declare()
    assert declare(**written).fingerprint == declare().fingerprint


@pytest.mark.parametrize(
    "keys",
    [
        {"attack": "cpl+iterations=4+alpha=0.5"},
        {"dataset": "digits+size=12"},
        {"client": "fedsgd+victims=3+split=train"},
        {"ranges": {"alpha": {"low": 1e-5, "high": 10}}},
        {"trials": 4},
        {"metric": "psnr"},
    ],
)
def test_any_change_gives_another_fingerprint(declare: Declare, keys: dict[str, Any]):
    assert declare(**keys).fingerprint != declare().fingerprint


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"trials": None}, "key 'trials' is missing"),
        ({"attack": "cpll"}, "unknown attack 'cpll'; did you mean 'cpl'"),
        ({"ranges": {}}, "ranges: has no fields"),
        ({"ranges": {"alhpa": [0, 1]}}, "ranges: attack 'cpl' has no field 'alhpa'; did .*'alpha'"),
        ({"ranges": {"alpha": {"low": 1, "high": 2}}}, "ranges, field 'alpha': .*not from 1 to 2"),
        ({"metric": "msee"}, "metric: unknown metric 'msee'; did you mean 'mse'"),
        ({"metric": "test_accuracy"}, "metric: test_accuracy is of a model"),
        ({"metric": "categories"}, "metric: categories does not apply to image data"),
        (
            {"client": "fedsgd+victims=2"},
            "client: fedsgd.victims=2 draws its samples from split=test, .*write it with split=tr",
        ),
        ({"ranges": {"labels": ["argmin", "known"]}}, "ranges: cpl.*labels=known.* needs other"),
    ],
)
def test_faults_name_the_key(declare: Declare, keys: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=f"^{fault}"):
        declare(**keys)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"ranges": {"start": ["patterned", "red"]}}, "ranges: .*start red needs images of 3 chan"),
        ({"client": "fedsgd+batch_size=9999+split=train"}, "batch_size=9999 is more than the 1347"),
    ],
)
def test_specs_that_do_not_fit(declare: Declare, keys: dict[str, Any], fault: str):
    with pytest.raises(IncompatibleError, match=fault):
        declare(**keys)


def test_a_scale_overrides_what_it_names():
    file = SearchFile(dataset="mnist", attack="cpl", trials=50, quick={"dataset": "digits"})
    assert file.at("quick") == Declaration(dataset="digits", attack="cpl", trials=50)
    assert (
        file.at("small")
        == file.at("paper")
        == Declaration(dataset="mnist", attack="cpl", trials=50)
    )


def test_modules_are_those_of_every_choice(declare: Declare):
    ranges = {"optimizer": ["lbfgs", "adam"]}
    assert "gleak.attacks.matching.optimizers" in declare(ranges=ranges).modules
    assert "gleak.attacks.matching.optimizers" not in declare().modules
    assert {
        "gleak.attacks.dlg",
        "gleak.models.lenet",
        "gleak.metrics.reconstruction.pixel_similarity",
    } <= {*declare().modules}


def test_a_job_is_keyed_on_every_default(declare: Declare):
    resolved = declare().resolved()
    assert resolved["attack"]["patience"] == declare().base.patience
    assert resolved["model"]["width"] == 4
    assert resolved["metric"]["name"] == "mse"
    assert resolved["ranges"]["alpha"]["high"] == 10


def test_all_is_read_that_any_variant_reads(declare: Declare, monkeypatch: pytest.MonkeyPatch):
    search = declare(ranges={"patience": {"low": 100, "high": 300}})

    def reads(attack: Any, model: nn.Module, shape: tuple[int, ...]) -> frozenset[str]:
        return frozenset({str(attack.patience)})

    monkeypatch.setattr(type(search.base), "reads", reads)
    assert search.reads(nn.Identity(), (1, 2, 2)) == {"100", "200", "300"}
    monkeypatch.undo()
    assert search.reads(nn.Identity(), (1, 2, 2)) is None


def test_what_was_chosen_is_taken_if_it_is_of_this_declaration(declare: Declare):
    search = declare().adopting(entry(declare()))
    assert str(search.chosen) == CHOSEN
    search.check_choice()
    outdated = declare(trials=9).adopting(entry(declare()))
    assert outdated.chosen is None
    with pytest.raises(SpecError, match=r"'weights' has changed .*snakemake searches.*gleak adopt"):
        outdated.check_choice()


@pytest.mark.usefixtures("bringing")
def test_an_attack_brings_the_same_whatever_is_tried(declare: Declare):
    own = "bringing+codec=codec~size=64"
    with pytest.raises(IncompatibleError, match=r"codec.* is trained on the train split of digits"):
        declare(attack=own, ranges={"codec": ["codec~size=64", "codec~size=32"]})
    public = {"dataset": "cifar10", "attack": "bringing+codec=codec~public=photos~size=64"}
    choices = ["codec~public=photos~size=64", "codec~public=photos~size=32"]
    with pytest.raises(SpecError, match="size=32 uses other knowledge than bringing"):
        declare(**public, ranges={"codec": choices})


CPL = parse("attack", "cpl+alpha=0.5")
ENDS = st.floats(1e-6, 1e6)


def suggestions(found: Range, seed: int = 0, count: int = 20) -> list[Any]:
    """Return values that Optuna draws from one range."""
    import optuna

    optuna.logging.disable_default_handler()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [found.suggest(study.ask(), "field") for _ in range(count)]


@given(ENDS, ENDS, st.booleans(), st.integers(0, 99))
def test_numbers_stay_between_the_ends_and_are_short(
    first: float, second: float, log: bool, seed: int
):
    low, high = sorted((first, second))
    if not low < high:
        return
    for value in suggestions(NumberRange(low=low, high=high, log=log), seed, 5):
        assert low <= value <= high
        assert value in (low, high) or value == float(f"{value:.3g}")


def test_a_whole_field_gets_whole_numbers():
    found = read_range(CPL, "patience", {"low": 1, "high": 400})
    assert isinstance(found, IntegerRange)
    assert all(type(value) is int for value in suggestions(found))


def test_choices_are_canonical_and_may_be_specs():
    starts = ["patterned", "patterned~tiles=04", "dark"]
    found = read_range(CPL, "start", starts)
    assert found == Choices(texts=("patterned", "patterned~tiles=4", "dark"))
    assert set(suggestions(found)) == set(found.examples)
    assert read_range(CPL, "alpha", [1, "5e-1"]) == Choices(texts=("1", "0.5"))


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("alpha", {"low": 0, "high": "1e1"}),
        ("alpha", {"low": 1e-5, "high": 10, "log": True}),
        ("patience", {"low": 1, "high": 400}),
        ("alpha", [0, 0.5]),
        ("labels", ["known", "argmin"]),
    ],
)
def test_a_declared_range_reads_as_the_same_and_can_be_begun_with(field: str, written: Any):
    found = read_range(CPL, field, written)
    assert read_range(CPL, field, found.declared()) == found
    import optuna

    study = optuna.create_study()
    study.enqueue_trial({field: found.start(CPL, field)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = found.suggest(study.ask(), field)
    assert first == found.start(CPL, field)


@pytest.mark.parametrize(
    ("field", "written", "fault"),
    [
        ("alpha", {"low": -1, "high": 1}, "field 'alpha' = -1.0: .*greater than or equal to 0"),
        ("threshold", {"low": 0, "high": 1}, "field 'threshold' = 0.0: .*greater than 0"),
        ("patience", {"low": 0.5, "high": 500}, "low = 0.5: .*integer"),
        ("alpha", {"low": 1, "high": 1}, "low = 1 is not below high = 1"),
        ("alpha", {"low": 0, "high": 1, "log": True}, "a logarithmic range begins above 0"),
        ("alpha", {"low": 0}, "key 'high' is missing"),
        ("alpha", {"low": 0, "hihg": 1}, "key 'high' is missing; unknown key 'hihg'; did you mean"),
        ("alpha", {"low": 1, "high": 2}, "alpha = 0.5 is not from 1 to 2; widen the range or"),
        ("labels", {"low": 0, "high": 1}, "'argmin' of cpl.* is not a number; list choices"),
        ("labels", ["argmin", "agrmin"], "field 'labels' = 'agrmin'"),
        ("labels", ["known", "joint"], "labels = argmin is none of known, joint; add it"),
        ("start", ["patterned", "drak"], "unknown start 'drak'; did you mean 'dark'"),
        ("alpha", [0.5], "two or more different choices"),
        ("alpha", [0.5, "5e-1"], "two or more different choices"),
    ],
)
def test_faults_of_ranges_name_the_field(field: str, written: Any, fault: str):
    with pytest.raises(SpecError, match=f"ranges, field '{field}': .*{fault}"):
        read_range(CPL, field, written)
