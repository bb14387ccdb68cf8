"""Whether a client can tell: every audit on crafted and on honest networks.

    python benchmarks/active_audits.py honest --half held_out --data DIR --out honest.csv
    python benchmarks/active_audits.py crafted --data DIR --out crafted.csv
    python benchmarks/active_audits.py report --out honest.csv crafted.csv

``honest`` audits the networks of `honest_recipes`. ``crafted`` crafts networks, untrained and
trained, at the default of every crafting and at several degrees of hiding; for imprint, trap
weights and QBI it runs their attack on batches of 64 images too, and for Loki on sums of 10 clients
with 16, so that each degree has the share of samples recovered (at most 0.03 root mean square
error) beside the alarms. ``--craftings`` makes the networks of some only. ``report`` prints
false alarms, true alarms (at the limits, and of each audit at 1% false alarms, for the defaults)
and the least conspicuous degree that recovers half, with exact 95% intervals. Values are in limits:
above 1 is an alarm.

``--minutes`` ends a run early. Networks are taken in an order in which each recipe comes once
before any comes twice, and the table is written after every network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import honest_recipes
import numpy as np
import pandas as pd
import torch
from audit_population import VGG, Recipe, blank, clopper_pearson, load, measure, train

import gleak
from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model, Secret
from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.base import Broadcast
from gleak.models.broadcast import load_network, with_state
from gleak.runtime.device import prepare_cpu
from gleak.runtime.seeding import stream

NAMES = [audit.name for audit in audits()]
DATASET = "cifar10+size=32"
PLANTED, FC2 = "planted+model=lenet~activation=relu", "fc2"
KERNELS, BINS = "planted_kernels+model=lenet~activation=relu", "+bins="
DEGREES = {
    "imprint": [(PLANTED, f"+noise={noise}") for noise in (0, 0.3, 1, 1.5, 2, 2.5, 3)],
    "trap_weights": [(PLANTED, ""), *((FC2, f"+factor={each}") for each in (0.9, 0.95, 0.99))],
    "qbi": [(PLANTED, ""), *((FC2, f"+batch_size={size}") for size in (4, 16, 64, 256))],
    "loki": [
        (KERNELS, ""),
        *((f"{KERNELS}{BINS}{bins}", "+noise=0.0001") for bins in (16, 24, 32, 64)),
        (f"{KERNELS}{BINS}24", "+noise=0.01"),
    ],
    "mkor": [(VGG, ""), (VGG, "+hiding=naive"), (VGG, "+sink=4")],
    "fishing": [(VGG, ""), (FC2, ""), (FC2, "+bias=10")],
}
"""Architectures and fields of each crafting."""
CLOSED_FORM = ("imprint", "trap_weights", "qbi", "loki")
CLIENTS, SHARE = 10, 16
"""Of a sum, where each client is sent parameters of its own, and samples of each."""
STEPS, BATCH, CLOSE, HALF, FALSE_ALARMS = 100, 64, 0.03, 0.5, 0.01
SEARCHED, REPORTED = "searched", "reported"
"""Networks on which the least conspicuous degree is chosen, and others on which it is judged."""


def audit(model: Model, data: Dataset) -> dict[str, float]:
    """Measure every audit with the client's samples."""
    broadcast = Broadcast(model, data)
    return {audit.name: measure(audit, broadcast) for audit in audits()}


def honest_rows(half: str, data_dir: Path, kept: Path | None) -> Iterator[dict[str, object]]:
    """Yield the row of each honest network of a half; kept networks are read."""
    networks = honest_recipes.NETWORKS[half]
    order = sorted(honest_recipes.recipes(half), key=lambda each: each.number % networks)
    for recipe in order:
        file = kept and kept / recipe.file
        if file and file.exists():
            model = Model.read(file)
        else:
            model = honest_recipes.make(recipe, data_dir)
            if file:
                model.write(file)
        yield {**asdict(recipe), **audit(model, load(recipe.dataset, data_dir))}


def crafted_rows(
    craftings: list[str], networks: int, data_dir: Path
) -> Iterator[dict[str, object]]:
    """Yield the row of each crafted network, untrained and trained in turn."""
    data = load(DATASET, data_dir)
    chosen = {name: DEGREES[name] for name in craftings}
    for seed, (crafting, degrees) in product(range(2 * networks), chosen.items()):
        for model, fields in degrees:
            recipe = Recipe("limits", 7000 + seed, DATASET, model, "adam", 1e-3, 0.0, STEPS, 32, "")
            torch.manual_seed(seed)
            network = parse("model", model).build(data.shape, data.classes)
            if seed // 2 % 2:
                train(network, data, recipe, STEPS)
            server = parse("crafting", f"{crafting}{fields}")
            crafted = server.craft(with_state(blank(recipe, data), network), seed)
            row: dict[str, object] = {
                "crafting": crafting,
                "model": model,
                "spec": str(server),
                "seed": seed,
                "trained": bool(seed // 2 % 2),
                "purpose": (SEARCHED, REPORTED)[seed % 2],
            }
            if crafting in CLOSED_FORM:
                secret = Secret(spec=str(server), seed=seed, values=dict(crafted.secret))
                row["recovered"] = recovered(crafting, crafted.model, secret, data, seed)
            yield {**row, **audit(crafted.model, data)}


def recovered(attack: str, model: Model, secret: Secret, data: Dataset, seed: int) -> float:
    """Return the share that a closed form recovers of a batch, or of a sum, of training images."""
    own = model.client_parameters or {}
    clients, size = (CLIENTS, CLIENTS * SHARE) if own else (1, BATCH)
    chosen = stream(seed, "attacked batch").permutation(len(data.train_labels))[:size]
    inputs = torch.from_numpy(data.samples("train", chosen))
    labels = torch.from_numpy(data.train_labels[chosen]).long()
    updates = []
    for number, (samples, classes) in enumerate(
        zip(inputs.chunk(clients), labels.chunk(clients), strict=True)
    ):
        theirs = {name: values[number] for name, values in own.items()}
        sent = replace(model, parameters={**model.parameters, **theirs})
        updates.append(gleak.compute_update(load_network(sent, "a client"), samples, classes))
    mean = {name: sum(each[name] for each in updates) / clients for name in updates[0]}
    network = load_network(model, "the network")
    known = {"batch_size": size, "clients": clients, "secret": secret}
    found = gleak.attack(attack, network, mean, shape=data.shape, **known).inputs
    errors = torch.cdist(inputs.flatten(1).double(), found.flatten(1).double())
    limit = CLOSE * float(np.sqrt(inputs[0].numel()))
    return float((errors.min(dim=1).values <= limit).double().mean())


def share_text(found: int, count: int) -> str:
    """Return a count and the exact 95% interval of its share."""
    low, high = clopper_pearson(found, count)
    return f"{found} of {count} ({low:.1%} to {high:.1%})"


def report(honest: pd.DataFrame, crafted: pd.DataFrame) -> str:
    """Summarise false and true alarms, and the arms race."""
    lines = []
    for half, rows in honest.groupby("partition"):
        alarms = (rows[NAMES] > 1).any(axis=1)
        recipes = len(rows.groupby(["dataset", "model", "change"]))
        lines.append(f"honest, {half}: {share_text(int(alarms.sum()), len(rows))} of {recipes}")
        lines += [f"    {name} {value:.3g}" for name, value in rows[NAMES].max().dropna().items()]
    reported = crafted[crafted["purpose"] == REPORTED]
    held_out = honest[honest["partition"] == "held_out"]
    for key, rows in reported.groupby(["crafting", "model", "spec"]):
        values = rows[NAMES]
        found = int((values > 1).any(axis=1).sum())
        apart = int((values.drop(columns="audit_size") > 1).any(axis=1).sum())
        names = [
            f"{name.removeprefix('audit_')} {count}"
            for name, count in (values > 1).sum().items()
            if count
        ]
        share = f", recovered {rows['recovered'].mean():.2f}" if "recovered" in rows else ""
        lines.append(
            f"{' '.join(key)}: {share_text(found, len(rows))}, without size {apart}{share}; "
            f"{', '.join(names)}"
        )
    defaults = crafted[crafted["spec"] == crafted["crafting"]]
    for key, rows in defaults.groupby(["crafting", "model"]):
        lines.append(f"{' '.join(key)} at its default, against held-out networks:")
        found = share_text(int((rows[NAMES] > 1).any(axis=1).sum()), len(rows))
        lines += [f"    any alarm: {found}", *detection(held_out, rows)]
    return "\n".join([*lines, *hidden(crafted)])


def detection(honest: pd.DataFrame, crafted: pd.DataFrame) -> Iterator[str]:
    """Yield each audit's area under the ROC curve and true alarms at 1% false ones.

    Of the honest networks at most 1% are above the threshold. An audit that says nothing of a
    network counts as 0; audits that are above the threshold for no crafted network are left out.
    """
    from sklearn.metrics import roc_auc_score

    truth = np.repeat([0, 1], [len(honest), len(crafted)])
    both = pd.concat([honest[NAMES], crafted[NAMES]]).fillna(0).replace(np.inf, 1e9)
    for name in NAMES:
        values, others = both[name].to_numpy()[truth == 1], both[name].to_numpy()[truth == 0]
        threshold = np.sort(others)[-1 - int(FALSE_ALARMS * len(others))]
        if found := int((values > threshold).sum()):
            area = roc_auc_score(truth, both[name])
            alarms = int((values > 1).sum())
            yield (
                f"    {name.removeprefix('audit_')}: area {area:.3f}, at 1% false alarms "
                f"(above {threshold:.2g}) {share_text(found, len(values))}, at the limit "
                f"{alarms}, from {values.min():.2g} to {values.max():.2g}"
            )


def hidden(crafted: pd.DataFrame) -> Iterator[str]:
    """Yield the degree of each crafting that alarms least where it recovers half of the samples."""
    chosen_from = crafted[crafted["crafting"].isin(CLOSED_FORM)].copy()
    others = [name for name in NAMES if name != "audit_size"]
    chosen_from["worst"] = chosen_from[others].max(axis=1)
    parts = chosen_from["model"].str.partition(BINS)
    chosen_from["spec"] += (parts[1] + parts[2]).map(lambda bins: bins and f" on{bins}")
    chosen_from["model"] = parts[0]
    for (crafting, model), rows in chosen_from.groupby(["crafting", "model"]):
        search = rows[rows["purpose"] == SEARCHED].groupby("spec")[["recovered", "worst"]].mean()
        search = search[search["recovered"] >= HALF]
        if search.empty:
            yield f"{crafting} {model}: no degree recovers half"
            continue
        spec = search["worst"].idxmin()
        judged = rows[(rows["purpose"] == REPORTED) & (rows["spec"] == spec)]
        alarms = share_text(int((judged["worst"] > 1).sum()), len(judged))
        yield (
            f"{crafting} {model}: least conspicuous {spec}, recovered "
            f"{judged['recovered'].mean():.2f}, worst value without size "
            f"{judged['worst'].mean():.2g}, alarms without size {alarms}"
        )


def main() -> None:
    """Measure one part, or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("honest", "crafted", "report"))
    parser.add_argument("--data", type=Path, help="image folders")
    parser.add_argument("--out", type=Path, nargs="+", required=True, help="tables, CSV")
    parser.add_argument("--half", choices=honest_recipes.HALVES, default="held_out")
    parser.add_argument("--keep", type=Path, help="folder to keep honest networks in")
    parser.add_argument("--networks", type=int, default=8, help="crafted, for search and report")
    parser.add_argument("--craftings", nargs="+", choices=DEGREES, default=list(DEGREES))
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after this time")
    asked = parser.parse_args()
    if asked.part == "report":
        tables = [pd.read_csv(file) for file in asked.out]
        honest = pd.concat([table for table in tables if "partition" in table])
        print(report(honest, pd.concat([table for table in tables if "crafting" in table])))
        return
    prepare_cpu(1)
    end, rows = time.monotonic() + 60 * asked.minutes, []
    makes = {
        "honest": lambda: honest_rows(asked.half, asked.data, asked.keep),
        "crafted": lambda: crafted_rows(asked.craftings, asked.networks, asked.data),
    }
    for row in makes[asked.part]():
        rows.append(row)
        pd.DataFrame(rows).to_csv(asked.out[0], index=False)
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    main()
