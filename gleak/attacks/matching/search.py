"""Search of V victims at once, each stopped and restarted separately, and its records."""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.problem import Problem
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Part
from gleak.runtime.gpu_loop import (
    GraphedCall,
    Graphs,
    evaluations_between_reads,
    graphs_on,
    on_host,
)
from gleak.runtime.progress import Progress

DIVERGED = 1e3
LEAST_GAIN = 0.2
FINISHED_SHARE = 0.25
"""Share of finished victims from which they are taken out of the batch."""
NEAR = 1e-5
RECORDS = 100
SHOWN_VICTIMS = 6
SNAPSHOT_BYTES = 2**28
"""Largest memory of all snapshots, if it is enough for two of one victim."""
log = logging.getLogger(__name__)
Draw = Callable[[int, int], "torch.Tensor"]
"""Function from a victim's row and the number of its attempt to a first point, Shape (P)."""


@dataclass
class SearchState:
    """Points of least objective, Shape (V, P), values there and counters of all victims, (V)."""

    points: torch.Tensor
    objective: torch.Tensor
    distance: torch.Tensor
    evaluations: torch.Tensor
    restarts: torch.Tensor
    converged: torch.Tensor

    @classmethod
    def opened(cls, points: torch.Tensor) -> SearchState:
        """Return the initial state of V victims at these points."""
        infinite = points.new_full((len(points),), torch.inf, dtype=torch.double)
        none = torch.zeros_like(infinite).long()
        return cls(points.clone(), infinite, infinite.clone(), none, none.clone(), none.bool())

    def of(self, rows: torch.Tensor) -> SearchState:
        """Return the state of some victims; Shape (W), indices or a mask."""
        return SearchState(**{name: value[rows] for name, value in vars(self).items()})


class Attempt:
    """Progress of the current attempt of each active victim: best distance and evaluations since.

    The attacker judges by the gradient distance alone. All tensors are changed in place.
    """

    def __init__(self, victims: int, like: torch.Tensor) -> None:
        self.first = like.new_full((victims,), torch.inf, dtype=torch.double)
        self.best = self.first.clone()
        self.idle = like.new_zeros(victims).long()

    def lost(self, evaluation: Evaluation) -> torch.Tensor:
        """Mark attempts that are not finite, or diverged; Shape (V), a mask."""
        distance = evaluation.distance
        finite = distance.isfinite() & evaluation.gradient.isfinite().all(1)
        self.first.copy_(torch.where(self.first.isinf(), distance, self.first))
        return ~finite | (distance > DIVERGED * self.first)

    def stalled(self, evaluation: Evaluation, patience: int) -> torch.Tensor:
        """Mark attempts without a better distance for some evaluations; Shape (V), a mask."""
        gained = evaluation.distance < self.best * (1 - LEAST_GAIN)
        self.idle.add_(1).masked_fill_(gained, 0)
        self.best.copy_(torch.where(gained, evaluation.distance, self.best))
        return self.idle >= patience

    def restart(self, rows: torch.Tensor) -> None:
        """Start a new attempt of these victims; Shape (V), a mask."""
        self.first.masked_fill_(rows, torch.inf)
        self.best.masked_fill_(rows, torch.inf)
        self.idle.masked_fill_(rows, 0)

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all victims except these; Shape (V), a mask."""
        self.first, self.best, self.idle = self.first[rows], self.best[rows], self.idle[rows]


class Search:
    """Run of the engine over the victims of a problem; restarts draw first points again.

    Between two looks of the host at the state, every `evaluations_between_reads` evaluations, the
    device decides: masks say who runs, who restarts, and from where. So a GPU is not kept waiting,
    and a step can be replayed as a CUDA graph: it changes tensors in place, and reads none of them.

    Attributes:
        points: the present points of the active victims; Shape (V, P).
        rows: their numbers among all victims; Shape (V).
        best: their best points and counters.
        running: those that have not finished; Shape (V), a mask.
        evaluated: those that were running when the points were evaluated; Shape (V), a mask.
        failing: those whose attempt failed there and may be repeated; Shape (V), a mask.
        drawn: first points of their next attempt; Shape (V, P).
        ready: those that need no other one; Shape (V), a mask.
        restarting: True if some may restart in the next steps.
        draws_ahead: True if every victim shall have a first point of its next attempt.
        removed: numbers, and best points and counters, of victims that are no longer active.
    """

    LIVE = ("points", "rows", "running", "evaluated", "failing", "drawn", "ready")

    def __init__(self, problem: Problem, draw: Draw, records: Records) -> None:
        victims = len(next(iter(problem.observed.values())))
        self.parts, self.problem, self.draw, self.records = problem.parts, problem, draw, records
        self.points = torch.stack([draw(row, 0) for row in range(victims)])
        self.rows = torch.arange(victims, device=self.points.device)
        self.running = torch.ones_like(self.rows).bool()
        self.evaluated, self.failing = self.running.clone(), ~self.running
        self.restarting = bool(self.parts.restarts)
        self.drawn = torch.zeros_like(self.points if self.restarting else self.points[:, :0])
        self.ready = self.failing.clone()
        self.best = SearchState.opened(self.points)
        self.removed: list[tuple[torch.Tensor, SearchState]] = []
        self.attempt = Attempt(victims, self.points)
        infinite = self.best.objective.clone()
        self.evaluation = Evaluation(infinite, infinite.clone(), torch.zeros_like(self.points))
        self.optimizer = self.parts.optimizer.begin(self.points, self.parts.iterations)
        self.every = self.parts.optimizer.evaluations_per_iteration
        self.between = evaluations_between_reads(self.points.device)
        self.draws_ahead = self.between > 1
        self.graph = GraphedCall(self._graphs())
        self.number, self.left = 0, True
        observed = [value.reshape(victims, -1).any(1) for value in problem.observed.values()]
        self.informed = torch.stack(observed).any(0)

    def _graphs(self) -> Graphs | None:
        """Return how steps are captured as graphs, if they can be."""
        graphs, rule = graphs_on(self.points.device), self.parts.optimizer
        if graphs is not None and rule.needs_residuals:
            log.info("no CUDA graph: %s decides on the host, victim by victim", rule)
            return None
        return graphs

    def run(self, progress: Progress, part: Part) -> SearchState:
        """Search, from the checkpoint if any, until every victim converged or spent its budget."""
        self._resume(part.stored)
        progress.advance(self.number // self.every)
        with part.stepping():
            if not self.number:
                self._evaluate()
                self._count()
                self._look(progress)
            for _ in part.steps(lambda: self.left, self._state):
                self._advance()
                self._look(progress)
            search_state = self.search_state()
            if self.parts.threshold is None:  # every finite result has converged, except of zeros
                search_state.converged = search_state.distance.isfinite() & self.informed
            self.records.record(self.parts.iterations)
            part.keep(self._state(search_state))
        return search_state

    def search_state(self) -> SearchState:
        """Return the best points and counters of all victims."""
        parts = [*self.removed, (self.rows, self.best)]
        order = torch.cat([rows for rows, _ in parts]).argsort()
        states = [vars(state) for _, state in parts]
        return SearchState(
            **{name: torch.cat([one[name] for one in states])[order] for name in states[0]}
        )

    def _advance(self) -> None:
        """Move and evaluate the points until the next look, or until the budget is spent."""
        budget = self.parts.iterations * self.every + 1
        for _ in range(min(self.between, budget - self.number)):
            self.step()
            self._count()

    def step(self) -> None:
        """Move the points and evaluate them."""
        self.optimizer.prepare(self.graph.renew)
        self.graph(self._step)

    def _step(self) -> None:
        self._move()
        self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the objective; update counters and best points; stop victims that are done."""
        found, best = self.problem.evaluate(self.points).in_double_precision(), self.best
        self.evaluated.copy_(self.running)
        for name, value in vars(self.evaluation).items():
            value.copy_(getattr(found, name))
        failed = self._failed(found)
        best.evaluations += self.running
        better = self.running & (found.objective < best.objective)
        torch.where(better[:, None], self.points, best.points, out=best.points)
        torch.where(better, found.distance, best.distance, out=best.distance)
        torch.where(better, found.objective, best.objective, out=best.objective)
        if self.parts.threshold is not None:
            converged = self.running & (found.distance <= self.parts.threshold)
            best.converged |= converged
            self.running &= ~converged
        if not self.parts.restarts:
            self.running &= ~failed
            return
        # a reset of the optimizer's memory close to convergence does not count as a restart
        may_restart = (best.restarts < self.parts.restarts) | self._near()
        self.running &= ~failed | may_restart
        torch.logical_and(failed, self.running, out=self.failing)

    def _failed(self, found: Evaluation) -> torch.Tensor:
        """Mark victims whose attempt is not finite, diverged, or stalled; Shape (V), a mask."""
        if self.parts.optimizer.steps_back:
            failed = ~self.points.isfinite().all(1)
        else:
            failed = self.attempt.lost(found)
        if self.parts.patience is not None:
            failed = failed | self.attempt.stalled(found, self.parts.patience)
        return failed & self.running

    def _near(self) -> torch.Tensor:
        """Mark victims that restart from their best points; Shape (V), a mask."""
        return self.best.distance <= NEAR

    def _move(self) -> None:
        """Move the points by the optimizer's rule; restart failed attempts that have a point.

        An attempt that fails again before the next look waits for it, since no point is drawn.
        """
        points = self.optimizer.advance(self.problem, self.points, self.evaluation, self.running)
        self.points.copy_(points)
        if self.parts.box:
            self.problem.clip(self.points)
        if not self.restarting:
            return
        near = self._near()
        again, afresh = self.failing & (near | self.ready), self.failing & ~near & self.ready
        self.optimizer.restart(again)
        self.attempt.restart(again)
        self.best.restarts += afresh
        first = torch.where(afresh[:, None], self.drawn, self.best.points)
        torch.where(again[:, None], first, self.points, out=self.points)
        self.ready &= ~afresh

    def _count(self) -> None:
        """Count an evaluation, and note what is to be recorded of it."""
        iteration, within = divmod(self.number, self.every)
        self.number += 1
        if not within and self.records.due(iteration):
            self._note(iteration)

    def _note(self, iteration: int) -> None:
        """Note the present state of the victims that were running, and the best of the others."""
        values = torch.where(self.evaluated, self.evaluation.objective, self.best.objective)
        points = torch.where(self.evaluated[:, None], self.points, self.best.points)
        self.records.note(iteration, self.rows, values, self.problem.inputs(points))

    def _look(self, progress: Progress) -> None:
        """Copy what the host needs to know, all at once, and act on it."""
        objective = self.evaluation.objective.median()
        state = (self.running, self.failing, self.ready, objective)
        copies = on_host(*state, *self.records.noted)
        running, failing, ready, middle = copies[: len(state)]
        self.records.flush(copies[len(state) :])
        done = (self.number - 1) // self.every - progress.done
        progress.advance(done, objective=middle.item())
        if self.number > self.parts.iterations * self.every:
            self.running.zero_()
            running[:] = False
        self.left = bool(running.any())
        if not self.left:
            self._see_best(slice(None))
            return
        if self.parts.restarts:
            self.restarting = self.draws_ahead or bool(failing.any())
            asking = (running if self.draws_ahead else failing) & ~ready
            if asking.any():
                self._draw(asking)
        if running.mean() <= 1 - FINISHED_SHARE:
            self._remove(~self.running)

    def _see_best(self, which: torch.Tensor | slice) -> None:
        inputs = self.problem.inputs(self.best.points)
        self.records.see(self.rows[which], self.best.objective[which], inputs[which])

    def _draw(self, asking: np.ndarray) -> None:
        """Draw the first points of the next attempt of these victims, a mask."""
        near, rows, restarts = on_host(self._near(), self.rows, self.best.restarts)
        for place in np.flatnonzero(asking & ~near):
            self.drawn[place] = self.draw(int(rows[place]), int(restarts[place]) + 1)
        self.ready |= torch.from_numpy(asking).to(self.ready.device)

    def _state(
        self, search_state: SearchState | None = None
    ) -> dict[str, torch.Tensor | np.ndarray]:
        """Return the state that the next step depends on; at the end, the result alone."""
        parts: dict[str, Mapping[str, torch.Tensor | np.ndarray]] = {
            "search_state": vars(search_state or self.search_state()),
            "records": self.records.state(),
        }
        if self.left:
            parts |= {
                "live": {name: getattr(self, name) for name in self.LIVE},
                "attempt": vars(self.attempt),
                "evaluation": vars(self.evaluation),
                "optimizer": self.optimizer.state(),
            }
        named = {f"{part}.{name}": value for part in parts for name, value in parts[part].items()}
        return {"number": np.array(self.number), **named}

    def _resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `_state` returned, if there is one."""
        if not state:
            return
        device = self.points.device
        groups: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        for key, value in state.items():
            group, _, name = key.partition(".")
            groups[group][name] = torch.from_numpy(value).to(device)
        self.number = int(state["number"])
        search_state = SearchState(**groups["search_state"])
        records = {name: value.cpu().numpy() for name, value in groups["records"].items()}
        self.records.resume(records)
        self.left = bool(groups["live"])
        if not self.left:
            self.best = search_state
            return
        for name, tensor in groups["live"].items():
            setattr(self, name, tensor)
        vars(self.attempt).update(groups["attempt"])
        self.evaluation = Evaluation(**groups["evaluation"])
        self.optimizer.resume(groups["optimizer"])
        self.problem = self.problem.keep(self.rows)
        self.best = search_state.of(self.rows)
        others = (
            torch.ones_like(search_state.converged).index_fill_(0, self.rows, False).nonzero()[:, 0]
        )
        self.removed = [(others, search_state.of(others))]

    def _remove(self, finished: torch.Tensor) -> None:
        """Take victims that have finished out of the batch; Shape (V), a mask."""
        self.graph.renew()
        self._see_best(finished)
        self.removed.append((self.rows[finished], self.best.of(finished)))
        rows = ~finished
        self.best = self.best.of(rows)
        self.problem = self.problem.keep(rows)
        self.optimizer.keep(rows)
        self.attempt.keep(rows)
        self.evaluation = Evaluation(
            **{name: value[rows] for name, value in vars(self.evaluation).items()}
        )
        for name in self.LIVE:
            setattr(self, name, getattr(self, name)[rows])


def snapshot_iterations(iterations: int) -> list[int]:
    """Return 0, then 1, 2, 5, 10, 20, 50 and so on up to the budget."""
    series = [step * 10**power for power in range(12) for step in (1, 2, 5)]
    return [0, *(number for number in series if number <= iterations)]


def kept_snapshots(shape: tuple[int, ...], iterations: int) -> tuple[int, list[int]]:
    """Return the number of victims and the iterations whose snapshots fit into `SNAPSHOT_BYTES`.

    Large batches of large images have fewer: a victim of 256 images of 224 pixels takes 154 MB.
    """
    moments = snapshot_iterations(iterations)
    fitting = max(2, SNAPSHOT_BYTES // (np.float32().itemsize * math.prod(shape)))
    if fitting < len(moments):
        moments = [0, *moments[1 - fitting :]]
    return min(SHOWN_VICTIMS, fitting // len(moments)), moments


class Records:
    """Objective of V victims at up to `RECORDS` iterations, and snapshots of the first few.

    From the shape (V, N, *sample shape), and the largest number of victims with snapshots.

    Attributes:
        noted: tensors on a device that wait for `flush`, three for each iteration.
    """

    def __init__(
        self, shape: tuple[int, ...], iterations: int, most_shown: int = SHOWN_VICTIMS
    ) -> None:
        self.iterations = list(range(0, iterations + 1, math.ceil(iterations / RECORDS)))
        _, self.moments = kept_snapshots(shape[1:], iterations)
        self.objective: list[np.ndarray] = []
        self.pictures: list[np.ndarray] = []
        self.noted: list[torch.Tensor] = []
        self._noted_at: list[int] = []
        self._values = np.full(shape[0], np.finfo(np.float64).max)
        self._shown = np.zeros((min(shape[0], most_shown), *shape[1:]), np.float32)

    def note(
        self, iteration: int, rows: torch.Tensor, objective: torch.Tensor, inputs: torch.Tensor
    ) -> None:
        """Note the state of W victims at an iteration on their device, to be recorded by `flush`.

        Rows rise, so that those with snapshots come first.
        """
        most = len(self._shown) if self._reached(iteration)[1] > self._covered[1] else 0
        self.noted += [rows, objective, inputs[:most].clone()]
        self._noted_at.append(iteration)

    def flush(self, copies: Sequence[np.ndarray]) -> None:
        """Record what was noted, from copies of `noted` on the host."""
        for number, iteration in enumerate(self._noted_at):
            self._see(*copies[3 * number : 3 * number + 3])
            self.record(iteration)
        self.noted, self._noted_at = [], []

    def see(self, rows: torch.Tensor, objective: torch.Tensor, inputs: torch.Tensor) -> None:
        """Note the state of W victims; objectives, Shape (W), that are not finite are ignored."""
        self._see(*on_host(rows, objective, inputs[: len(self._shown)]))

    def _see(self, victims: np.ndarray, values: np.ndarray, pictures: np.ndarray) -> None:
        finite = np.isfinite(values)
        self._values[victims[finite]] = values[finite]
        victims = victims[: len(pictures)]
        shown = victims < len(self._shown)
        self._shown[victims[shown]] = np.nan_to_num(pictures[shown].clip(0, 1))

    def state(self) -> dict[str, np.ndarray]:
        """Return all noted and recorded values."""
        state: dict[str, np.ndarray] = {"values": self._values, "shown": self._shown}
        for name, rows in {"objective": self.objective, "pictures": self.pictures}.items():
            if rows:
                state[name] = np.stack(rows)
        return state

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state` returned."""
        self._values, self._shown = state["values"], state["shown"]
        self.objective = list(state.get("objective", ()))
        self.pictures = list(state.get("pictures", ()))

    def due(self, iteration: int) -> bool:
        """Return True if something is to be recorded at the beginning of this iteration."""
        reached, covered = self._reached(iteration), self._covered
        return reached[0] > covered[0] or reached[1] > covered[1]

    def record(self, iteration: int) -> None:
        """Record the values noted last, for every recording time up to this iteration."""
        objectives, pictures = self._reached(iteration)
        while len(self.objective) < objectives:
            self.objective.append(self._values.copy())
        while len(self.pictures) < pictures:
            self.pictures.append(self._shown.copy())

    @property
    def _covered(self) -> tuple[int, int]:
        """Numbers of objectives and of snapshots that are recorded or noted."""
        if self._noted_at:
            return self._reached(self._noted_at[-1])
        return len(self.objective), len(self.pictures)

    def _reached(self, iteration: int) -> tuple[int, int]:
        return bisect_right(self.iterations, iteration), bisect_right(self.moments, iteration)
