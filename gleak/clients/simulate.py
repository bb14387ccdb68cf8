"""The stage that makes ``update.h5``, ``granted/*.h5`` and ``private.h5``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Encoded
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.clients.base import ClientSpec, check_batch
from gleak.clients.batches import draw_batches
from gleak.clients.grants import make_grants
from gleak.defenses.base import DefenseSpec
from gleak.errors import at
from gleak.models.broadcast import load_network
from gleak.models.embedding import true_embeddings
from gleak.runtime.device import choose_device
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream


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
    with at(dataset.spec):
        indices = draw_batches(client, labels, seed)
    network = load_network(Model.read(parameters_path), str(parameters_path))
    network = network.to(choose_device(device))
    inputs = dataset.samples(client.split, indices)
    private = Private(
        spec=spec,
        seed=seed,
        modality=dataset.modality,
        inputs=inputs,
        labels=labels[indices],
        indices=indices,
        feature_groups=dataset.feature_groups,
        embeddings=true_embeddings(network, inputs),
    )
    sent = _send_all(client, defense, network, private, seed)
    _update(client, sent, spec).write(folder / "update.h5")
    for granted in make_grants(dataset, private, client.split, seed):
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
            held = torch.from_numpy(inputs).to(place), torch.from_numpy(labels).to(place)
            with drawing_from(torch_stream(seed, "client", victim)):
                update = client.compute(network, *held)
                update = defense.with_samples(update, network, *held)
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
