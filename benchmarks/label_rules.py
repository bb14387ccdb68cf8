"""Share of labels that each rule finds; prints the tables of docs/results/labels.md.

    python benchmarks/label_rules.py --data DIR [--victims 100]

DIR holds the image folders mnist, cifar10 and cifar100 (`gleak describe dataset mnist`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.attacks.matching.label_inference import inferred_labels
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.layer_search import Classifier, features_before, find_classifier
from gleak.runtime.device import prepare_cpu
from gleak.simulation.simulate import draw_batches
from gleak.training.base import initialise
from gleak.training.central import Training

SEED = 0
RULES = ("sign", "rows", "argmin", "counts")
MODERATE, TRAINED = 0.6, 0.9
SIZES = (1, 4, 16, 64)
NETWORKS = (
    ("mnist", "fc2", 1e-3),
    ("mnist", "lenet5", 3e-3),
    ("cifar10", "fc2", 1e-3),
    ("cifar10", "lenet", 3e-3),
    ("cifar10", "resnet20", 2e-3),
    ("cifar100", "fc2", 1e-3),
    ("cifar100", "vgg_small+width=16+hidden=128+norm=batch", 1e-3),
)
"""Dataset, model and learning rate of Adam."""


@dataclass(frozen=True)
class State:
    """A network at some point of its training.

    Args:
        name: of the row.
        network: in evaluation mode.
        dataset: it learns.
    """

    name: str
    network: nn.Module
    dataset: Dataset

    @property
    def classes(self) -> int:
        return len(self.dataset.class_names)

    def classifier(self) -> Classifier:
        return find_classifier(self.network, tuple(self.dataset.shape), self.classes)


@torch.no_grad()
def through(function: Callable[[Tensor], Tensor], dataset: Dataset, split: str) -> Tensor:
    """What a function makes of a whole split, 256 samples at a time."""
    positions = np.arange(len(dataset.labels(split)))
    parts = np.array_split(positions, max(1, len(positions) // 256))
    return torch.cat([function(torch.from_numpy(dataset.samples(split, part))) for part in parts])


def accuracy(network: nn.Module, dataset: Dataset, split: str) -> float:
    network.eval()
    labels = torch.from_numpy(dataset.labels(split))
    return float((through(network, dataset, split).argmax(1) == labels).double().mean())


def states(name: str, dataset: Dataset, model: str, lr: float) -> Iterator[State]:
    """A network before training, at 60% and at 90% accuracy on its train split."""
    network = parse("model", model).build(tuple(dataset.shape), len(dataset.class_names))
    initialise(network, "default", 0.5, SEED)
    yield State(f"{name} {model}, untrained", network.eval(), dataset)
    training = Training(network, dataset, lr, 64, SEED)
    for degree, wanted in (("moderately", MODERATE), ("well", TRAINED)):
        while (reached := accuracy(network, dataset, "train")) < wanted:
            while not training.step():
                pass
        test = accuracy(network, dataset, "test")
        accuracies = f"{reached:.0%} / {test:.0%}"
        yield State(f"{name} {model}, {degree} trained ({accuracies})", network.eval(), dataset)


def observation(state: State, client: ClientSpec) -> Observation:
    """What an attacker has, but for the updates."""
    return Observation(
        update={},
        sent={},
        model=state.network,
        modality="image",
        input_shape=tuple(state.dataset.shape),
        classes=state.classes,
        granted={},
        victim_ids=np.arange(client.victims),
        seed=SEED,
        protocol=client.protocol,
    )


def head_gradients(state: State, client: ClientSpec, features: Tensor, truth: Tensor) -> dict:
    """Gradients of the classifier alone, whose inputs do not depend on the step; (V, *shape)."""
    classifier = state.classifier()
    sent = [client.compute(classifier.layer, *each) for each in zip(features, truth, strict=True)]
    return {
        f"{classifier.name}.{name}": torch.cat([each[name] for each in sent]).detach()
        for name in sent[0]
    }


def whole_gradients(state: State, client: ClientSpec, inputs: Tensor, truth: Tensor) -> dict:
    """Mean gradients of clients that train all layers; Shape (V, *shape)."""
    sent = [client.compute(state.network, *each) for each in zip(inputs, truth, strict=True)]
    return {name: torch.cat([each[name] for each in sent]).detach() for name in sent[0]}


def shares(found: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Of each victim's labels the share that was found, counted with repeats; Shape (V)."""
    counts = [functional.one_hot(labels, classes).sum(1) for labels in (found, truth)]
    return torch.minimum(*counts).sum(1) / truth.shape[1]


def cell(values: Tensor) -> str:
    """Mean and half the width of its 95% interval over victims."""
    half = 1.96 * float(values.double().std()) / len(values) ** 0.5
    return f"{float(values.double().mean()):.3f} ± {half:.3f}"


def row(state: State, client: ClientSpec, gradients: dict[str, Tensor], truth: Tensor) -> str:
    """Shares of the rules, and of as many labels of each class as of any other."""
    seen = observation(state, client)
    even = (torch.arange(truth.shape[1]) % state.classes).expand_as(truth)
    cells = [cell(shares(even, truth, state.classes))]
    for rule in RULES:
        try:
            found = inferred_labels(rule, seen, gradients)
        except IncompatibleError:
            cells.append("–")
        else:
            cells.append(cell(shares(found, truth, state.classes)))
    return " | ".join(cells)


def report(state: State, victims: int) -> None:
    """One row for each kind of batch, and of local steps."""
    for split in ("train", "test"):
        labels = state.dataset.labels(split)
        entering = features_before(state.network, state.classifier().name)
        features = through(entering, state.dataset, split)
        for size in SIZES:
            for kind in ("unique", "random") if size > 1 else ("random",):
                if kind == "unique" and size > state.classes:
                    continue
                client = parse(
                    "client", f"fedsgd+victims={victims}+batch_size={size}+labels={kind}"
                )
                chosen = torch.from_numpy(draw_batches(client, labels, SEED))
                truth = torch.from_numpy(labels)[chosen]
                found = head_gradients(state, client, features[chosen], truth)
                values = row(state, client, found, truth)
                print(f"| {state.name} | {split} | {size}, {kind} | {values} |", flush=True)


def report_local_steps(state: State, victims: int) -> None:
    """The same of three local steps over a whole batch of 16."""
    name = f"fedavg+victims={victims}+batch_size=16+local_steps=3+local_lr=0.1"
    client = parse("client", name)
    labels = state.dataset.labels("train")
    chosen = draw_batches(client, labels, SEED)
    truth = torch.from_numpy(labels[chosen]).long()
    inputs = torch.from_numpy(state.dataset.samples("train", chosen))
    found = whole_gradients(state, client, inputs, truth)
    values = row(state, client, found, truth)
    print(f"| {state.name} | train | 16, random, 3 local steps | {values} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the image folders")
    parser.add_argument("--victims", type=int, default=100, help="batches of each kind")
    options = parser.parse_args()
    prepare_cpu(1)
    print(f"| network | split | batch | even | {' | '.join(RULES)} |")
    print("|:---" * (4 + len(RULES)) + "|")
    for dataset, model, lr in NETWORKS:
        loaded = parse("dataset", dataset).load(options.data, SEED)
        for state in states(dataset, loaded, model, lr):
            report(state, options.victims)
            report_local_steps(state, options.victims)


if __name__ == "__main__":
    main()
