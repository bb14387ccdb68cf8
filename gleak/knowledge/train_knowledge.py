"""The stage ``train_knowledge``, which writes ``knowledge.h5``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.core.lazy import torch
from gleak.knowledge.base import KnowledgeSpec, Losses, PretrainedSpec, TrainedSpec, Trainer
from gleak.knowledge.loading import fingerprints
from gleak.runtime.checkpointing import FILE, Journal, Part, State, origin_of, strip_prefix
from gleak.runtime.device import choose_device, device_name
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, stream, torch_stream

POINTS = 200
"""Largest number of points of a loss curve."""


class LossCurves:
    """Mean losses over each ``stride`` training steps; the ``last`` step always ends a point."""

    def __init__(self, stride: int, last: int) -> None:
        self.stride, self.last = stride, last
        self.done = 0
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {}
        self._since: dict[str, list[torch.Tensor]] = {}

    def add(self, losses: Losses) -> None:
        self.done += 1
        for name, value in losses.items():
            self._since.setdefault(name, []).append(value.detach())
        if self.done % self.stride and self.done != self.last:
            return
        self.steps.append(self.done)
        for name, values in self._since.items():
            self.losses.setdefault(name, []).append(torch.stack(values).mean().item())
        self._since = {}

    def state(self) -> State:
        since = {f"since.{name}": torch.stack(values) for name, values in self._since.items()}
        losses = {f"losses.{name}": values for name, values in self.losses.items()}
        return {"done": self.done, "steps": np.array(self.steps, dtype=int), **since, **losses}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        self.done, self.steps = int(state["done"]), state["steps"].tolist()
        losses, since = strip_prefix("losses", state), strip_prefix("since", state)
        self.losses = {name: values.tolist() for name, values in losses.items()}
        self._since = {name: list(torch.from_numpy(values)) for name, values in since.items()}


def train_knowledge(
    spec: KnowledgeSpec, dataset_path: Path, output: Path, *, seed: int, device: str = "auto"
) -> dict[str, float]:
    """Train a network on the train split of a public dataset and write ``knowledge.h5``.

    Pretrained networks are read from their file and written in the same way. An interrupted
    training resumes from ``checkpoint.h5`` next to the output, with the same result: the random
    numbers of a step depend on the seed and the step's index only.

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
    with Journal(output.with_name(FILE), origin, device_name(torch_device)) as journal:
        if isinstance(spec, PretrainedSpec):
            network, curves = spec.read(dataset.shape, dataset.classes), LossCurves(1, 0)
        else:
            assert isinstance(spec, TrainedSpec)
            with drawing_from(torch_stream(seed, "knowledge parameters")):
                trainer = spec.trainer(dataset.shape, dataset.classes)
            trainer.networks.to(torch_device)
            network = trainer.networks["network"]
            curves = run_steps(spec, trainer, dataset, seed, journal.part())
        trained = {name for name, _ in network.named_parameters()}
        state = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
        Knowledge(
            spec=f"{dataset.spec}/{spec}",
            knowledge=str(spec),
            dataset=dataset.spec,
            input_shape=np.array(dataset.shape),
            classes=dataset.classes,
            class_names=dataset.class_names,
            parameters={name: value for name, value in state.items() if name in trained},
            buffers={name: value for name, value in state.items() if name not in trained},
            loss_step=np.array(curves.steps, dtype=int),
            losses={name: np.array(values) for name, values in curves.losses.items()},
            fingerprints=known,
        ).write(output)
    return journal.earlier


def run_steps(
    spec: TrainedSpec, trainer: Trainer, dataset: Dataset, seed: int, part: Part
) -> LossCurves:
    """Run the remaining steps of a training, on samples drawn with replacement."""
    curves = LossCurves(-(-spec.steps // POINTS), spec.steps)
    if state := part.stored:
        curves.resume(state)
        trainer.resume({name: torch.from_numpy(value) for name, value in state.items()})
    trainer.networks.train()
    device = next(trainer.networks.parameters()).device
    with (
        Progress(spec.steps, f"training of {spec.name}, steps") as progress,
        part.stepping(),
    ):
        progress.advance(curves.done)
        for _ in part.steps(
            lambda: curves.done < spec.steps, lambda: {**curves.state(), **trainer.state()}
        ):
            chosen = stream(seed, "knowledge batch", curves.done).integers(
                len(dataset.train_labels), size=spec.batch_size
            )
            images = torch.from_numpy(dataset.samples("train", chosen)).to(device)
            labels = torch.from_numpy(dataset.labels("train")[chosen]).long().to(device)
            generator = torch_stream(seed, "knowledge step", curves.done)
            curves.add(trainer.learn(images, labels, generator))
            progress.advance(1, **{name: values[-1] for name, values in curves.losses.items()})
    return curves
