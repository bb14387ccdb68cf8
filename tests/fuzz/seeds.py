"""Small whole artifacts of every format: what the mutations begin with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Dense, Factored, Quantized, Rounded, Signs, Sparse
from gleak.artifacts.model import Knowledge, Model, Secret
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.store import Artifact, Refused
from gleak.artifacts.update import Granted, Update
from gleak.runtime.checkpointing import Checkpoint

FORMATS: dict[str, type[Artifact]] = {
    cls.format: cls
    for cls in (
        Checkpoint,
        Dataset,
        Granted,
        Knowledge,
        Model,
        Private,
        Reconstruction,
        Refused,
        Secret,
        Update,
    )
}
NAMES = np.array(["zero", "one", "two"], dtype=object)
SPREAD = np.linspace(0, 1, 48, dtype=np.float32)


def images(*leading: int) -> np.ndarray:
    """Shape (*leading, 3, 4, 4)."""
    return np.broadcast_to(SPREAD.reshape(3, 4, 4), (*leading, 3, 4, 4)).copy()


def make_update() -> Update:
    """Every encoding, for two victims and one round."""
    return Update(
        spec="digits/lenet",
        update={
            "dense": Dense(images(2, 1)),
            "large": Dense(np.resize(SPREAD, (2, 1, 30, 20))),
            "factored": Factored(
                np.ones((2, 1, 4, 2), "f4"), np.ones((2, 1, 2, 3), "f4"), np.array([4, 3])
            ),
            "sparse": Sparse(
                np.tile([0, 5, -1], (2, 1, 1)), np.ones((2, 1, 3), "f4"), np.array([2, 3])
            ),
            "quantized": Quantized(np.ones((2, 1, 5), "i1"), np.ones((2, 1), "f4")),
            "rounded": Rounded(np.ones((2, 1, 5), "i1"), np.ones((2, 1), "f4")),
            "signs": Signs(np.ones((2, 1, 5), "i1")),
        },
        broadcast={"dense": images(1)},
    )


def make_all() -> list[Artifact]:
    """One artifact of each format, with texts, packed and plain arrays, and groups."""
    labels = np.arange(4).reshape(2, 2)
    weights = {"0.weight": SPREAD.reshape(6, 8), "1.bias": SPREAD[:4]}
    told = {"input_shape": np.array([3, 4, 4]), "parameters": weights, "buffers": {}}
    return [
        Checkpoint(origin="of", state={"a.b": SPREAD, "c": np.arange(3), "d": np.ones(2, bool)}),
        Dataset(
            train_inputs=np.resize((SPREAD * 255).astype(np.uint8), (100, 3, 4, 4)),
            train_labels=np.arange(100) % 3,
            test_inputs=images(4),
            test_labels=np.arange(4) % 3,
            class_names=NAMES,
        ),
        Granted(grant="labels", values=labels),
        Knowledge(
            class_names=NAMES,
            loss_step=np.arange(2),
            losses={"loss": np.ones(2)},
            fingerprints=np.arange(6),
            **told,
        ),
        Model(model="lenet", train_loss=np.ones(2), test_accuracy=np.ones(2), **told),
        Private(seed=7, inputs=images(2, 2), labels=labels, indices=labels),
        Reconstruction(inputs=images(2, 2), labels=labels, converged=np.ones(2, bool)),
        Refused(spec="digits/lenet", seed=1, reason="it does not fit; choose another"),
        Secret(values={"bins": np.resize(SPREAD, 2000)}),
        make_update(),
    ]


def write_all(folder: Path) -> list[Path]:
    """The files of all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = make_all()
    paths = [folder / artifact.format.replace("/", "_") for artifact in artifacts]
    for artifact, path in zip(artifacts, paths, strict=True):
        artifact.write(path)
    return paths
