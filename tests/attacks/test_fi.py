from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.run_attack import attack, observe
from gleak.core.registry import parse
from gleak.matching.problem import total_variation
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
FI = parse("attack", "fi+inversion_iterations=150+tv=0.01")
CELL = {
    "model": "lenet+width=64+activation=tanh",
    "training": "untrained",
    "client": "fedsgd+batch_size=2+victims=3",
}


def test_images_come_from_their_embeddings(make_case: Make) -> None:
    """Each beside the image whose embedding it was made from, so in the order of the grant."""
    seen, truth = make_case(FI, **CELL)
    found = FI.reconstruct(seen)
    granted = seen.granted["embeddings"].numpy()
    assert np.array_equal(found.embeddings, granted)
    same = (granted[:, :, None] == truth.embeddings[:, None]).all(3)
    assert (same.sum(2) == 1).all()
    wanted = np.take_along_axis(truth.inputs, same.argmax(2)[..., None, None, None], axis=1)
    errors = np.square(found.inputs - wanted).mean((1, 2, 3, 4))
    of_mean_colours = wanted.var((3, 4)).mean((1, 2))
    assert (errors < of_mean_colours / 2).all()
    assert (found.objective < 0.01 * found.trace_objective[:, 0]).all()
    assert found.converged.all()


def test_total_variation_makes_images_smooth(make_case: Make) -> None:
    rough, smooth = (
        torch.from_numpy(spec.reconstruct(make_case(spec, **CELL)[0]).inputs)
        for spec in (FI, parse("attack", "fi+inversion_iterations=150+tv=1"))
    )
    assert (total_variation(smooth) < 0.3 * total_variation(rough)).all()


def test_labels_are_those_of_the_batch(make_case: Make) -> None:
    seen, truth = make_case(FI, **CELL)
    assert np.array_equal(FI.reconstruct(seen).labels, np.sort(truth.labels, axis=1))


def test_of_the_update_the_classifiers_bias_alone_is_read(
    simulate: Callable[..., Path], tmp_path: Path
) -> None:
    folder = simulate(**CELL)
    paths = folder / "update.h5", folder / "model.h5"
    grants = {"embeddings": folder / "granted" / "embeddings.h5"}
    spec = parse("attack", "fi+inversion_iterations=3")
    seen = observe(*paths, grants, reads=spec.reads, seed=5, device="cpu")
    assert list(seen.update) == ["7.bias"]
    attack(spec, *paths, grants, tmp_path / "reconstruction.h5", seed=5, device="cpu")
    found = Reconstruction.read(tmp_path / "reconstruction.h5")
    assert np.array_equal(found.inputs, spec.reconstruct(seen).inputs)
    assert found.embeddings.shape == seen.granted["embeddings"].shape
