"""How the losses of a training went: their means over a number of steps each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from gleak.knowledge.trainer import Losses
from gleak.runtime.checkpointing import State, strip_prefix


class Curves:
    """Losses so far.

    Args:
        stride: steps that make a point.
        last: the step that ends the training, after which there is a point in any case.
    """

    def __init__(self, stride: int, last: int) -> None:
        self.stride, self.last = stride, last
        self.done = 0
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {}
        self._since: dict[str, list[torch.Tensor]] = {}

    def add(self, losses: Losses) -> None:
        """Take notice of the next step's losses."""
        self.done += 1
        for name, value in losses.items():
            self._since.setdefault(name, []).append(value.detach())
        if self.done % self.stride and self.done != self.last:
            return
        self.steps.append(self.done)
        for name, values in self._since.items():
            self.losses.setdefault(name, []).append(torch.stack(values).mean().item())
        self._since = {}

    @property
    def latest(self) -> dict[str, float]:
        """The last point of each loss."""
        return {name: values[-1] for name, values in self.losses.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Each loss; Shape (points)."""
        return {name: np.array(values) for name, values in self.losses.items()}

    def state(self) -> State:
        """All of it, for a job's journal."""
        since = {f"since.{name}": torch.stack(values) for name, values in self._since.items()}
        losses = {f"losses.{name}": values for name, values in self.losses.items()}
        return {"done": self.done, "steps": np.array(self.steps, dtype=int), **since, **losses}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave; of a larger state the rest is left alone."""
        self.done, self.steps = int(state["done"]), state["steps"].tolist()
        self.losses = {name: each.tolist() for name, each in strip_prefix("losses", state).items()}
        self._since = {
            name: list(torch.from_numpy(each))
            for name, each in strip_prefix("since", state).items()
        }
