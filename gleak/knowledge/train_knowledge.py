"""The stage ``train_knowledge``, which writes ``knowledge.h5``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.knowledge import Knowledge
from gleak.knowledge.base import KnowledgeSpec, PretrainedSpec, TrainedSpec
from gleak.knowledge.fingerprints import fingerprints
from gleak.runtime.checkpointing import (
    FILE,
    Journal,
    Part,
    State,
    optimizer_state,
    origin_of,
    resume_optimizer,
    strip_prefix,
)
from gleak.runtime.device import choose_device
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, stream, torch_stream

Losses = Mapping[str, Tensor]
"""Scalar losses by name, on the device of the network."""
MODULE = "module"
POINTS = 200
"""Largest number of points of a loss curve."""


class Trainer(nn.Module, ABC):
    """Base class of a network and everything that is trained with it, as one module.

    Args:
        network: the network to train.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.optimizers: dict[str, Optimizer] = {}

    @abstractmethod
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        """Perform one training step.

        Args:
            images: of the public dataset, Shape (M, C, H, W) in [0, 1].
            labels: of the images, Shape (M), class indices.
            generator: random generator of the step, on the CPU.

        Returns:
            The losses of the step.
        """

    def state(self) -> dict[str, Tensor]:
        """Return everything that a training step passes to the next, by name."""
        state = {f"{MODULE}.{name}": value for name, value in self.state_dict().items()}
        for title, optimizer in self.optimizers.items():
            moments = optimizer_state(optimizer)
            state |= {f"{title}.{name}": value for name, value in moments.items()}
        return state

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state`; other keys are ignored."""
        self.load_state_dict(strip_prefix(MODULE, state))
        for title, optimizer in self.optimizers.items():
            resume_optimizer(optimizer, strip_prefix(title, state))


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """Take one step of an optimizer along the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Curves:
    """Mean losses over each ``stride`` training steps.

    Args:
        stride: number of steps per point.
        last: number of all steps; the last step always ends a point.
    """

    def __init__(self, stride: int, last: int) -> None:
        self.stride, self.last = stride, last
        self.done = 0
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {}
        self._since: dict[str, list[torch.Tensor]] = {}

    def add(self, losses: Losses) -> None:
        """Record the losses of the next step."""
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
        """Last point of each loss."""
        return {name: values[-1] for name, values in self.losses.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the points of each loss; Shape (points)."""
        return {name: np.array(values) for name, values in self.losses.items()}

    def state(self) -> State:
        """Return everything that is needed to resume, for the journal."""
        since = {f"since.{name}": torch.stack(values) for name, values in self._since.items()}
        losses = {f"losses.{name}": values for name, values in self.losses.items()}
        return {"done": self.done, "steps": np.array(self.steps, dtype=int), **since, **losses}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a `state`; other keys are ignored."""
        self.done, self.steps = int(state["done"]), state["steps"].tolist()
        self.losses = {name: each.tolist() for name, each in strip_prefix("losses", state).items()}
        self._since = {
            name: list(torch.from_numpy(each))
            for name, each in strip_prefix("since", state).items()
        }


def train_knowledge(
    spec: KnowledgeSpec, dataset_path: Path, output: Path, *, seed: int, device: str = "auto"
) -> dict[str, float]:
    """Train a network on the train split of a public dataset and write ``knowledge.h5``.

    Pretrained networks are read from their file and written in the same way. An interrupted
    training resumes from ``checkpoint.h5`` next to the output, with the same result as without
    interruption: the random numbers of a step depend on the seed and the step's index only.

    Args:
        spec: the network to train.
        dataset_path: ``dataset.h5`` of the public dataset.
        output: path of ``knowledge.h5``.
        seed: of the run.
        device: "auto", "cpu" or "cuda".

    Returns:
        See `gleak.runtime.checkpointing.Journal.earlier`.

    Raises:
        IncompatibleError: the train split is empty.
        ArtifactError: a file is bad, also one of weights, or parameters are not finite because the
            training diverged.
    """
    dataset = Dataset.read(dataset_path)
    spec.check_samples(len(dataset.train_labels), dataset.spec)
    known = fingerprints(dataset.train_inputs)
    torch_device = choose_device(device)
    origin = origin_of(__name__, [spec], [dataset_path], seed)
    with Journal(output.with_name(FILE), origin) as journal:
        network, curves = _learned(spec, dataset, seed, journal.part(), torch_device)
        trained = {name for name, _ in network.named_parameters()}
        state = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
        Knowledge(
            spec=f"{dataset.spec}/{spec}",
            seed=seed,
            knowledge=str(spec),
            dataset=dataset.spec,
            input_shape=np.array(dataset.shape),
            classes=dataset.classes,
            class_names=dataset.class_names,
            parameters={name: value for name, value in state.items() if name in trained},
            buffers={name: value for name, value in state.items() if name not in trained},
            loss_step=np.array(curves.steps, dtype=int),
            losses=curves.arrays(),
            fingerprints=known,
        ).write(output)
    return journal.earlier


def _learned(
    spec: KnowledgeSpec, dataset: Dataset, seed: int, part: Part, device: torch.device
) -> tuple[nn.Module, Curves]:
    """Return the trained or pretrained network, and its loss curves."""
    if isinstance(spec, PretrainedSpec):
        return spec.read(dataset.shape, dataset.classes), Curves(1, 0)
    assert isinstance(spec, TrainedSpec)
    trainer = _construct(spec, dataset, seed).to(device)
    return trainer.network, run_steps(spec, trainer, dataset, seed, part)


def _construct(spec: TrainedSpec, dataset: Dataset, seed: int) -> Trainer:
    """Build the trainer, with initial parameters drawn from a separate random stream."""
    with drawing_from(torch_stream(seed, "knowledge parameters")):
        return spec.trainer(dataset.shape, dataset.classes)


def run_steps(
    spec: TrainedSpec, trainer: Trainer, dataset: Dataset, seed: int, part: Part
) -> Curves:
    """Run the remaining steps of a training, with deterministic convolutions on a GPU.

    Args:
        spec: the network to train.
        trainer: of the spec.
        dataset: public dataset.
        seed: seed of the run.
        part: part of the job's checkpoint; the training resumes from it.

    Returns:
        All losses.
    """
    curves = Curves(-(-spec.steps // POINTS), spec.steps)
    if state := part.stored:
        curves.resume(state)
        trainer.resume({name: torch.from_numpy(value) for name, value in state.items()})
    trainer.train()
    with (
        torch.backends.cudnn.flags(enabled=True, deterministic=True),
        Progress(spec.steps, f"training of {spec.name}, steps") as progress,
        part.stepping(),
    ):
        progress.advance(curves.done)
        for _ in part.steps(
            lambda: curves.done < spec.steps, lambda: {**curves.state(), **trainer.state()}
        ):
            curves.add(_learn(spec, trainer, dataset, seed, curves.done))
            progress.advance(1, **curves.latest)
    return curves


def _learn(spec: TrainedSpec, trainer: Trainer, dataset: Dataset, seed: int, step: int) -> Losses:
    """Perform one step, on samples drawn with replacement."""
    samples = len(dataset.train_labels)
    chosen = stream(seed, "knowledge batch", step).integers(samples, size=spec.batch_size)
    device = next(trainer.parameters()).device
    images = torch.from_numpy(dataset.samples("train", chosen)).to(device)
    labels = torch.from_numpy(dataset.labels("train")[chosen]).long().to(device)
    return trainer.learn(images, labels, torch_stream(seed, "knowledge step", step))
