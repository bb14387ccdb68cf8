from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
import yaml

from gleak.core.errors import ArtifactError, StoppedError
from gleak.core.settings import Settings
from gleak.figures.recorded import read_conditions
from gleak.figures.recorder import Recorder
from gleak.metrics.score_table import read_scores, save_scores
from gleak.studies.study import Study, load_study
from tests.figures.test_recorded import FACTS
from tests.score_tables import Scored

CLOCK = count(1.0)
DECLARED = Path(__file__).with_name("study.yaml")
LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")


@dataclass
class ScoredAtOnce:
    """Stands in for the workflow: each attack has its own error, the same for all its victims."""

    scored: Scored
    errors: dict[str, float] = field(default_factory=dict)
    failing: str = "none fails"
    interrupted: bool = False
    made: list[str] = field(default_factory=list)

    def make(self, targets: Iterable[Path], seconds: float | None = None) -> int:
        for target in targets:
            levels = dict(zip(LEVELS, target.parts[-8:-1], strict=True))
            if levels["attack"] == self.failing:
                continue
            self.made.append(levels["attack"])
            target.parent.mkdir(parents=True, exist_ok=True)
            error = self.errors.get(levels["attack"], 0.5)
            scores = self.scored("mse", [[error], [error]], **levels)
            times = self.scored("seconds", [[next(CLOCK)], [next(CLOCK)]], **levels)
            table = pd.concat([scores, times.assign(sample=pd.NA)])
            save_scores(table.drop(columns="cell"), target)
            (target.parent / "provenance.json").write_text(json.dumps(FACTS))
        if self.interrupted:
            raise StoppedError("interrupted")
        return 0


Make = Callable[..., Recorder]


@pytest.fixture
def recorder(study: Study, tmp_path: Path, scored: Scored) -> Make:
    """A recorder of a study of which nothing is recorded."""

    def make(study: Study = study, results: str = "results", **stand_in: object) -> Recorder:
        settings = Settings(results_dir=tmp_path / results)
        workflow = ScoredAtOnce(scored, **stand_in)
        return Recorder(study, settings, tmp_path / "record", workflow)

    return make


def with_attack(attack: str, tmp_path: Path, grid: str = "attacks") -> Study:
    """The study after somebody added an attack to its grid, or to a copy of that."""
    content = yaml.safe_load(DECLARED.read_text())
    changed = content["grids"][grid] = content["grids"]["attacks"]
    changed["attack"].append(attack)
    content["figures"], content["expect"] = {}, []
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(content))
    return load_study(file)


def recorded(recorder: Recorder, grid: str = "attacks") -> pd.DataFrame:
    return read_scores([recorder.folder / f"{grid}.csv.gz"])


def test_what_a_record_lacks_is_computed_once(recorder: Make):
    first = recorder()
    (done,) = first.run(["attacks"], hours=1)
    assert (done.added, done.left, done.failed) == (3, 0, [])
    assert set(recorded(first)["attack"]) == {"cpl", "dlg", "blind", "truth"}
    assert read_conditions(first.folder)["attacks"].cells == 3
    again = recorder()
    (done,) = again.run(["attacks"], hours=1)
    assert (done.added, again.workflow.made) == (0, [])


def test_an_attack_that_was_added_is_recorded_without_the_run_of_the_others(
    recorder: Make, tmp_path: Path
):
    [*recorder().run(["attacks"], hours=1)]
    added = recorder(with_attack("invertgrad", tmp_path), "elsewhere", errors={"invertgrad": 0.1})
    before = recorded(added)
    (done,) = added.run(["attacks"], hours=1)
    assert (done.added, done.left) == (1, 0)
    assert sorted(added.workflow.made) == ["blind", "invertgrad"]
    after = recorded(added)
    pd.testing.assert_frame_equal(
        after[after["attack"] != "invertgrad"].reset_index(drop=True), before
    )
    errors = after[(after["attack"] == "invertgrad") & (after["metric"] == "mse")]
    assert set(errors["value"]) == {0.1}
    assert read_conditions(added.folder)["attacks"].cells == 4


def test_other_victims_than_those_of_the_record_are_refused(recorder: Make, tmp_path: Path):
    [*recorder().run(["attacks"], hours=1)]
    study = with_attack("invertgrad", tmp_path)
    other = recorder(study, "elsewhere", errors={"blind": 0.7})
    with pytest.raises(ArtifactError, match=r"blind: mse of client 0 is 0\.7, 0\.5 in the record"):
        [*other.run(["attacks"], hours=1)]
    assert "invertgrad" not in set(recorded(other)["attack"])


def test_finished_cells_of_an_interrupted_run_are_recorded(recorder: Make):
    stopped = recorder(failing="dlg", interrupted=True)
    with pytest.raises(StoppedError):
        [*stopped.run(["attacks"], hours=1)]
    assert set(recorded(stopped)["attack"]) == {"cpl", "blind", "truth"}
    rest = recorder()
    assert [done.added for done in rest.run(["attacks"], hours=1)] == [1]


def test_cells_that_fail_are_named_and_the_others_recorded(recorder: Make):
    failing = recorder(failing="dlg")
    (done,) = failing.run(["attacks"], hours=1)
    assert (done.added, done.left) == (2, 1)
    assert [path.parent.name for path in done.failed] == ["dlg"]


def test_without_time_nothing_is_computed(recorder: Make):
    late = recorder()
    (done,) = late.run(["attacks"], hours=0)
    assert (done.added, done.left, late.workflow.made) == (0, 3, [])


def test_cells_of_another_grid_are_taken_from_its_record(recorder: Make, tmp_path: Path):
    [*recorder().run(["attacks"], hours=1)]
    more = recorder(with_attack("invertgrad", tmp_path, "submitted"), "elsewhere")
    (done,) = more.run(["submitted"], hours=1)
    assert (done.added, done.left) == (4, 0)
    assert sorted(more.workflow.made) == ["blind", "invertgrad"]
    assert read_conditions(more.folder)["submitted"].cpu_hours == FACTS["cpu_seconds"] / 3600
