from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gleak.core.errors import ArtifactError, DamagedError, SpecError, StoppedError
from gleak.core.settings import Settings
from gleak.figures.record_files import CONDITIONS, read_conditions
from gleak.figures.recorder import Progress, Recorder
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
    metrics: tuple[str, ...] = ("mse",)
    made: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def make(self, targets: Iterable[Path], seconds: float | None = None) -> int:
        self.meanwhile()
        for target in targets:
            levels = dict(zip(LEVELS, target.parts[-8:-1], strict=True))
            if levels["attack"] == self.failing:
                continue
            self.made.append(levels["attack"])
            target.parent.mkdir(parents=True, exist_ok=True)
            error = self.errors.get(levels["attack"], 0.5)
            scores = [self.scored(each, [[error], [error]], **levels) for each in self.metrics]
            times = self.scored("seconds", [[next(CLOCK)], [next(CLOCK)]], **levels)
            table = pd.concat([*scores, times.assign(sample=pd.NA)])
            save_scores(table.drop(columns="cell"), target)
            (target.parent / "provenance.json").write_text(json.dumps(FACTS))
        if self.interrupted:
            raise StoppedError("interrupted")
        return int(self.failing != "none fails")


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
    return declared(content, tmp_path)


def with_networks(networks: int, tmp_path: Path) -> Study:
    """The study with clients of several networks."""
    content = yaml.safe_load(DECLARED.read_text())
    content["grids"]["attacks"]["networks"] = networks
    return declared(content, tmp_path)


def with_claim(metric: str, tmp_path: Path) -> Study:
    """The study with a claim about a metric alone."""
    claim = {"id": "c", "grid": "attacks", "metric": metric, "at_least": 0.5}
    content = yaml.safe_load(DECLARED.read_text())
    return declared(content, tmp_path, {**claim, "claim": "c", "source": "ours"})


def declared(content: dict[str, Any], tmp_path: Path, *claims: dict[str, Any]) -> Study:
    """The study of a file's content without figures, and with these claims alone."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({**content, "figures": {}, "expect": [*claims]}))
    return load_study(file)


def record(recorder: Recorder, *grids: str) -> Iterator[Progress]:
    return recorder.run(lambda: grids or ("attacks",), hours=1)


def recorded(recorder: Recorder, grid: str = "attacks") -> pd.DataFrame:
    return read_scores([recorder.folder / f"{grid}.csv.gz"])


def test_what_a_record_lacks_is_computed_once(recorder: Make):
    first = recorder()
    (done,) = record(first)
    assert (done.added, done.left, done.failed) == (3, 0, [])
    assert set(recorded(first)["attack"]) == {"cpl", "dlg", "blind", "truth"}
    assert read_conditions(first.folder)["attacks"].cells == 3
    again = recorder()
    assert [*record(again)] == []
    assert again.workflow.made == []


def test_an_attack_that_was_added_is_recorded_without_the_run_of_the_others(
    recorder: Make, tmp_path: Path
):
    [*record(recorder())]
    added = recorder(with_attack("invertgrad", tmp_path), "elsewhere", errors={"invertgrad": 0.1})
    before = recorded(added)
    (done,) = record(added)
    assert (done.added, done.left) == (1, 0)
    assert sorted(added.workflow.made) == ["blind", "invertgrad"]
    after = recorded(added)
    pd.testing.assert_frame_equal(
        after[after["attack"] != "invertgrad"].reset_index(drop=True), before
    )
    errors = after[(after["attack"] == "invertgrad") & (after["metric"] == "mse")]
    assert set(errors["value"]) == {0.1}
    assert read_conditions(added.folder)["attacks"].cells == 4


def test_cells_without_the_fields_of_a_metric_are_computed_again(recorder: Make, tmp_path: Path):
    [*record(recorder(metrics=("success_content",)))]
    metrics = ("success_content", "success_content+threshold=9e-3")
    study = with_claim(metrics[1], tmp_path)
    again = recorder(study, "elsewhere", metrics=metrics, errors={"cpl": 1.0})
    (done,) = record(again)
    assert (done.added, done.left) == (3, 0)
    after = recorded(again)
    cells = after[after["metric"].isin(metrics)].groupby(["attack", "metric"])["value"]
    assert set(cells.size()) == {2} and len(cells) == 8
    assert set(after[after["attack"] == "cpl"]["value"]) >= {1.0}
    assert read_conditions(again.folder)["attacks"].cells == 3
    assert [*record(recorder(study, "elsewhere"))] == []


def test_a_stop_before_cells_are_computed_again_keeps_them(recorder: Make, tmp_path: Path):
    [*record(recorder(metrics=("success_content",)))]
    metrics = ("success_content", "success_content+threshold=9e-3")
    stopped = recorder(
        with_claim(metrics[1], tmp_path), "elsewhere", metrics=metrics, failing="cpl"
    )
    [done] = record(stopped)
    assert (done.added, done.left) == (2, 1)
    kept = recorded(stopped).groupby("attack")["metric"].agg(set)
    assert kept["cpl"] == {"success_content", "seconds"}
    assert kept["dlg"] == {*metrics, "seconds"}


def test_metrics_that_do_not_suit_a_cell_are_not_sought_again(recorder: Make, tmp_path: Path):
    study = with_claim("ssim+window=global+channels=ycbcr", tmp_path)
    [*record(recorder(study))]
    assert [*record(recorder(study, "elsewhere"))] == []


def test_a_metric_that_stands_for_several_is_recorded_by_them(recorder: Make, tmp_path: Path):
    study = with_claim("chosen", tmp_path)
    [*record(recorder(study, metrics=("chosen+attack=cpl", "chosen+attack=dlg")))]
    assert [*record(recorder(study, "elsewhere"))] == []


def test_a_record_grows_by_networks(recorder: Make, tmp_path: Path):
    [*record(recorder(with_networks(2, tmp_path), errors={"dlg": 0.1}))]
    study = with_networks(3, tmp_path)
    grown = recorder(study, "elsewhere", errors={"cpl": 0.2, "dlg": 0.3})
    (done,) = record(grown)
    assert (done.added, done.left) == (3, 0)
    assert sorted(grown.workflow.made) == ["blind"] * 3 + ["cpl", "dlg"]
    after = recorded(grown)
    errors = after[after["metric"] == "mse"].groupby("attack")["value"].agg(list)
    assert errors["cpl"] == [0.5] * 4 + [0.2] * 2
    assert errors["dlg"] == [0.1] * 4 + [0.3] * 2
    facts = read_conditions(grown.folder)["attacks"]
    assert (facts.cells, facts.cpu_hours) == (3, 9 * FACTS["cpu_seconds"] / 3600)
    assert [*record(recorder(study, "again"))] == []


def test_weights_that_the_record_was_made_with_are_needed_before_work(
    recorder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with_lpips = {"metrics": ("mse", "lpips")}
    [*record(recorder(with_networks(2, tmp_path), **with_lpips))]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    other = recorder(with_networks(3, tmp_path), "elsewhere", **with_lpips)
    with pytest.raises(ArtifactError, match="the record has lpips: "):
        [*record(other)]
    assert not other.workflow.made


def test_networks_with_other_victims_than_the_record_are_refused(recorder: Make, tmp_path: Path):
    [*record(recorder(with_networks(2, tmp_path)))]
    other = recorder(with_networks(3, tmp_path), "elsewhere", errors={"blind": 0.7})
    with pytest.raises(ArtifactError, match="the clients have other samples"):
        [*record(other)]
    assert len(recorded(other)["victim"].unique()) == 4


def test_other_victims_than_those_of_the_record_are_refused(recorder: Make, tmp_path: Path):
    [*record(recorder())]
    study = with_attack("invertgrad", tmp_path)
    other = recorder(study, "elsewhere", errors={"blind": 0.7})
    with pytest.raises(ArtifactError, match=r"blind: mse of client 0 is 0\.7, 0\.5 in the record"):
        [*record(other)]
    assert "invertgrad" not in set(recorded(other)["attack"])


def test_finished_cells_of_an_interrupted_run_are_recorded(recorder: Make):
    stopped = recorder(failing="dlg", interrupted=True)
    with pytest.raises(StoppedError):
        [*record(stopped)]
    assert set(recorded(stopped)["attack"]) == {"cpl", "blind", "truth"}
    rest = recorder()
    assert [done.added for done in record(rest)] == [1]


def test_cells_that_fail_are_named_and_the_others_recorded(recorder: Make):
    failing = recorder(failing="dlg")
    (done,) = record(failing)
    assert (done.added, done.left) == (2, 1)
    assert [path.parent.name for path in done.failed] == ["dlg"]


def test_scores_of_other_code_are_not_recorded_where_a_run_did_not_renew_them(recorder: Make):
    """The workflow would have computed them again, as it has for all that is recorded."""
    outdated = recorder(errors={"dlg": 0.1})
    [*record(outdated)]
    for path in outdated.folder.iterdir():
        path.unlink()
    for path in outdated.settings.results_dir.rglob("scores.csv"):
        os.utime(path, (0, 0))
    failing = recorder(failing="dlg")
    (done,) = record(failing)
    assert (done.added, done.left) == (2, 1)
    assert "dlg" not in set(recorded(failing)["attack"])
    assert [done.added for done in record(recorder())] == [1]


def test_without_time_nothing_is_computed(recorder: Make):
    late = recorder()
    assert [*late.run(lambda: ["attacks"], hours=0)] == []
    assert (len(late.lacking(late.study.grid("attacks", "quick"))), late.workflow.made) == (3, [])


def test_cells_of_another_grid_are_taken_from_its_record(recorder: Make, tmp_path: Path):
    [*record(recorder())]
    more = recorder(with_attack("invertgrad", tmp_path, "submitted"), "elsewhere")
    progress = [(done.added, done.left) for done in record(more, "submitted")]
    assert progress == [(3, 1), (1, 0)]
    assert sorted(more.workflow.made) == ["blind", "invertgrad"]
    assert read_conditions(more.folder)["submitted"].cpu_hours == FACTS["cpu_seconds"] / 3600


def test_a_table_that_was_moved_away_is_recorded_anew(recorder: Make, tmp_path: Path):
    study = with_attack("invertgrad", tmp_path, "submitted")
    first = recorder(study)
    [*record(first, "attacks", "submitted")]
    (first.folder / "attacks.csv.gz").rename(tmp_path / "attacks.csv.gz")
    [*record(first, "submitted", "attacks")]
    assert recorded(first).equals(read_scores([tmp_path / "attacks.csv.gz"]))
    assert read_conditions(first.folder)["attacks"].cells == 4


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("file", ["attacks.pending.yaml", "attacks.csv.gz", CONDITIONS])
def test_a_full_disk_or_a_stop_in_an_append_loses_nothing_and_counts_nothing_twice(
    recorder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
):
    """The second of two appends fails at each of its files; the next run completes it."""
    [*record(recorder())]
    rename = Path.replace

    def replace(source: Path, target: Path) -> Path:
        if target.name == file:
            raise FULL
        return rename(source, target)

    more = recorder(with_attack("invertgrad", tmp_path), "elsewhere")
    before = recorded(more)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(ArtifactError, match="No space left on device"):
            [*record(more)]
    assert len(recorded(more)) >= len(before)
    [*record(recorder(more.study, "elsewhere"))]
    after = recorded(more)
    assert not after.duplicated().any()
    assert set(after["attack"]) == {*before["attack"], "invertgrad"}
    facts = read_conditions(more.folder)["attacks"]
    assert (facts.cells, facts.cpu_hours) == (4, 4 * FACTS["cpu_seconds"] / 3600)
    assert {path.name for path in more.folder.iterdir()} == {"attacks.csv.gz", CONDITIONS}


def test_two_runs_that_record_at_once_take_turns(recorder: Make):
    """While the first computes, the second is started; it waits, and has nothing left to do."""
    processes = get_context("fork")
    computing = processes.Event()

    def wait_and_record() -> None:
        computing.wait()
        [*record(recorder(results="b"))]

    second = processes.Process(target=wait_and_record)
    second.start()

    def let_it_begin() -> None:
        computing.set()
        second.join(0.5)

    first = recorder(results="a", meanwhile=let_it_begin)
    [*record(first)]
    second.join(60)
    assert second.exitcode == 0
    assert not recorded(first).duplicated(["attack", "victim", "sample", "metric"]).any()
    assert read_conditions(first.folder)["attacks"].cells == 3
    assert not (first.folder.parent / "b").exists()


def test_cells_of_another_study_are_refused_and_kept(recorder: Make, tmp_path: Path):
    [*record(recorder(with_attack("invertgrad", tmp_path)))]
    other = recorder()
    before = (other.folder / "attacks.csv.gz").read_bytes()
    with pytest.raises(ArtifactError, match=r"1 cells are not .* 'study', .*invertgrad first"):
        [*record(other)]
    assert other.workflow.made == []
    assert (other.folder / "attacks.csv.gz").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "error", "fault"),
    [
        (lambda table: pd.concat([table, table]), DamagedError, "is recorded twice"),
        (lambda table: table.drop(columns="grants"), DamagedError, "has columns"),
    ],
)
def test_a_table_of_another_schema_is_refused_before_anything_is_computed(
    recorder: Make, change: Callable[..., pd.DataFrame], error: type[Exception], fault: str
):
    again = recorder()
    [*record(recorder())]
    change(recorded(again)).to_csv(again.folder / "attacks.csv.gz", index=False)
    with pytest.raises(error, match=fault):
        [*record(again)]
    assert again.workflow.made == []


def test_conditions_of_another_schema_are_refused_before_anything_is_computed(recorder: Make):
    late = recorder()
    late.folder.mkdir()
    (late.folder / CONDITIONS).write_text("attacks: {commits: [a], hosts: 3}")
    with pytest.raises(SpecError, match=r"conditions\.yaml: attacks.*hosts"):
        [*record(late)]
    assert late.workflow.made == []


def test_cells_by_other_code_are_told(
    recorder: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    [*record(recorder())]
    assert not caplog.messages
    [*record(recorder(with_attack("invertgrad", tmp_path), "elsewhere"))]
    (message,) = caplog.messages
    assert f"recorded cells are by the code of {FACTS['commit']}, which has changed" in message


def test_the_order_of_grids_is_asked_before_each_piece(
    recorder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gleak.figures.recorder.PIECE", 0)
    both = recorder(with_attack("invertgrad", tmp_path, "submitted"))
    orders = iter([["attacks", "submitted"]] * 2 + [["submitted", "attacks"]] * 9)
    done = [each.grid for each in both.run(lambda: next(orders), hours=1)]
    assert done[:3] == ["attacks", "submitted", "submitted"]
    facts = read_conditions(both.folder)
    assert {grid: each.cells for grid, each in facts.items()} == {"attacks": 4, "submitted": 4}
    hours = sum(each.cpu_hours for each in facts.values())
    assert hours == 4 * FACTS["cpu_seconds"] / 3600  # what both have counts once
