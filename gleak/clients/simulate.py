"""The stage that makes ``update.h5``, ``granted/*.h5`` and ``private.h5``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Encoded
from gleak.artifacts.granted import Granted
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.clients.base import ClientSpec, check_batch
from gleak.clients.batches import draw_batches
from gleak.defenses.base import DefenseSpec
from gleak.models.broadcast import load_network
from gleak.runtime.device import choose_device
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream

MID_GREY = 0.5
READ_AT_ONCE = 1024


def simulate_clients(
    client: ClientSpec,
    defense: DefenseSpec,
    dataset_path: Path,
    parameters_path: Path,
    folder: Path,
    *,
    spec: str,
    seed: int,
    device: str = "auto",
) -> None:
    """Let every victim compute and protect its update; write what is sent, granted and kept secret.

    Args:
        client: how clients hold data and train.
        defense: what they do to the update.
        dataset_path: ``dataset.h5``.
        parameters_path: ``model.h5`` or ``parameters.h5``, as broadcast.
        folder: where the files go.
        spec: canonical path of the cell, written into them.
        seed: of the run.
        device: "auto", "cpu" or "cuda".

    Raises:
        FitError: the dataset cannot supply the batches.
    """
    dataset = Dataset.read(dataset_path)
    labels = dataset.labels(client.split)
    check_batch(client, len(labels), len(np.unique(labels)), dataset.spec)
    indices = draw_batches(client, labels, seed)
    private = Private(
        spec=spec,
        seed=seed,
        modality=dataset.modality,
        inputs=dataset.samples(client.split, indices),
        labels=labels[indices],
        indices=indices,
    )
    network = load_network(Model.read(parameters_path), str(parameters_path))
    sent = _send_all(client, defense, network.to(choose_device(device)), private, seed)
    _update(client, sent, spec).write(folder / "update.h5")
    for granted in _grants(dataset, private):
        granted.write(folder / "granted" / f"{granted.grant}.h5")
    private.write(folder / "private.h5")


def _send_all(
    client: ClientSpec, defense: DefenseSpec, network: nn.Module, private: Private, seed: int
) -> dict[str, Encoded]:
    """What every victim sends, joined along the victim axis."""
    place = next(network.parameters()).device
    sent: list[dict[str, Encoded]] = []
    with Progress(len(private.labels), "clients") as progress:
        for victim, (inputs, labels) in enumerate(zip(private.inputs, private.labels, strict=True)):
            with drawing_from(torch_stream(seed, "client", victim)):
                update = client.compute(
                    network, torch.from_numpy(inputs).to(place), torch.from_numpy(labels).to(place)
                )
            computed = {name: value.detach().cpu() for name, value in update.items()}
            sent.append(defense.protect(computed, torch_stream(seed, "defense", victim), {}))
            progress.advance()
    return {name: _joined([one[name] for one in sent]) for name in sent[0]}


def _joined(parts: list[Any]) -> Encoded:
    """One parameter of all victims, which a defence encodes in one way."""
    encoded: Encoded = type(parts[0]).stack(parts)
    return encoded


def _update(client: ClientSpec, sent: dict[str, Encoded], spec: str) -> Update:
    return Update(spec=spec, content=client.content, update=sent, **client.protocol)


def _grants(dataset: Dataset, private: Private) -> list[Granted]:
    """Labels in ascending order, so that their order says nothing, and the mean sample."""
    mean = _mean_input(dataset)
    values = {
        "labels": np.sort(private.labels, axis=1),
        "mean_input": np.repeat(mean[None], len(private.labels), axis=0),
    }
    return [
        Granted(spec=private.spec, grant=grant, values=value) for grant, value in values.items()
    ]


def _mean_input(dataset: Dataset) -> np.ndarray:
    """The mean training sample, few held as floats at a time; mid-grey without training samples."""
    count = len(dataset.train_labels)
    if not count:
        return np.full(dataset.shape, MID_GREY, dtype=np.float32)
    total = np.zeros(dataset.shape)
    for start in range(0, count, READ_AT_ONCE):
        some = slice(start, start + READ_AT_ONCE)
        total += dataset.samples("train", some).sum(0, dtype=np.float64)
    return (total / count).astype(np.float32)
