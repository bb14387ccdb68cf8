"""Capture and measurement of NVIDIA FLARE rounds by filters, which do not change what they filter.

A filter is added to the clients of a job twice, for what they receive and for what they send:

    job.to_clients(CapturingFilter("captured"), tasks=["train"], filter_type=FilterType.TASK_DATA)
    job.to_clients(CapturingFilter("captured"), tasks=["train"], filter_type=FilterType.TASK_RESULT)

To a recipe they are added by `capture_rounds`.

Only this module needs FLARE, which is installed by ``pip install 'gleak[nvflare]'``.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from gleak.captures.frameworks.observers import (
    Audit,
    Measure,
    TimeSpent,
    measured_by,
    metrics_of_gauge,
    over_limits,
    refusal,
    unharmed,
    unknown,
    write_round,
)
from gleak.captures.observed_training import start_observing
from gleak.captures.round_folder import ROUND, RoundFolder, State, read_state, write_state
from gleak.core.errors import SpecError, needs_extra

with needs_extra("nvflare"):
    from nvflare.apis.analytix import AnalyticsDataType
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import ContentBlockedException, FilterChainType, FilterContextKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
    from nvflare.app_common.app_constant import AppConstants

UNNUMBERED = -1
KINDS = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
NUMBER, RECEIVED = "gleak-round", "gleak-received"
"""Properties of a task's context: number of the round, and the state that was broadcast."""
OWN, BEGUN = "gleak-own", "gleak-begun"
"""Others: seconds of the filter before the training, and the time at which the training began."""
TIMES, OVER = "gleak-times", "gleak-over"
"""Properties that the client keeps: its `TimeSpent`, and which limits are exceeded."""


class RoundFilter(DXOFilter):
    """Base of filters of a round, which are added to a job for both data and results of tasks.

    Results need not contain the number of the round, so it is kept from the data of the task. Tasks
    without a number, such as validations, pass. What cannot be observed is logged, and passes.
    """

    def __init__(self) -> None:
        super().__init__(supported_data_kinds=KINDS, data_kinds_to_filter=KINDS)

    @abstractmethod
    def observes(self, number: int) -> bool:
        """Return True if a round is observed."""

    @abstractmethod
    def receive(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Observe what the client receives."""

    @abstractmethod
    def send(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Observe what the client sends."""

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> None:
        """Observe what passes, and leave it as it is."""
        chain = self.get_prop(FilterContextKey.CHAIN_TYPE)
        receives = chain == FilterChainType.TASK_DATA_CHAIN
        if receives:
            number = shareable.get_header(AppConstants.CURRENT_ROUND, UNNUMBERED)
            fl_ctx.set_prop(NUMBER, number, private=True, sticky=False)
        number = fl_ctx.get_prop(NUMBER)
        if number is None:
            raise SpecError(
                f"{type(self).__name__} was added to the job for results of tasks only; add it "
                "with filter_type=FilterType.TASK_DATA as well"
            )
        if number != UNNUMBERED and self.observes(number):
            (self.receive if receives else self.send)(number, dxo, fl_ctx)


class CapturingFilter(RoundFilter):
    """Filter that captures rounds in the files of ``gleak import --round``.

    As a filter of task data it writes ``round-<number>/before.safetensors``, as a filter of task
    results ``round-<number>/client-<site>.safetensors``, with the optimiser, learning rate and
    steps of a training in the client's process, seen by PyTorch's global hooks, or else the number
    of local steps if the client reports it. Place it last among the filters of results, where it
    sees what is sent.

    A round is not captured, and this is logged, if the folder has this client's result of it or the
    round of another model.

    Args:
        folder: output folder on the client, which contains a folder for each round.
        rounds: numbers of the rounds to capture; FLARE counts from 0. By default only the first.
        samples: function from what the network takes to values in [0, 1], as module.name, to score
            attacks: the samples of the round are then written, too; None: they are not.

    Raises:
        SpecError: there is no such function.
    """

    def __init__(
        self, folder: str, rounds: list[int] | None = None, samples: str | None = None
    ) -> None:
        super().__init__()
        self.folder, self.rounds, self.samples = folder, rounds or [0], samples
        self._samples = None if samples is None else imported("samples", samples)

    def observes(self, number: int) -> bool:
        return number in self.rounds

    def receive(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        with unharmed(place(number, fl_ctx)):
            files, before = self._files(number), state_of(dxo.data)
            files.check_new(fl_ctx.get_identity_name(), before)
            write_state(files.before, before)
            stack = ExitStack()
            training = start_observing(stack, self._samples)
            fl_ctx.set_prop(self._begun, (stack, training), private=True, sticky=False)

    def send(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        begun = fl_ctx.get_prop(self._begun)
        if not begun:
            return
        stack, training = begun
        stack.close()
        with unharmed(place(number, fl_ctx)):
            files, after = self._files(number), state_of(dxo.data)
            before = read_state(files.before)
            if dxo.data_kind == DataKind.WEIGHT_DIFF:
                after = added(before, after)
            steps = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
            write_round(files, fl_ctx.get_identity_name(), before, after, training, steps)

    @property
    def _begun(self) -> str:
        """Property of a task's context, if what the client received is in the folder."""
        return f"gleak-begun-{self.folder}"

    def _files(self, number: int) -> RoundFolder:
        return RoundFolder(Path(self.folder) / f"{ROUND}{number}")


def capture_rounds(
    recipe: Any, folder: str, rounds: list[int] | None = None, samples: str | None = None
) -> None:
    """Let the clients of a recipe capture rounds of training; see `CapturingFilter`."""
    captured = CapturingFilter(folder, rounds, samples)
    recipe.add_client_input_filter(captured, tasks=[AppConstants.TASK_TRAIN])
    recipe.add_client_output_filter(captured, tasks=[AppConstants.TASK_TRAIN])


def place(number: int, fl_ctx: FLContext) -> str:
    """Return the name of a client's round in logs."""
    return f"round {number}, client {fl_ctx.get_identity_name()}"


class GaugingFilter(RoundFilter):
    """Filter that measures what a client sends, and can withhold it.

    It is added to a job twice, like `CapturingFilter`. The metrics of a round are sent as FLARE's
    analytics data, which its receivers (TensorBoard, MLflow) write; so the server learns them. An
    update that exceeds a limit is blocked, and the client's task fails. If the measurement fails,
    the reason is logged and the metrics are NaN; the update is then blocked if there are limits.

    Args:
        measure: such as a `gleak.Gauge` (see `observers.Measure`), or a function that also knows
            the client's samples, as module.name: FLARE writes arguments as text.
        limits: largest accepted value by metric; the others have none.
        every: rounds that are measured, the first and then every n-th; the others are sent as they
            are, whatever the limits.

    Raises:
        SpecError: there is no such measure.
    """

    def __init__(
        self, measure: str, limits: dict[str, float] | None = None, every: int = 1
    ) -> None:
        super().__init__()
        self.measure, self.limits, self.every = measure, limits or {}, every
        self._measure: Measure = imported("measure", measure)
        self._metrics: Collection[str] = metrics_of_gauge(knows_truth=False)

    def observes(self, number: int) -> bool:
        return number % self.every == 0

    def receive(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        with unharmed(place(number, fl_ctx)):
            fl_ctx.set_prop(RECEIVED, state_of(dxo.data), private=True, sticky=False)

    def send(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Measure what the client sends, report it, and block it above a limit."""
        measured = self.measured(number, dxo, fl_ctx)
        self.report(number, measured, fl_ctx)
        block(number, over_limits(measured, self.limits))

    def measured(self, number: int, dxo: DXO, fl_ctx: FLContext) -> dict[str, float]:
        """Return the metrics of what the client sends, NaN if they cannot be measured."""
        with unharmed(place(number, fl_ctx)):
            before, after = fl_ctx.get_prop(RECEIVED), state_of(dxo.data)
            if dxo.data_kind == DataKind.WEIGHT_DIFF:
                after = added(before, after)
            arrays = ({name: value.numpy() for name, value in s.items()} for s in (before, after))
            measured = measured_by(self._measure, *arrays, None)
            self._metrics = measured.keys()
            return measured
        return unknown([*self._metrics, *self.limits])

    def report(self, number: int, metrics: Mapping[str, float], fl_ctx: FLContext) -> None:
        """Send the metrics of a round as analytics data."""
        with unharmed(place(number, fl_ctx)):
            for name, value in metrics.items():
                scalar = {"data_type": AnalyticsDataType.SCALAR, "global_step": number}
                send_analytic_dxo(self, create_analytic_dxo(name, value, **scalar), fl_ctx)


class RefusingFilter(RoundFilter):
    """Filter that audits what a client receives, and blocks it if an audit raises an alarm.

    The client's task then fails before it trains, with an error that names the audits. Add it for
    data and results of tasks, like `CapturingFilter`.

    Args:
        audit: function from a state to what is suspicious of it, such as ``alarms`` of a
            `gleak.Gauge`, as module.name: FLARE writes arguments as text.

    Raises:
        SpecError: there is no such function.
    """

    def __init__(self, audit: str) -> None:
        super().__init__()
        self.audit = audit
        self._audit: Audit = imported("audit", audit)

    def observes(self, number: int) -> bool:
        return True

    def receive(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Audit the parameters.

        Raises:
            ContentBlockedException: an audit raises an alarm; names it.
        """
        received = {name: value.numpy() for name, value in state_of(dxo.data).items()}
        if reason := refusal(self._audit, received):
            raise ContentBlockedException(f"{place(number, fl_ctx)}: {reason}")

    def send(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Let the result pass."""


class BudgetedGaugingFilter(GaugingFilter):
    """Gauging filter that measures as many rounds as a share of the training's time pays for.

    The time of the training is what passes between the data of a task and its result, by the clock
    on the wall, since FLARE may train in another process. It includes filters in between. A round
    is measured if all measurements, with another one that takes as long as the last, stay within
    the share of the training before it.

    In every round ``gleak-age``, the number of rounds since the last measured one, and
    ``gleak-overhead``, the time of the filter relative to that of the training, are reported, too.
    Limits apply to the last measured round: later updates are blocked until one is measured within
    them, and updates before the first measurement are sent.

    Args:
        measure: see `GaugingFilter`.
        limits: largest accepted value by metric; the others have none.
        share: largest share of the training's time.
        expected: seconds that the first measurement is expected to take, for which the share has to
            pay; 0: the first round is measured, whatever it takes.

    Raises:
        SpecError: there is no such measure, or the share is not above 0.
    """

    clock = staticmethod(time.perf_counter)

    def __init__(
        self,
        measure: str,
        limits: dict[str, float] | None = None,
        share: float = 0.05,
        expected: float = 0.0,
    ) -> None:
        super().__init__(measure, limits)
        if not share > 0:
            raise SpecError(f"share={share}: give a number above 0, such as 0.05")
        self.share, self.expected = share, expected

    def receive(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        start = self.clock()
        if self._spent(fl_ctx).affords(self.share):
            super().receive(number, dxo, fl_ctx)
        begun = self.clock()
        fl_ctx.set_prop(OWN, begun - start, private=True, sticky=False)
        fl_ctx.set_prop(BEGUN, begun, private=True, sticky=False)

    def send(self, number: int, dxo: DXO, fl_ctx: FLContext) -> None:
        """Measure what the client sends if the budget allows it, and report it.

        Raises:
            ContentBlockedException: a metric of the last measured round exceeds its limit.
        """
        ended, measured = self.clock(), {}
        training = ended - fl_ctx.get_prop(BEGUN)
        spent, own = self._spent(fl_ctx), fl_ctx.get_prop(OWN)
        if fl_ctx.get_prop(RECEIVED) is None:
            spent = spent.with_other_round(training, own)
        else:
            measured = self.measured(number, dxo, fl_ctx)
            spent = spent.with_measured_round(training, own + self.clock() - ended)
            fl_ctx.set_prop(OVER, over_limits(measured, self.limits), private=True, sticky=True)
        fl_ctx.set_prop(TIMES, spent, private=True, sticky=True)
        self.report(number, {**measured, **spent.metrics}, fl_ctx)
        block(number, fl_ctx.get_prop(OVER, ""))

    def _spent(self, fl_ctx: FLContext) -> TimeSpent:
        spent: TimeSpent = fl_ctx.get_prop(TIMES, TimeSpent(last=self.expected))
        return spent


def block(number: int, over: str) -> None:
    """Block the result of a task if a clause says which metrics exceed their limits."""
    if over:
        raise ContentBlockedException(f"round {number}: {over}; the update is withheld")


def imported(what: str, name: str) -> Any:
    """Return an object by its name, module.name."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"{what} {name!r}: {error}; give module.name, of a module on the path of each client"
        ) from None


def added(before: State, changes: State) -> State:
    """Return a state after changes of some of its values."""
    return {**before, **{name: before[name] + change for name, change in changes.items()}}


def state_of(values: Mapping[str, Any]) -> State:
    """Return arrays or tensors as a state dict that can be saved."""
    return {
        name: torch.as_tensor(value).cpu().clone().contiguous() for name, value in values.items()
    }
