"""False alarms of the client's audit on a population of honest networks.

    python benchmarks/audit_population.py --data DIR --out table.csv

Small networks are trained with and without weight decay, then pruned, fine-tuned, quantised or
factorised, and audited with the client's samples and without them. All partitions are drawn at
random from the same recipes. The limits of the audits were set on ``limits``; after each of the
six checks on others the audits were changed; ``held_out`` was not looked at before they were
final. On one core a partition takes about ten minutes (``--only held_out``).

The table has one row per network: its recipe, its test accuracy, and for every audit the statistic
of the worst layer in limits, once with samples (``audit_bias``) and once without (``audit_bias
without samples``); an audit that says nothing leaves its field empty.

    python benchmarks/audit_population.py --sizes

counts the alarms of ``audit_size``, which depends on nothing but shapes, on perceptrons of usual
widths, and on the same perceptrons and on convolutional networks behind two dense layers of a
server, one that reads the sample and one that gives it back.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise, product
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import beta
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import AuditSpec, Broadcast
from gleak.metrics.audits.dense_layers import AuditSize
from gleak.metrics.base import MetricUnavailable
from gleak.models.broadcast import load_network, with_state
from gleak.runtime.device import prepare_cpu
from gleak.runtime.seeding import stream

COUNTS = {
    "limits": 120,
    "first_check": 112,
    "second_check": 128,
    "third_check": 128,
    "fourth_check": 128,
    "fifth_check": 128,
    "sixth_check": 128,
    "held_out": 128,
}
DECAYS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
OPTIMISERS = ("sgd", "momentum", "adam", "adamw")
CHANGES = ("none", "pruned", "fine-tuned", "quantised", "factorised")
SHARES = (0.6, 0.1, 0.1, 0.1, 0.1)
WITH, WITHOUT = "", " without samples"
VGG = "vgg_small+width=16+hidden=128"
TASKS = [
    ("mnist", "fc2", 3000),
    ("mnist", "mlp", 3000),
    ("digits+size=16", "mlp+activation=relu", 3000),
    ("mnist", "lenet5", 500),
    ("digits+size=28", "lenet5+activation=relu", 500),
    ("mnist+size=16", "lenet+activation=relu", 500),
    ("cifar10+size=16", "fc2", 2000),
    ("cifar10+size=16", "lenet", 800),
    ("cifar10+size=16", VGG, 400),
    ("mnist+size=16", VGG, 400),
    ("cifar10+size=16", f"{VGG}+norm=batch", 400),
    ("photos+size=16", f"{VGG}+norm=batch", 400),
    ("photos+size=16", "fc2", 2000),
    ("adult", "mlp+activation=relu", 3000),
    ("breast_cancer", "mlp", 3000),
    ("cifar10+size=16", "resnet20", 100),
]
"""Dataset, model and steps of training."""
WIDTHS = (32, 64, 100, 128, 200, 256, 300, 400, 500, 512, 800, 1000, 1024, 2000, 2048, 4096)
IMAGE_SHAPES = ((1, 8, 8), (1, 16, 16), (1, 28, 28), (3, 8, 8), (3, 32, 32), (3, 64, 64))
KERNELS = [(64, 3, 3, 3), (64, 64, 3, 3)]
"""Widths of perceptrons, samples and a convolutional network for the audit of sizes."""
EARLIER = {
    "mnist": "digits+size=28",
    "mnist+size=16": "digits",
    "digits+size=16": "mnist+size=16",
    "digits+size=28": "mnist",
    "cifar10+size=16": "photos+size=16",
    "photos+size=16": "cifar10+size=16",
}
"""What a fine-tuned network was trained on before; tables have no such dataset."""


@dataclass(frozen=True)
class Recipe:
    """How one network comes about."""

    partition: str
    number: int
    dataset: str
    model: str
    optimiser: str
    lr: float
    decay: float
    steps: int
    batch_size: int
    change: str

    @property
    def file(self) -> str:
        """Its name among the kept networks."""
        return f"{self.partition}-{self.number}.h5"

    @property
    def seed(self) -> int:
        """Of its initialisation and of its batches."""
        return list(COUNTS).index(self.partition) * 10_000 + self.number


def recipes(partition: str) -> Iterator[Recipe]:
    """Tasks and decays in turn, everything else at random."""
    random = stream(0, "audit population", list(COUNTS).index(partition))
    for number in range(COUNTS[partition]):
        dataset, model, steps = TASKS[number % len(TASKS)]
        optimiser = str(random.choice(OPTIMISERS))
        lr = 10 ** random.uniform(-1, 0) * (0.5 if optimiser == "sgd" else 0.1)
        change = str(random.choice(CHANGES, p=SHARES))
        yield Recipe(
            partition,
            number,
            dataset,
            model,
            optimiser,
            lr=float(lr / 30 if optimiser.startswith("adam") else lr),
            decay=DECAYS[(number // len(TASKS) + number) % len(DECAYS)],
            steps=int(steps * random.uniform(0.3, 1.5)),
            batch_size=int(random.choice([16, 32])),
            change="none" if change == "fine-tuned" and dataset not in EARLIER else change,
        )


def optimiser_of(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """Weight decay is on all parameters; AdamW's, which is not in the gradient, five times it."""
    parameters, lr, decay = network.parameters(), recipe.lr, recipe.decay
    match recipe.optimiser:
        case "adam":
            return torch.optim.Adam(parameters, lr, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr, weight_decay=5 * decay)
        case name:
            momentum = 0.9 if name == "momentum" else 0.0
            return torch.optim.SGD(parameters, lr, momentum, weight_decay=decay)


def train(network: nn.Module, data: Dataset, recipe: Recipe, steps: int) -> None:
    """Minimise cross-entropy on batches drawn at random, in place, gradients clipped to norm 5."""
    random, optimiser = stream(recipe.seed, "batches"), optimiser_of(recipe, network)
    inputs, labels = torch.from_numpy(data.samples("train")), torch.from_numpy(data.train_labels)
    network.train()
    for _ in range(steps):
        batch = torch.from_numpy(random.integers(len(labels), size=recipe.batch_size))
        optimiser.zero_grad()
        functional.cross_entropy(network(inputs[batch]), labels[batch].long()).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()


def matrices(network: nn.Module) -> list[nn.Module]:
    """Dense layers and convolutions."""
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


def prune_weights(network: nn.Module, data: Dataset, recipe: Recipe) -> None:
    """Remove the smallest 80% of all weights, then train what is left a little longer."""
    pairs = [(layer, "weight") for layer in matrices(network)]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.8)
    train(network, data, recipe, recipe.steps // 5)
    for layer, name in pairs:
        prune.remove(layer, name)


@torch.no_grad()
def quantise_weights(network: nn.Module) -> None:
    """Round every tensor to 255 levels between minus and plus its largest magnitude."""
    for values in network.parameters():
        step = values.abs().max() / 127
        if step:
            values.copy_((values / step).round() * step)


@torch.no_grad()
def factorise_weights(network: nn.Module) -> None:
    """Keep the largest half of every matrix's singular values."""
    for layer in matrices(network):
        matrix = layer.weight.flatten(1)
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        values[(len(values) + 1) // 2 :] = 0
        layer.weight.copy_((left * values @ right).view_as(layer.weight))


def make(recipe: Recipe, data_dir: Path) -> Model:
    """The network of a recipe."""
    data = load(recipe.dataset, data_dir)
    torch.manual_seed(recipe.seed)
    network = parse("model", recipe.model).build(data.shape, data.classes)
    if recipe.change == "fine-tuned":
        train(network, load(EARLIER[recipe.dataset], data_dir), recipe, recipe.steps // 2)
    train(network, data, recipe, recipe.steps)
    match recipe.change:
        case "pruned":
            prune_weights(network, data, recipe)
        case "quantised":
            quantise_weights(network)
        case "factorised":
            factorise_weights(network)
    return with_state(blank(recipe, data), network)


def blank(recipe: Recipe, data: Dataset) -> Model:
    """The artifact without parameters."""
    return Model(
        model=str(parse("model", recipe.model)),
        modality=data.modality,
        classes=data.classes,
        input_shape=np.array(data.shape),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )


@cache
def load(name: str, data_dir: Path) -> Dataset:
    """A dataset by its spec."""
    data: Dataset = parse("dataset", name).load(data_dir, 0)
    return data


def audit(model: Model, data: Dataset) -> dict[str, float]:
    """Every audit's value with samples and without; NaN where it says nothing."""
    broadcasts = {WITH: Broadcast(model, data), WITHOUT: Broadcast(model)}
    return {
        each.name + suffix: measure(each, broadcast)
        for suffix, broadcast in broadcasts.items()
        for each in audits()
    }


def measure(each: AuditSpec, broadcast: Broadcast) -> float:
    """The value of one audit, NaN where it says nothing."""
    try:
        return each.measure(broadcast)
    except MetricUnavailable:
        return float("nan")


def accuracy(model: Model, data: Dataset) -> float:
    """On the test split."""
    with torch.no_grad():
        logits = load_network(model, "the network")(torch.from_numpy(data.samples("test")))
    return float((logits.argmax(1).numpy() == data.test_labels).mean())


def examine(recipe: Recipe, data_dir: Path, kept: Path | None) -> dict[str, object]:
    """The row of one network, which is read where it was kept and kept where it was not."""
    data, file = load(recipe.dataset, data_dir), kept and kept / recipe.file
    if file and file.exists():
        model = Model.read(file)
    else:
        model = make(recipe, data_dir)
        if file:
            model.write(file)
    return {**asdict(recipe), "accuracy": accuracy(model, data), **audit(model, data)}


def summarise(table: pd.DataFrame) -> str:
    """Networks that alarm in each partition, with the exact 95% interval of their share."""
    lines = []
    for partition, rows in table.groupby("partition", sort=False):
        for suffix in (WITH, WITHOUT):
            values = rows[[each.name + suffix for each in audits()]]
            found, count = int((values > 1).any(axis=1).sum()), len(values)
            low, high = clopper_pearson(found, count)
            lines.append(
                f"{partition}{suffix}: {found} of {count} networks alarm, 95% interval "
                f"{low:.1%} to {high:.1%}; largest values, in limits:"
            )
            lines += [f"    {name} {value:.2g}" for name, value in values.max().dropna().items()]
    return "\n".join(lines)


def clopper_pearson(found: int, count: int) -> tuple[float, float]:
    """The exact 95% interval of a share."""
    low = beta.ppf(0.025, found, count - found + 1) if found else 0.0
    high = beta.ppf(0.975, found + 1, count - found) if found < count else 1.0
    return float(low), float(high)


def size_alarms() -> str:
    """Alarms of `audit_size` on honest shapes, and on those that a server extended."""
    lines = []
    for shape in IMAGE_SHAPES:
        values = prod(shape)
        networks = {
            "perceptrons": [
                dense(values, *each, 10) for n in (1, 2) for each in product(WIDTHS, repeat=n)
            ],
            "convolutional networks": [[*KERNELS, *dense(1024, width, 10)] for width in WIDTHS],
        }
        for name, honest in networks.items():
            lines.append(f"{name} for {shape}: {alarming(honest, shape)}")
            for order, widths in {
                "fewer": [width for width in WIDTHS if width < values],
                "more": [width for width in WIDTHS if width > values],
            }.items():
                extended = [dense(values, read, values) + one for read in widths for one in honest]
                found = alarming(extended, shape)
                lines.append(f"    behind {order} neurons than values, and as many: {found}")
    return "\n".join(lines)


def dense(*widths: int) -> list[tuple[int, ...]]:
    """The shapes of dense layers, one after the other."""
    return [(outputs, inputs) for inputs, outputs in pairwise(widths)]


def alarming(networks: list[list[tuple[int, ...]]], shape: tuple[int, ...]) -> str:
    """How many of networks, given by the shapes of their layers, alarm."""
    blank = Model(
        model="custom",
        classes=10,
        input_shape=np.array(shape),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )
    one = np.ones((), np.float32)
    found = 0
    for network in networks:
        weights = {f"{at}.weight": np.broadcast_to(one, each) for at, each in enumerate(network)}
        found += AuditSize().alarms(Broadcast(replace(blank, parameters=weights)))
    return f"{found} of {len(networks)} alarm"


def main() -> None:
    """Train, audit, write the table, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--data", type=Path, help="image folders and tables")
    wanted.add_argument("--sizes", action="store_true", help="only the audit of sizes")
    parser.add_argument("--out", type=Path, default="table.csv", help="the table, CSV")
    parser.add_argument(
        "--keep", type=Path, help="folder to keep the networks in, for the next run"
    )
    parser.add_argument("--only", choices=COUNTS, help="one partition alone")
    asked = parser.parse_args()
    if asked.sizes:
        print(size_alarms())
        return
    prepare_cpu(1)
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    rows = []
    for partition in [asked.only] if asked.only else COUNTS:
        for recipe in recipes(partition):
            rows.append(examine(recipe, asked.data, asked.keep))
            pd.DataFrame(rows).to_csv(asked.out, index=False)
    print(summarise(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
