"""The filter for NVIDIA FLARE, as a client calls it; skipped without FLARE."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from gleak.captures.frameworks.observers import metrics_of_gauge
from gleak.captures.round_folder import Arrays, RoundFolder, recorded_fields
from gleak.core.errors import ArtifactError, SpecError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("nvflare", reason="FLARE is an extra, not installed: make test-flower")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable  # noqa: E402
from nvflare.apis.dxo_filter import DXOFilter  # noqa: E402
from nvflare.apis.filter import (  # noqa: E402
    ContentBlockedException,
    FilterChainType,
    FilterContextKey,
)
from nvflare.apis.fl_constant import FLContextKey  # noqa: E402
from nvflare.apis.fl_context import FLContext, FLContextManager  # noqa: E402
from nvflare.apis.shareable import Shareable  # noqa: E402
from nvflare.app_common.app_constant import AppConstants  # noqa: E402

from gleak.captures.frameworks.nvflare import (  # noqa: E402
    BudgetedGaugingFilter,
    CapturingFilter,
    GaugingFilter,
    RefusingFilter,
)
from tests.captures.test_observed_training import (  # noqa: E402
    network,
    samples,
    to_intensity,
    train,
)

BEFORE = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(3)}
AFTER = {"weight": BEFORE["weight"] * 0.9, "count": np.array(4)}


@dataclass
class Task:
    """A task of a client, whose filters have one context; results have no number of a round."""

    number: int | None = 0
    site: str = "site-1"

    def __post_init__(self) -> None:
        self.context = FLContext()
        self.context.get_identity_name = lambda: self.site

    def receive(self, filtering: DXOFilter, values: Any = BEFORE) -> Arrays:
        """What is left of values that pass a new filter of task data."""
        sent = DXO(DataKind.WEIGHTS, data=values).to_shareable()
        if self.number is not None:
            sent.set_header(AppConstants.CURRENT_ROUND, self.number)
        return self._passed(filtering, FilterChainType.TASK_DATA_CHAIN, sent)

    def send(
        self, filtering: DXOFilter, values: Any = AFTER, kind: str = DataKind.WEIGHTS, **meta: Any
    ) -> Arrays:
        """What is left of values that pass a new filter of task results."""
        sent = DXO(kind, data=values, meta=meta).to_shareable()
        return self._passed(filtering, FilterChainType.TASK_RESULT_CHAIN, sent)

    def _passed(self, filtering: DXOFilter, chain: str, sent: Shareable) -> Arrays:
        filtering.set_prop(FilterContextKey.CHAIN_TYPE, chain)
        return from_shareable(filtering.process(sent, self.context)).data


def test_a_round_is_written_and_passes_unchanged(tmp_path: Path) -> None:
    for site in ("site-1", "site-2"):
        task = Task(site=site)
        assert task.receive(CapturingFilter(str(tmp_path))) is BEFORE
        steps = {MetaKey.NUM_STEPS_CURRENT_ROUND: 7}
        assert task.send(CapturingFilter(str(tmp_path)), **steps) is AFTER
    files = RoundFolder(tmp_path / "round-0").files()
    assert [path.stem for path in files.sent] == ["client-site-1", "client-site-2"]
    assert recorded_fields(files.sent) == {"local_steps": "7"}
    for path, state in ((files.before, BEFORE), (files.sent[0], AFTER)):
        found = load_file(path)
        assert found.keys() == state.keys()
        assert all(np.array_equal(found[name], value) for name, value in state.items())


def test_a_training_in_the_clients_process_is_recorded(tmp_path: Path) -> None:
    """Its own count of steps is more than what a client reports."""
    task, name = Task(), f"{to_intensity.__module__}.to_intensity"
    task.receive(CapturingFilter(str(tmp_path), samples=name))
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), *samples(), size=4)
    task.send(CapturingFilter(str(tmp_path)), **{MetaKey.NUM_STEPS_CURRENT_ROUND: 7})
    files = RoundFolder(tmp_path / "round-0").files()
    fields = {"batch_size": "8", "local_lr": "0.1", "local_steps": "2", "mini_batch": "4"}
    assert recorded_fields(files.sent) == {**fields, "optimizer": "sgd~momentum=0.9"}
    np.testing.assert_allclose(load_file(files.truth[0])["labels"], samples()[1])


def test_a_function_of_samples_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"samples 'nowhere.scaled': No module .* give module.name"):
        CapturingFilter(str(tmp_path), samples="nowhere.scaled")


def test_differences_are_added_to_what_was_received(tmp_path: Path) -> None:
    task, change = Task(), {"weight": AFTER["weight"] - BEFORE["weight"]}
    task.receive(CapturingFilter(str(tmp_path)))
    task.send(CapturingFilter(str(tmp_path)), change, kind=DataKind.WEIGHT_DIFF)
    found = load_file(tmp_path / "round-0/client-site-1.safetensors")
    np.testing.assert_allclose(found["weight"], AFTER["weight"], rtol=1e-6)
    assert found["count"] == BEFORE["count"]


@pytest.mark.parametrize("number", [1, None])
def test_other_rounds_and_other_tasks_pass(tmp_path: Path, number: int | None) -> None:
    task = Task(number)
    assert task.receive(CapturingFilter(str(tmp_path))) is BEFORE
    assert task.send(CapturingFilter(str(tmp_path))) is AFTER
    assert list(tmp_path.iterdir()) == []


def test_a_filter_of_results_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"CapturingFilter was added .* results of tasks only; add"):
        Task().send(CapturingFilter(str(tmp_path)))


def test_a_round_that_exists_is_left_as_it_is_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task()
    task.receive(CapturingFilter(str(tmp_path)))
    task.send(CapturingFilter(str(tmp_path)))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    assert len(before) == 2
    for site, received, reason in (
        ("site-1", BEFORE, "client-site-1.safetensors already exists"),
        ("site-2", AFTER, "began with other values"),
        ("../site", BEFORE, "client '../site': give a name"),
    ):
        other = Task(site=site)
        assert other.receive(CapturingFilter(str(tmp_path)), received) is received
        assert other.send(CapturingFilter(str(tmp_path)), BEFORE) is BEFORE
        assert f"round 0, client {site} is not observed: " in caplog.text
        assert reason in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before


def grown(before: Arrays, after: Arrays, truth: None) -> dict[str, float]:
    """A measure: by how much the weights grew, which is finite."""
    assert truth is None
    if not np.isfinite(after["weight"]).all():
        raise ArtifactError("weight contains values that are NaN")
    return {"grown": float((after["weight"] - before["weight"]).mean())}


MEASURE = f"{__name__}.grown"


def gauged(
    sent: Arrays, number: int = 0, kind: str = DataKind.WEIGHTS, **options: Any
) -> list[tuple[str, float, int]]:
    """What the filters of a task report: names, values and rounds."""
    task, told = Task(number), []

    def hear(event_type: str, fl_ctx: FLContext) -> None:
        event = from_shareable(fl_ctx.get_prop(FLContextKey.EVENT_DATA)).data
        told.append((event["track_key"], event["track_value"], event["global_step"]))

    filters = [GaugingFilter(MEASURE, **options) for _ in range(2)]
    for made in filters:
        made.fire_event = hear
    assert task.receive(filters[0]) is BEFORE
    assert task.send(filters[1], sent, kind) is sent
    return told


LARGER = {"weight": BEFORE["weight"] + 2}


def test_a_client_reports_what_it_measures() -> None:
    expected = [("grown", pytest.approx(2), 6)]
    assert gauged(LARGER, 6) == gauged(LARGER, 6, every=3) == expected
    assert gauged({"weight": np.full((2, 3), 2.0)}, 6, DataKind.WEIGHT_DIFF) == expected
    assert gauged(LARGER, 7, every=3) == []


def test_an_update_above_a_limit_is_blocked() -> None:
    gauged(LARGER, limits={"grown": 2.5})
    with pytest.raises(ContentBlockedException, match="round 4: grown is 2, limit 1; the update"):
        gauged(LARGER, 4, limits={"grown": 1})


BROKEN = {"weight": np.full((2, 3), np.nan)}


@pytest.mark.parametrize("sent", [BROKEN, {"weights": np.zeros(2)}], ids=["NaN", "malformed"])
def test_an_update_that_cannot_be_measured_passes_unless_there_are_limits(
    sent: Arrays, caplog: pytest.LogCaptureFixture
) -> None:
    told = gauged(sent, 3)
    assert {name for name, _, _ in told} == {*metrics_of_gauge(knows_truth=False)}
    assert all(math.isnan(value) for _, value, _ in told)
    assert "round 3, client site-1 is not observed: " in caplog.text
    with pytest.raises(ContentBlockedException, match="round 3: grown is nan, limit 9"):
        gauged(sent, 3, limits={"grown": 9})


def test_a_budget_survives_what_cannot_be_measured() -> None:
    site = Site()
    assert site.rounds(range(4), BROKEN) == []
    assert site.rounds(range(4, 9)) == []
    assert site.told["grown"][8] == pytest.approx(2)
    guarded = Site()
    assert guarded.rounds(range(3), BROKEN, limits={"grown": 9}) == [0, 1, 2]


@dataclass
class Site:
    """A client of a job, whose clock advances by the time that it trains or measures."""

    training: float = 1
    measuring: float = 0.5
    now: float = 0

    def __post_init__(self) -> None:
        self.manager = FLContextManager(job_id="job")
        self.told: dict[str, dict[int, float]] = {}

    def gauging(self, **options: Any) -> BudgetedGaugingFilter:
        """A new filter, which may spend an eighth of the training's time."""
        made = BudgetedGaugingFilter(MEASURE, share=0.125, **options)
        made.clock = lambda: self.now
        made.fire_event = self._hear
        measured = made.measured

        def measured_slowly(*arguments: Any) -> dict[str, float]:
            self.now += self.measuring
            return measured(*arguments)

        made.measured = measured_slowly
        return made

    def _hear(self, event_type: str, fl_ctx: FLContext) -> None:
        told = from_shareable(fl_ctx.get_prop(FLContextKey.EVENT_DATA)).data
        self.told.setdefault(told["track_key"], {})[told["global_step"]] = told["track_value"]

    def rounds(self, numbers: range, sent: Any = LARGER, **options: Any) -> list[int]:
        """Take part in rounds; give those whose update was blocked."""
        blocked = []
        for number in numbers:
            task = Task(number)
            task.context = self.manager.new_context()
            task.receive(self.gauging(**options))
            self.now += self.training
            try:
                assert task.send(self.gauging(**options), sent) is sent
            except ContentBlockedException:
                blocked.append(number)
        return blocked


@pytest.mark.parametrize(("expected", "first"), [(0, 0), (0.5, 4), (1, 8)])
def test_a_share_of_the_time_is_kept(expected: float, first: int) -> None:
    site = Site()
    assert site.rounds(range(30), expected=expected) == []
    assert min(site.told["grown"]) == first
    overheads = site.told["gleak-overhead"]
    assert max(overhead for number, overhead in overheads.items() if number > 3) <= 0.125
    measured = [number for number, age in site.told["gleak-age"].items() if age == 0]
    assert measured == [*site.told["grown"]]
    assert site.now == pytest.approx(30 + 0.5 * len(site.told["grown"]))
    assert overheads[29] == pytest.approx(0.5 * len(site.told["grown"]) / 30)


def test_updates_are_blocked_until_one_is_measured_within_the_limits() -> None:
    site, limits = Site(), {"grown": 1}
    assert site.rounds(range(6), limits=limits) == [*range(6)]
    assert site.rounds(range(6, 12), BEFORE, limits=limits) == [6, 7]
    waiting = Site()
    assert waiting.rounds(range(6), limits=limits, expected=0.5) == [4, 5]


@pytest.mark.parametrize("name", ["grown", "no_module.grown", f"{__name__}.shrunk"])
def test_what_cannot_be_measured_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"measure '{name}': .*give module.name"):
        GaugingFilter(name)
    with pytest.raises(SpecError, match="share=0: give a number above 0"):
        BudgetedGaugingFilter(MEASURE, share=0)


def suspicious(state: Arrays) -> list[str]:
    """An audit of parameters of which the first is not zero."""
    return ["audit_bias"] if state["weight"].any() else []


def test_a_client_refuses_to_train_on_suspicious_parameters() -> None:
    filtering = RefusingFilter(f"{__name__}.suspicious")
    with pytest.raises(ContentBlockedException, match="site-1: refused to train: audit_bias"):
        Task().receive(filtering)
    task = Task()
    honest = {"weight": BEFORE["weight"] * 0}
    assert task.receive(filtering, honest).keys() == {"weight"}
    assert task.send(filtering, AFTER).keys() == AFTER.keys()
    with pytest.raises(SpecError, match=r"audit 'no\.such'"):
        RefusingFilter("no.such")
