"""Honest networks of many recipes, half of them for limits and half held out.

A recipe is a task (dataset and architecture) and what was done to the network; recipes alternate
between the two halves, so that no held-out network shares its recipe with one that limits were set
on. Each recipe has several networks, with optimiser, rate, weight decay and steps drawn at random.
Networks take seconds on one core: VGG-16, VGG-7, ResNet-50 and LeNet for 128 pixels, which do not,
are left out, and so is `planted`, which no honest server has published.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from audit_population import (
    VGG,
    Recipe,
    blank,
    factorise_weights,
    load,
    prune_weights,
    quantise_weights,
    train,
)
from torch import nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.models.broadcast import with_state
from gleak.runtime.seeding import stream

HALVES = ("limits", "held_out")
TASKS = [
    ("digits", "fc2", 400),
    ("digits", "mlp", 400),
    ("digits", "lenet+activation=relu", 120),
    ("digits+size=28", "lenet5+activation=relu", 100),
    ("digits+size=28", "lenet5", 120),
    ("digits", VGG, 50),
    ("digits", f"{VGG}+norm=batch", 40),
    ("photos+size=16", "fc2+hidden=1000", 200),
    ("photos+size=32", "mlp+activation=relu+hidden=128", 250),
    ("photos+size=32", "fc2", 200),
    ("photos+size=16", f"{VGG}+norm=batch", 40),
    ("photos+size=16", "lenet", 120),
    ("digits", "resnet20", 10),
    ("photos+size=32", "resnet18+width=8", 10),
    ("breast_cancer", "mlp+activation=relu", 400),
    ("faces+size=16", "fc2", 200),
    ("photos+size=16", "mlp+activation=relu", 250),
    ("digits+size=12", "fc2+hidden=500", 300),
    ("faces+size=16", "lenet+activation=relu", 100),
    ("adult", "mlp+activation=relu", 300),
]
"""Dataset, model and steps of training."""
EARLIER = {
    "digits": "faces+size=16",
    "digits+size=12": "faces+size=12",
    "digits+size=28": "faces+size=28",
    "photos+size=16": "digits+size=16",
    "photos+size=32": "digits+size=32",
}
CHANGES = ("untrained", "trained", "federated", "fine-tuned", "pruned", "quantised", "low-rank")
NETWORKS = {"limits": 4, "held_out": 3}
DECAYS = (0.0, 1e-4, 1e-3, 1e-2)
CLIENTS, ROUNDS = 4, 5
FIRST_NUMBER = {"limits": 8000, "held_out": 9000}
"""Of the seeds of these networks, which are not those of the population of the same partition.

Held-out networks from 8000 were audited before the audits last changed.
"""
DRAWS = {"limits": 0, "held_out": 2}
"""Index of the random numbers of each half; index 1 was that of the earlier held-out networks."""


def recipes(half: str) -> Iterator[Recipe]:
    """Yield the recipes of a half, each several times with other numbers."""
    random, networks = stream(0, "honest recipes", DRAWS[half]), NETWORKS[half]
    for at, ((dataset, model, steps), change) in enumerate(product(TASKS, CHANGES)):
        if (at + at // len(CHANGES) * (len(CHANGES) + 1)) % 2 != HALVES.index(half):
            continue
        for repeat in range(networks):
            optimiser = str(random.choice(("sgd", "momentum", "adam", "adamw")))
            rate = 10 ** random.uniform(-1, 0) * (0.5 if optimiser == "sgd" else 0.1)
            yield Recipe(
                half,
                FIRST_NUMBER[half] + at * networks + repeat,
                dataset,
                model,
                optimiser,
                lr=float(rate / 30 if optimiser.startswith("adam") else rate),
                decay=DECAYS[repeat],
                steps=max(1, int(steps * random.uniform(0.3, 1.5))),
                batch_size=int(random.choice([16, 32])),
                change=change,
            )


def make(recipe: Recipe, data_dir: Path) -> Model:
    """Make the network of a recipe."""
    data = load(recipe.dataset, data_dir)
    torch.manual_seed(recipe.seed)
    network = parse("model", recipe.model).build(data.shape, data.classes)
    match recipe.change:
        case "untrained":
            pass
        case "federated":
            train_together(network, data, recipe)
        case "fine-tuned":
            train(network, earlier(recipe, data, data_dir), recipe, recipe.steps // 2)
            train(network, data, recipe, recipe.steps // 4)
        case change:
            train(network, data, recipe, recipe.steps)
            if change == "pruned":
                prune_weights(network, data, recipe)
            elif change == "quantised":
                quantise_weights(network)
            elif change == "low-rank":
                factorise_weights(network)
    return with_state(blank(recipe, data), network)


def earlier(recipe: Recipe, data: Dataset, data_dir: Path) -> Dataset:
    """Return what a fine-tuned network was trained on before: noise of this shape if nothing is."""
    name = EARLIER.get(recipe.dataset, "")
    other = load(name, data_dir) if name else None
    if other and other.shape == data.shape and other.classes <= data.classes:
        return other
    random = stream(recipe.seed, "earlier samples")
    inputs = data.samples("train")
    swapped = np.take(inputs.reshape(len(inputs), -1), random.permutation(inputs[0].size), axis=1)
    labels = random.permutation(data.classes)[data.train_labels]
    return Dataset(
        spec="shuffled",
        modality="tabular" if len(data.shape) == 1 else "image",
        train_inputs=swapped.reshape(inputs.shape).astype(np.float32),
        train_labels=labels,
        test_inputs=inputs[:0],
        test_labels=labels[:0],
        class_names=data.class_names,
    )


def train_together(network: nn.Module, data: Dataset, recipe: Recipe) -> None:
    """Average the weights of clients whose samples are sorted by class, in several rounds."""
    order = np.argsort(data.train_labels, kind="stable")
    inputs = data.samples("train")
    for number in range(ROUNDS):
        start = {name: value.clone() for name, value in network.state_dict().items()}
        sums = {name: torch.zeros_like(value, dtype=torch.double) for name, value in start.items()}
        for share in np.array_split(order, CLIENTS):
            network.load_state_dict(start)
            own = Dataset(
                spec=f"client in round {number}",
                modality=data.modality,
                train_inputs=inputs[share],
                train_labels=data.train_labels[share],
                test_inputs=inputs[:0],
                test_labels=data.train_labels[:0],
                class_names=data.class_names,
            )
            train(network, own, recipe, max(1, recipe.steps // ROUNDS))
            for name, value in network.state_dict().items():
                sums[name] += value.double() / CLIENTS
        network.load_state_dict({name: value.to(start[name]) for name, value in sums.items()})
