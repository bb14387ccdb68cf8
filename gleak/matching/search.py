"""The search itself: V victims advance together, each stopped and restarted on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gleak.matching.problem import Evaluation, Problem
from gleak.matching.records import Records

if TYPE_CHECKING:
    from gleak.runtime.progress import Progress

BLOW_UP = 1e3
LEAST_GAIN = 0.2
FINISHED_SHARE = 0.25
NEAR = 1e-5

Draw = Callable[[int, int], Tensor]
"""From a victim's row and the number of its attempt to a first point, Shape (P)."""


@dataclass
class Ledger:
    """The books of all victims; rows keep their place throughout.

    Args:
        points: Shape (V, P), where the objective was least.
        objective: Shape (V), there.
        distance: Shape (V), there.
        evaluations: Shape (V).
        restarts: Shape (V).
        converged: Shape (V).
    """

    points: Tensor
    objective: Tensor
    distance: Tensor
    evaluations: Tensor
    restarts: Tensor
    converged: Tensor

    @classmethod
    def opened(cls, points: Tensor) -> Ledger:
        """Empty books for V victims at these points."""
        infinite = points.new_full((len(points),), torch.inf)
        none = torch.zeros_like(infinite).long()
        return cls(points.clone(), infinite, infinite.clone(), none, none.clone(), none.bool())


class Attempt:
    """The current attempt of each active victim: how good it was, and since when it has not gained.

    The attacker judges by the gradient distance alone.
    """

    def __init__(self, victims: int, like: Tensor) -> None:
        self.first = like.new_full((victims,), torch.inf)
        self.best = like.new_full((victims,), torch.inf)
        self.idle = like.new_zeros(victims).long()

    def judge(self, evaluation: Evaluation, patience: int | None) -> Tensor:
        """Which searches are lost: not finite, blown up, or stalled; Shape (V), a mask."""
        distance = evaluation.distance
        finite = distance.isfinite() & evaluation.gradient.isfinite().all(1)
        self.first = torch.where(self.first.isinf(), distance, self.first)
        gained = distance < self.best * (1 - LEAST_GAIN)
        self.idle = torch.where(gained, 0, self.idle + 1)
        self.best = torch.where(gained, distance, self.best)
        lost = ~finite | (distance > BLOW_UP * self.first)
        return lost if patience is None else lost | (self.idle >= patience)

    def restart(self, rows: Tensor) -> None:
        """Begin anew on these victims; Shape (V), a mask."""
        self.first[rows] = self.best[rows] = torch.inf
        self.idle[rows] = 0

    def keep(self, rows: Tensor) -> None:
        """Go on with these victims alone."""
        self.first, self.best, self.idle = self.first[rows], self.best[rows], self.idle[rows]


class Search:
    """One run of the engine over the victims of a problem.

    Args:
        problem: of V victims.
        draw: gives first points, also for restarts.
        records: of these victims.
    """

    def __init__(self, problem: Problem, draw: Draw, records: Records) -> None:
        victims = len(next(iter(problem.observed.values())))
        self.parts, self.problem, self.draw, self.records = problem.parts, problem, draw, records
        self.points = torch.stack([draw(row, 0) for row in range(victims)])
        self.rows = torch.arange(victims, device=self.points.device)
        self.running = torch.ones_like(self.rows).bool()
        self.ledger = Ledger.opened(self.points)
        self.attempt = Attempt(victims, self.points)
        self.optimizer = self.parts.optimizer.begin(self.points, self.parts.iterations)

    def run(self, progress: Progress) -> Ledger:
        """Search until every victim has converged or the budget is spent."""
        every = self.parts.optimizer.evaluations_per_iteration
        for number in range(self.parts.iterations * every + 1):
            evaluation = self.problem.evaluate(self.points)
            iteration, within = divmod(number, every)
            if not within:
                self._record(iteration, evaluation)
                progress.advance(
                    int(bool(iteration)), objective=evaluation.objective.median().item()
                )
            spent = number == self.parts.iterations * every
            self._advance(evaluation, spent)
            if not self.running.any():
                break
        self._settle()
        return self.ledger

    def _record(self, iteration: int, evaluation: Evaluation) -> None:
        if self.records.due(iteration):
            live = self.running
            inputs = self.problem.inputs(self.points)
            self.records.see(self.rows[live], evaluation.objective[live], inputs[live])
            self.records.record(iteration)

    def _advance(self, evaluation: Evaluation, spent: bool) -> None:
        """Keep the books, stop what is finished, restart what is lost, move the others."""
        lost = self.attempt.judge(evaluation, self.parts.patience) & self.running
        arrived = self._enter(evaluation)
        may_go_on = self._may_go_on()
        finished = self.running & (arrived | (lost & ~may_go_on) | spent)
        if finished.any():
            self._finish(finished)
            if not self.running.any():
                return
        again = lost & may_go_on & self.running
        self.points = self.optimizer.step(self.points, evaluation.gradient)
        if self.parts.box:
            self.points[:, : self.problem.values].clamp_(0, 1)
        if again.any():
            self._restart(again)
        self._compact()

    def _may_go_on(self) -> Tensor:
        """Which victims would begin again if they were lost; Shape (V), a mask.

        Forgetting a memory that has gone stale near the end is not counted as a restart.
        """
        left = self.ledger.restarts[self.rows] < self.parts.restarts
        return left | (self._near(self.rows) & (self.parts.restarts > 0))

    def _near(self, rows: Tensor) -> Tensor:
        return self.ledger.distance[rows] <= NEAR

    def _enter(self, evaluation: Evaluation) -> Tensor:
        """Note evaluations, best points and convergence; Shape (V), which have converged."""
        ledger, live = self.ledger, self.running
        ledger.evaluations[self.rows[live]] += 1
        better = live & (evaluation.objective < ledger.objective[self.rows])
        rows = self.rows[better]
        ledger.points[rows] = self.points[better]
        ledger.distance[rows] = evaluation.distance[better]
        ledger.objective[rows] = evaluation.objective[better]
        if self.parts.threshold is None:
            return torch.zeros_like(live)
        arrived = live & (evaluation.distance <= self.parts.threshold)
        ledger.converged[self.rows[arrived]] = True
        return arrived

    def _finish(self, finished: Tensor) -> None:
        rows = self.rows[finished]
        self.running = self.running & ~finished
        inputs = self.problem.inputs(self.ledger.points[self.rows])
        self.records.see(rows, self.ledger.objective[rows], inputs[finished])

    def _restart(self, again: Tensor) -> None:
        rows = self.rows[again]
        self.ledger.restarts[rows] += ~self._near(rows)
        self.optimizer.restart(again)
        self.attempt.restart(again)
        self.points[again] = torch.stack([self._afresh(row) for row in rows.tolist()])

    def _afresh(self, row: int) -> Tensor:
        """Where a lost search begins again: close to the end only its memory was at fault."""
        if self._near(torch.as_tensor(row)):
            return self.ledger.points[row]
        return self.draw(row, int(self.ledger.restarts[row]))

    def _compact(self) -> None:
        """Take finished victims out of the batch once they are a good share of it."""
        if self.running.float().mean() > 1 - FINISHED_SHARE:
            return
        kept = self.running
        self.problem = self.problem.keep(kept)
        self.optimizer.keep(kept)
        self.attempt.keep(kept)
        self.points, self.rows, self.running = (
            self.points[kept],
            self.rows[kept],
            self.running[kept],
        )

    def _settle(self) -> None:
        """Without a threshold a finite result is all an attack can ask for."""
        if self.parts.threshold is None:
            self.ledger.converged = self.ledger.distance.isfinite()
        self.records.record(self.parts.iterations)
