"""Missed crafting: the client's audit on parameters that every crafting made at its defaults.

    python benchmarks/audit_crafting.py --data DIR --out table.csv

Each crafting starts from 32 networks, two architectures, four initialisations and four trainings
each: untrained, and 500 steps of Adam with weight decay 0, 1e-2 and 1e-1. The table has one row
for each crafting and network, with the names of the audits that alarm with the client's samples
and without them. Takes about 15 minutes on one core.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from audit_population import VGG, Recipe, accuracy, blank, load, train

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import Broadcast
from gleak.models.broadcast import with_state
from gleak.runtime.device import prepare_cpu

CRAFTINGS = ("mkor+hiding=naive", "mkor", "mkor+sink=4", "fishing")
TASKS = (("mnist", "lenet5"), ("cifar10+size=16", VGG))
DECAYS = (None, 0.0, 1e-2, 1e-1)
INITIALISATIONS = 4
UNUSED = 5000
"""Numbers of networks from here on are in no partition of the population."""


def start(dataset: str, model: str, decay: float | None, seed: int, data: Dataset) -> Model:
    """Make a network to craft from; its batches are not those of the population's networks."""
    recipe = Recipe(
        "limits", UNUSED + seed, dataset, model, "adam", 1e-3, decay or 0.0, 500, 32, "none"
    )
    torch.manual_seed(seed)
    network = parse("model", model).build(data.shape, data.classes)
    if decay is not None:
        train(network, data, recipe, recipe.steps)
    return with_state(blank(recipe, data), network)


def alarming(broadcast: Broadcast) -> str:
    """Names of the audits that alarm."""
    return " ".join(each.name for each in audits() if each.alarms(broadcast))


def main() -> None:
    """Train, craft, audit, write the table, print how many alarm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="image folders")
    parser.add_argument("--out", type=Path, required=True, help="the table, CSV")
    asked = parser.parse_args()
    prepare_cpu(1)
    rows = []
    for (dataset, model), decay, seed in product(TASKS, DECAYS, range(INITIALISATIONS)):
        data = load(dataset, asked.data)
        honest = start(dataset, model, decay, seed, data)
        for crafting in CRAFTINGS:
            crafted = parse("crafting", crafting).craft(honest, seed).model
            rows.append(
                {
                    "model": model,
                    "decay": decay,
                    "seed": seed,
                    "accuracy": accuracy(honest, data),
                    "crafting": crafting,
                    "with samples": alarming(Broadcast(crafted, data)),
                    "without samples": alarming(Broadcast(crafted)),
                }
            )
            pd.DataFrame(rows).to_csv(asked.out, index=False)
    table = pd.DataFrame(rows)
    for column in ("with samples", "without samples"):
        print(f"{column}: {(table[column] != '').sum()} of {len(table)} alarm")


if __name__ == "__main__":
    main()
