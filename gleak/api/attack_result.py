"""Result of an attack on one update."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gleak.api.tensors import ArrayLike, checked_inputs
from gleak.artifacts.atomic import atomic
from gleak.artifacts.pictures import picture_grid
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import ArtifactError

COLUMNS = 8
PICTURED = (1, 3)


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """Samples that an attack reconstructed from one update.

    Args:
        spec: canonical spec of the attack.
        inputs: reconstructed samples, values in [0, 1]; Shape (N, *shape). Their order is that of
            the attack, not of the client's batch: `gleak.score` matches them to the true ones.
        labels: labels found with them, or known; -1 where unknown; Shape (N).
        converged: True if the attack's own criterion was met.
        iterations: number of iterations; None for attacks without.
        objective: final value of the attack's objective; None for attacks without.
        reconstruction: everything that the attack recorded (its trace, for example), with a leading
            axis of one victim.
        cost: time of the attack, as ``seconds`` (wall) and ``cpu_seconds``, and its ``device``.
        batch_size: number of the client's samples, of which the attack may find only some; None:
            unknown.
    """

    spec: str
    inputs: Tensor
    labels: Tensor
    converged: bool
    iterations: int | None
    objective: float | None
    reconstruction: Reconstruction = field(repr=False)
    cost: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None

    @classmethod
    def of(
        cls, spec: str, found: Reconstruction, cost: dict[str, Any], batch_size: int | None = None
    ) -> AttackResult:
        """Return the result of an attack on one victim."""
        return cls(
            spec=spec,
            inputs=torch.from_numpy(found.inputs[0]),
            labels=torch.from_numpy(found.labels[0]),
            converged=bool(found.converged[0]),
            iterations=None if found.iterations is None else int(found.iterations[0]),
            objective=None if found.objective is None else float(found.objective[0]),
            reconstruction=found,
            cost=cost,
            batch_size=batch_size,
        )

    def __repr__(self) -> str:
        facts = {
            "inputs": tuple(self.inputs.shape),
            "labels": self.labels.tolist(),
            "converged": self.converged,
            "iterations": self.iterations,
            "objective": self.objective,
        }
        texts = [f"{name}={value}" for name, value in facts.items() if value is not None]
        return f"AttackResult({self.spec!r}, {', '.join(texts)})"

    def save(self, path: Path | str, truth: ArrayLike | None = None) -> Path:
        """Save the images as one PNG, at most `COLUMNS` beside each other.

        Args:
            path: the PNG, a file that ends in ``.png``.
            truth: true images, values in [0, 1], Shape (N, *shape), shown in rows above the
                reconstructed ones.

        Returns:
            ``path`` as a path.

        Raises:
            ArtifactError: the path is not that of a PNG, samples are not images of one or three
                channels, the truth is none of their shape, or the file cannot be written.
        """
        named = isinstance(path, str | PathLike) and "\0" not in str(path)
        if not named or Path(path).suffix.lower() != ".png":
            raise ArtifactError(f"path = {path!r}: expected the path of a file that ends in .png")
        if self.inputs.ndim != 4 or self.inputs.shape[1] not in PICTURED:
            raise ArtifactError(
                f"{path}: samples of shape {tuple(self.inputs.shape[1:])} are not images with one "
                "or three channels"
            )
        shape = tuple(self.inputs.shape[1:])
        above = [] if truth is None else [checked_inputs(truth, shape, "truth").numpy()]
        shown = [*above, self.inputs.numpy()]
        rows: list[Any] = []
        for start in range(0, max(map(len, shown)), COLUMNS):
            rows += [part for images in shown if len(part := images[start : start + COLUMNS])]
        with atomic(Path(path), private=True) as temporary:
            picture_grid(rows).save(temporary, format="PNG")
        return Path(path)
