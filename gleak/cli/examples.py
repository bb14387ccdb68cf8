"""An example of a path for every registered class, for ``gleak describe``."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import Spec
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import LEVELS, Cell, Paths

RESULTS = Path("results")
CANDIDATES = {
    "dataset": ("digits", "photos", "breast_cancer"),
    "model": ("lenet", "fc2", "lenet5", "vgg_small", "mlp", "vgg16", "resnet20"),
    "training": ("untrained", "central", "captured"),
    "crafting": ("honest", "mkor", "fishing"),
    "client": (
        "fedsgd",
        "fedsgd+batch_size=4",
        "fedavg+local_steps=5",
        "fedsgd+loss=nll_raw",
        "epochs",
        "captured",
    ),
    "defense": ("none",),
}
"""Specs of the levels before that of an example, the preferred first."""
FILES = {
    "dataset": "dataset.h5",
    "model": "untrained/model.h5",
    "training": "model.h5",
    "crafting": "scores.csv",
    "client": "none/update.h5",
    "defense": "update.h5",
    "attack": "scores.csv",
}


def example_of(spec: Spec) -> str:
    """Return the path of a file that uses a spec; empty if its kind is not part of paths."""
    if spec.kind == "knowledge":
        return _knowledge(str(spec))
    if spec.kind not in LEVELS:
        return ""
    levels = LEVELS[: LEVELS.index(spec.kind)]
    for texts in product(*(CANDIDATES[level] for level in levels)):
        try:
            cell = Cell.parse({**dict(zip(levels, texts, strict=True)), spec.kind: str(spec)})
        except (SpecError, IncompatibleError):
            continue
        return str(Paths(RESULTS).folder(cell) / FILES[spec.kind])
    return ""


def _knowledge(text: str) -> str:
    """Return the path of a training on the first dataset that it accepts."""
    for dataset in CANDIDATES["dataset"]:
        try:
            return str(Paths(RESULTS).knowledge(Pretraining.parse(dataset, text)))
        except (SpecError, IncompatibleError):
            continue
    return ""
