"""What a search writes down on its way: the objective's course and pictures of the dummy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

RECORDS = 100
SHOWN_VICTIMS = 4


def snapshot_iterations(iterations: int) -> list[int]:
    """0, then 1, 2, 5, 10, 20, 50 and so on up to the budget."""
    series = [step * 10**power for power in range(12) for step in (1, 2, 5)]
    return [0, *(number for number in series if number <= iterations)]


class Records:
    """Objective of V victims at up to `RECORDS` iterations, and snapshots of the first few.

    Args:
        shape: (V, N, *sample shape).
        iterations: the budget.
    """

    def __init__(self, shape: tuple[int, ...], iterations: int) -> None:
        self.iterations = list(range(0, iterations + 1, math.ceil(iterations / RECORDS)))
        self.moments = snapshot_iterations(iterations)
        self.objective: list[np.ndarray] = []
        self.pictures: list[np.ndarray] = []
        self._values = np.full(shape[0], np.finfo(np.float64).max)
        self._shown = np.zeros((min(shape[0], SHOWN_VICTIMS), *shape[1:]), np.float32)

    def see(self, rows: Tensor, objective: Tensor, inputs: Tensor) -> None:
        """Take notice of the present state of some victims.

        Args:
            rows: Shape (W), which victims the other arguments are of.
            objective: Shape (W); a value that is not finite leaves the one before.
            inputs: Shape (W, N, ...).
        """
        values, where = objective.double().cpu().numpy(), rows.cpu().numpy()
        finite = np.isfinite(values)
        self._values[where[finite]] = values[finite]
        shown = where < SHOWN_VICTIMS
        pictures = torch.nan_to_num(inputs[torch.as_tensor(shown)].clamp(0, 1))
        self._shown[where[shown]] = pictures.float().cpu().numpy()

    def state(self) -> dict[str, np.ndarray]:
        """All that was seen and written down."""
        found: dict[str, np.ndarray] = {"values": self._values, "shown": self._shown}
        for name, rows in {"objective": self.objective, "pictures": self.pictures}.items():
            if rows:
                found[name] = np.stack(rows)
        return found

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave."""
        self._values, self._shown = state["values"], state["shown"]
        self.objective = list(state.get("objective", ()))
        self.pictures = list(state.get("pictures", ()))

    def due(self, iteration: int) -> bool:
        """Whether something is to be recorded at the beginning of this iteration."""
        return _due(self.iterations, self.objective, iteration) or _due(
            self.moments, self.pictures, iteration
        )

    def record(self, iteration: int) -> None:
        """Write down what was seen last, for every moment up to this iteration."""
        while _due(self.iterations, self.objective, iteration):
            self.objective.append(self._values.copy())
        while _due(self.moments, self.pictures, iteration):
            self.pictures.append(self._shown.copy())


def _due(moments: list[int], taken: list[np.ndarray], iteration: int) -> bool:
    return len(taken) < len(moments) and moments[len(taken)] <= iteration
