from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gleak.attacks.run_attack import attack
from gleak.core.errors import ArtifactError, GleakError, IncompatibleError
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.score import score
from gleak.studies.cell import LEVELS
from gleak.studies.search.chosen import SearchOutcome
from gleak.studies.search.declaration import NumberRange, SpecSearch
from gleak.studies.search.run import FAILED, OK, run_search, try_specs

Declare = Callable[..., SpecSearch]
Simulate = Callable[..., Path]
CLIENT = "fedsgd+victims=2+split=train"


@pytest.fixture
def run(simulate: Simulate, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs a search on tiny images and returns its folder."""
    made = simulate(client=CLIENT)

    def make(search: SpecSearch, name: str = "search", seed: int = 5) -> Path:
        granted = {grant: made / "granted" / f"{grant}.h5" for grant in search.base.grants}
        files = (made / "update.h5", made / "model.h5", granted, made / "private.h5")
        folder = tmp_path / name
        run_search(search, *files, folder, study="s", scale="quick", seed=seed, device="cpu")
        return folder

    return make


def test_the_best_of_the_trials_is_chosen_and_the_base_is_the_first(
    run: Callable[..., Path], declare: Declare
):
    search = declare()
    folder = run(search)
    trials = pd.read_csv(folder / "trials.csv")
    assert list(trials) == ["trial", "alpha", "value", "status"]
    assert trials["trial"].tolist() == [0, 1, 2]
    assert trials["alpha"][0] == search.base.alpha
    assert trials["alpha"].between(1e-5, 10).all()
    assert trials["alpha"].nunique() == 3
    outcome = SearchOutcome.read(folder / "chosen.yaml")
    best = trials.loc[trials["value"].idxmin()]
    assert outcome.value == best["value"] == trials["value"].min()
    assert outcome.chosen == f"cpl+iterations=3+alpha={best['alpha']:g}"
    assert outcome.base_value == trials["value"][0]
    assert outcome.fingerprint == search.fingerprint
    assert outcome.levels == search.cell.strings()
    assert (outcome.study, outcome.scale, outcome.search) == ("s", "quick", "weights")


def test_nothing_is_tried_on_victims_that_the_attacker_knows(
    declare: Declare, simulate: Simulate, codec: Path, tmp_path: Path
):
    made = simulate(client=CLIENT)
    files = (made / "update.h5", made / "model.h5", {}, made / "private.h5")
    where = {"study": "s", "scale": "quick", "seed": 5, "knowledge_paths": [codec]}
    with pytest.raises(
        IncompatibleError, match=r"knowledge\.h5: trained on tiny, which contains 2"
    ):
        run_search(declare(), *files, tmp_path / "search", **where, device="cpu")


def test_a_trial_is_worth_what_the_attack_and_its_scores_say(
    run: Callable[..., Path], declare: Declare, simulate: Simulate, tmp_path: Path
):
    """Compare with the stages of the workflow, run on files."""
    search, made = declare(trials=1), simulate(client=CLIENT)
    found = tmp_path / "reconstruction.h5"
    files = (made / "update.h5", made / "model.h5", {})
    attack(search.base, *files, found, seed=5, device="cpu")
    columns = {**dict.fromkeys(LEVELS, ""), "grants": ""}
    table = score(made / "private.h5", tmp_path / "scores.csv", columns, found, [search.metric])
    value = SearchOutcome.read(run(search) / "chosen.yaml").value
    assert value == pytest.approx(table["value"].mean(), rel=1e-8)


def test_equal_inputs_give_equal_bytes(run: Callable[..., Path], declare: Declare):
    ranges = {"alpha": {"low": 0, "high": 1}, "start": ["patterned", "dark"]}
    search = declare(attack="cpl+iterations=1+restarts=0", ranges=ranges)
    first, second, other = run(search, "a"), run(search, "b"), run(search, "c", seed=6)
    for name in ("trials.csv", "chosen.yaml"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert (first / "trials.csv").read_bytes() != (other / "trials.csv").read_bytes()


@pytest.mark.slow
def test_broken_off_after_every_trial_it_comes_to_the_same(
    run: Callable[..., Path], declare: Declare, stops: Callable[..., tuple[Path, int]]
):
    """Interrupt the first run at its first checkpoint, the next at its second, and so on."""
    attack = "cpl+iterations=1+restarts=0"
    search = declare(attack=attack, ranges={"alpha": {"low": 0, "high": 1}}, trials=2)
    whole = run(search, "whole")
    found, broken_off = stops(lambda: run(search, "broken"))
    assert broken_off
    for name in ("trials.csv", "chosen.yaml"):
        assert (found / name).read_bytes() == (whole / name).read_bytes()
    assert sorted(path.name for path in found.iterdir()) == ["chosen.yaml", "trials.csv"]


def test_grants_are_those_of_the_attack(run: Callable[..., Path], declare: Declare):
    known = declare(attack="cpl+iterations=2+labels=known", ranges={"alpha": [0, 1]}, trials=2)
    assert pd.read_csv(run(known) / "trials.csv")["status"].tolist() == [OK, OK]


def test_a_spec_that_is_proposed_again_is_not_tried_again(
    run: Callable[..., Path], declare: Declare, monkeypatch: pytest.MonkeyPatch
):
    search = declare(ranges={"alpha": [0, 0.5]}, trials=6)
    tried: list[Any] = []
    original = type(search.base).reconstruct

    def counted(self: Any, observation: Any) -> Any:
        tried.append(self.alpha)
        return original(self, observation)

    monkeypatch.setattr(type(search.base), "reconstruct", counted)
    run(search)
    assert sorted(tried) == [0, 0.5]


@pytest.mark.parametrize(("metric", "sign"), [("mse", 1), ("psnr", -1)])
def test_the_metrics_direction_decides(declare: Declare, metric: str, sign: int):
    search = declare(metric=metric, trials=40)
    trials = try_specs(search, lambda spec: sign * abs(math.log10(spec.alpha / 0.03)), seed=0)
    best = min(trials, key=lambda trial: sign * trial.value)
    assert abs(math.log10(float(best.fields["alpha"]) / 0.03)) < 0.1
    assert trials[0].spec == str(search.base)
    assert trials == try_specs(
        search, lambda spec: sign * abs(math.log10(spec.alpha / 0.03)), seed=0
    )


def test_failed_trials_keep_a_row_and_are_never_chosen(
    run: Callable[..., Path],
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    search = declare(trials=4)
    original, calls = type(search.base).reconstruct, []

    def sometimes(self: Any, observation: Any) -> Any:
        calls.append(self)
        if len(calls) == 1:
            raise ArtifactError("blew up")
        found = original(self, observation)
        if len(calls) == 2:
            found.inputs[:] = float("nan")
        return found

    monkeypatch.setattr(type(search.base), "reconstruct", sometimes)
    folder = run(search)
    trials = pd.read_csv(folder / "trials.csv")
    assert trials["status"].tolist() == [FAILED, FAILED, OK, OK]
    assert trials["value"].isna().tolist() == [True, True, False, False]
    outcome = SearchOutcome.read(folder / "chosen.yaml")
    assert outcome.base_value is None
    assert outcome.value == trials["value"].min()
    assert "a trial failed: blew up" in caplog.text


def test_values_that_make_no_valid_spec_have_failed(declare: Declare):
    search = replace(declare(trials=9), ranges={"alpha": NumberRange(low=-5, high=5)})
    trials = try_specs(search, lambda spec: float(spec.alpha), seed=3)
    valid = [float(trial.fields["alpha"]) >= 0 for trial in trials]
    assert {*valid} == {True, False}
    assert [trial.status == OK for trial in trials] == valid


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_has_failed(
    declare: Declare, caplog: pytest.LogCaptureFixture, value: float
):
    trials = try_specs(declare(), lambda spec: value, seed=0)
    assert [trial.status for trial in trials] == [FAILED] * 3
    assert "mse of cpl+iterations=3+alpha=0.5 is not finite" in caplog.text


def test_a_search_without_any_value_says_so(
    run: Callable[..., Path], declare: Declare, monkeypatch: pytest.MonkeyPatch
):
    def never(self: Any, observation: Any) -> Any:
        raise ArtifactError("blew up")

    monkeypatch.setattr(type(declare().base), "reconstruct", never)
    with pytest.raises(GleakError, match="none of its 3 trials gave a finite mse"):
        run(declare())


def test_a_metric_that_cannot_be_computed_ends_the_search(declare: Declare):
    tried = []

    def unavailable(spec: Any) -> float:
        tried.append(spec)
        raise MetricUnavailable("no weights")

    with pytest.raises(MetricUnavailable, match="no weights"):
        try_specs(declare(), unavailable, seed=0)
    assert len(tried) == 1


def test_a_metric_of_the_clock_is_unavailable(run: Callable[..., Path], declare: Declare):
    with pytest.raises(MetricUnavailable):
        run(declare(metric="seconds"))


def test_optuna_is_silent_and_the_log_tells_how_far_it_is(
    run: Callable[..., Path],
    declare: Declare,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.INFO):
        run(declare())
    captured = capfd.readouterr()
    assert captured.err == ""
    assert not [record for record in caplog.records if record.name.startswith("optuna")]
    assert "search weights: 3/3" in caplog.text
    assert "the base cpl" in caplog.text
