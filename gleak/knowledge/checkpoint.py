"""A training that was broken off goes on where it stood: a side file, written now and then."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from gleak.artifacts.knowledge import Checkpoint
from gleak.errors import ArtifactError
from gleak.knowledge.trainer import Trainer

SECONDS = 120.0
"""Between one checkpoint and the next, at least."""
log = logging.getLogger(__name__)


@dataclass
class Curves:
    """Losses so far.

    Args:
        steps: after which they were noted.
        losses: by name, a value for each of these.
    """

    steps: list[int] = field(default_factory=list)
    losses: dict[str, list[float]] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Steps that have been taken."""
        return self.steps[-1] if self.steps else 0

    def add(self, step: int, losses: dict[str, float]) -> None:
        """Note losses after a step."""
        self.steps.append(step)
        for name, value in losses.items():
            self.losses.setdefault(name, []).append(value)

    def arrays(self) -> dict[str, np.ndarray]:
        """Each loss; Shape (points)."""
        return {name: np.array(values) for name, values in self.losses.items()}


class SideFile:
    """Where a training leaves its state.

    Args:
        path: of the file.
        origin: a digest of all that the training follows from.
    """

    def __init__(self, path: Path, origin: str) -> None:
        self.path, self.origin = path, origin
        self._saved = time.monotonic()

    def resume(self, trainer: Trainer) -> Curves:
        """Bring a trainer to where the file says it stood; nothing, where there is none of it."""
        if not self.path.exists():
            return Curves()
        try:
            found = Checkpoint.read(self.path)
        except ArtifactError as error:
            log.warning("the training begins anew: %s", error)
            return Curves()
        if found.origin != self.origin:
            log.warning("%s: of another training or other code; it begins anew", self.path)
            return Curves()
        trainer.resume({key: torch.from_numpy(value) for key, value in found.state.items()})
        curves = Curves(
            [int(step) for step in found.loss_step],
            {name: [float(value) for value in values] for name, values in found.losses.items()},
        )
        log.info("%s: goes on after step %d", self.path, curves.done)
        return curves

    def save_if_due(self, trainer: Trainer, curves: Curves) -> None:
        """Write the file if the last time is long enough ago.

        Raises:
            ArtifactError: it cannot be written, or the state is not finite.
        """
        if time.monotonic() - self._saved < SECONDS:
            return
        state = {key: value.cpu().numpy() for key, value in trainer.state().items()}
        Checkpoint(
            origin=self.origin,
            state=state,
            loss_step=np.array(curves.steps, dtype=int),
            losses=curves.arrays(),
        ).write(self.path)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """The training is over."""
        self.path.unlink(missing_ok=True)
