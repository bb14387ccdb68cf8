"""Search of V victims at once, each stopped and restarted separately, and its records."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.problem import Problem
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Part
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
        infinite = points.new_full((len(points),), torch.inf)
        none = torch.zeros_like(infinite).long()
        return cls(points.clone(), infinite, infinite.clone(), none, none.clone(), none.bool())


class Attempt:
    """Progress of the current attempt of each active victim: best distance and evaluations since.

    The attacker judges by the gradient distance alone.
    """

    def __init__(self, victims: int, like: torch.Tensor) -> None:
        self.first = like.new_full((victims,), torch.inf)
        self.best = self.first.clone()
        self.idle = like.new_zeros(victims).long()

    def judge(self, evaluation: Evaluation, patience: int | None) -> torch.Tensor:
        """Mark failed attempts: not finite, diverged, or stalled; Shape (V), a mask."""
        distance = evaluation.distance
        finite = distance.isfinite() & evaluation.gradient.isfinite().all(1)
        self.first = torch.where(self.first.isinf(), distance, self.first)
        gained = distance < self.best * (1 - LEAST_GAIN)
        self.idle = torch.where(gained, 0, self.idle + 1)
        self.best = torch.where(gained, distance, self.best)
        failed = ~finite | (distance > DIVERGED * self.first)
        return failed if patience is None else failed | (self.idle >= patience)

    def restart(self, rows: torch.Tensor) -> None:
        """Start a new attempt of these victims; Shape (V), a mask."""
        self.first[rows] = self.best[rows] = torch.inf
        self.idle[rows] = 0

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all victims except these; Shape (V), a mask."""
        self.first, self.best, self.idle = self.first[rows], self.best[rows], self.idle[rows]


class Search:
    """Run of the engine over the victims of a problem; restarts draw first points again."""

    LIVE = ("points", "rows", "running")

    def __init__(self, problem: Problem, draw: Draw, records: Records) -> None:
        victims = len(next(iter(problem.observed.values())))
        self.parts, self.problem, self.draw, self.records = problem.parts, problem, draw, records
        self.points = torch.stack([draw(row, 0) for row in range(victims)])
        self.rows = torch.arange(victims, device=self.points.device)
        self.running = torch.ones_like(self.rows).bool()
        self.ledger = SearchState.opened(self.points)
        self.attempt = Attempt(victims, self.points)
        self.optimizer = self.parts.optimizer.begin(self.points, self.parts.iterations)
        self.every = self.parts.optimizer.evaluations_per_iteration
        self.number = 0
        observed = [value.reshape(victims, -1).any(1) for value in problem.observed.values()]
        self.informed = torch.stack(observed).any(0)

    def run(self, progress: Progress, part: Part) -> SearchState:
        """Search, from the checkpoint if any, until every victim converged or spent its budget."""
        self._resume(part.stored)
        progress.advance(self.number // self.every)
        with part.stepping():
            for _ in part.steps(lambda: bool(self.running.any()), self._state):
                self._evaluate(progress)
            if self.parts.threshold is None:  # every finite result has converged, except of zeros
                self.ledger.converged = self.ledger.distance.isfinite() & self.informed
            self.records.record(self.parts.iterations)
            part.keep(self._state())
        return self.ledger

    def _evaluate(self, progress: Progress) -> None:
        """Evaluate the objective once, and advance."""
        evaluation = self.problem.evaluate(self.points)
        iteration, within = divmod(self.number, self.every)
        if not within:
            if self.records.due(iteration):
                live, inputs = self.running, self.problem.inputs(self.points)
                self.records.see(self.rows[live], evaluation.objective[live], inputs[live])
                self.records.record(iteration)
            progress.advance(int(bool(iteration)), objective=evaluation.objective.median().item())
        spent = self.number == self.parts.iterations * self.every
        self.number += 1
        self._advance(evaluation, spent)

    def _state(self) -> dict[str, torch.Tensor | np.ndarray]:
        """Return the state that the next evaluation depends on; at the end, the result alone."""
        parts: dict[str, Mapping[str, torch.Tensor | np.ndarray]] = {
            "ledger": vars(self.ledger),
            "records": self.records.state(),
        }
        if self.running.any():
            parts |= {
                "live": {name: getattr(self, name) for name in self.LIVE},
                "attempt": vars(self.attempt),
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
        self.ledger = SearchState(**groups["ledger"])
        records = {name: value.cpu().numpy() for name, value in groups["records"].items()}
        self.records.resume(records)
        if not groups["live"]:
            self.running = torch.zeros_like(self.running)
            return
        for name, tensor in groups["live"].items():
            setattr(self, name, tensor)
        vars(self.attempt).update(groups["attempt"])
        self.optimizer.resume(groups["optimizer"])
        self.problem = self.problem.keep(self.rows)

    def _advance(self, evaluation: Evaluation, spent: bool) -> None:
        """Update the best points; stop finished victims, restart failed ones, move the others."""
        failed = self.attempt.judge(evaluation, self.parts.patience) & self.running
        converged = self._note(evaluation)
        left = self.ledger.restarts[self.rows] < self.parts.restarts
        # a reset of the optimizer's memory close to convergence does not count as a restart
        may_restart = left | (self._near(self.rows) & (self.parts.restarts > 0))
        finished = self.running & (converged | (failed & ~may_restart) | spent)
        if finished.any():
            rows = self.rows[finished]
            self.running = self.running & ~finished
            inputs = self.problem.inputs(self.ledger.points[self.rows])
            self.records.see(rows, self.ledger.objective[rows], inputs[finished])
            if not self.running.any():
                return
        again = failed & may_restart & self.running
        self.points = self.optimizer.advance(self.problem, self.points, evaluation, self.running)
        if self.parts.box:
            self.problem.clip(self.points)
        if again.any():
            self._restart(again)
        if self.running.float().mean() <= 1 - FINISHED_SHARE:
            self._keep(self.running)

    def _near(self, rows: torch.Tensor) -> torch.Tensor:
        return self.ledger.distance[rows] <= NEAR

    def _note(self, evaluation: Evaluation) -> torch.Tensor:
        """Update counters, best points and convergence; Shape (V), a mask of converged victims."""
        ledger, live = self.ledger, self.running
        ledger.evaluations[self.rows[live]] += 1
        better = live & (evaluation.objective < ledger.objective[self.rows])
        rows = self.rows[better]
        ledger.points[rows] = self.points[better]
        ledger.distance[rows] = evaluation.distance[better]
        ledger.objective[rows] = evaluation.objective[better]
        if self.parts.threshold is None:
            return torch.zeros_like(live)
        converged = live & (evaluation.distance <= self.parts.threshold)
        ledger.converged[self.rows[converged]] = True
        return converged

    def _restart(self, again: torch.Tensor) -> None:
        rows = self.rows[again]
        near = self._near(rows)  # these go on from their best points
        self.ledger.restarts[rows] += ~near
        self.optimizer.restart(again)
        self.attempt.restart(again)
        places = zip(rows.tolist(), near.tolist(), self.ledger.restarts[rows].tolist(), strict=True)
        self.points[again] = torch.stack(
            [self.ledger.points[row] if close else self.draw(row, n) for row, close, n in places]
        )

    def _keep(self, rows: torch.Tensor) -> None:
        self.problem = self.problem.keep(rows)
        self.optimizer.keep(rows)
        self.attempt.keep(rows)
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
    """

    def __init__(
        self, shape: tuple[int, ...], iterations: int, most_shown: int = SHOWN_VICTIMS
    ) -> None:
        self.iterations = list(range(0, iterations + 1, math.ceil(iterations / RECORDS)))
        _, self.moments = kept_snapshots(shape[1:], iterations)
        self.objective: list[np.ndarray] = []
        self.pictures: list[np.ndarray] = []
        self._values = np.full(shape[0], np.finfo(np.float64).max)
        self._shown = np.zeros((min(shape[0], most_shown), *shape[1:]), np.float32)

    def see(self, rows: torch.Tensor, objective: torch.Tensor, inputs: torch.Tensor) -> None:
        """Note the state of W victims; objectives, Shape (W), that are not finite are ignored."""
        values, victims = objective.double().cpu().numpy(), rows.cpu().numpy()
        finite = np.isfinite(values)
        self._values[victims[finite]] = values[finite]
        shown = victims < len(self._shown)
        pictures = torch.nan_to_num(inputs[torch.as_tensor(shown)].clamp(0, 1))
        self._shown[victims[shown]] = pictures.float().cpu().numpy()

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
        objectives, pictures = self._reached(iteration)
        return objectives > len(self.objective) or pictures > len(self.pictures)

    def record(self, iteration: int) -> None:
        """Record the values noted last, for every recording time up to this iteration."""
        objectives, pictures = self._reached(iteration)
        while len(self.objective) < objectives:
            self.objective.append(self._values.copy())
        while len(self.pictures) < pictures:
            self.pictures.append(self._shown.copy())

    def _reached(self, iteration: int) -> tuple[int, int]:
        return bisect_right(self.iterations, iteration), bisect_right(self.moments, iteration)
