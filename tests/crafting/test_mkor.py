"""Networks that MKOR can craft, and errors for the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.model import Model
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor import MKOR
from gleak.studies.cell import Cell

SMALL = "vgg_small+width=8+hidden=20"


@pytest.mark.parametrize(
    ("dataset", "model", "crafting", "reason"),
    [
        ("photos", "lenet", "mkor", "needs two dense layers or more, but model lenet has one; use"),
        ("photos", "lenet128", "mkor", "biases of dense layers, and those of model lenet128 have"),
        ("photos", "resnet20", "mkor", "needs two dense layers or more, but model resnet20 has"),
        (
            "photos",
            "lenet+precode=9",
            "mkor",
            "does not support the variational .* of model lenet.precode=9; use",
        ),
        (
            "photos",
            "mlp",
            "mkor",
            "model mlp begins with a dense layer, .*; use attack cpa or aono",
        ),
        ("breast_cancer", "mlp", "mkor", "copies images, not tabular data"),
        ("photos", "vgg_small+hidden=9", "mkor", "10 classes need 20 neurons .* has 9$"),
        ("photos", "vgg_small+hidden=29", "mkor+paths=3", "10 classes need 60 neurons .* has 29$"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    dataset: str, model: str, crafting: str, reason: str
) -> None:
    levels = {"dataset": dataset, "model": model, "training": "untrained", "crafting": crafting}
    with pytest.raises(IncompatibleError, match=f"crafting {re.escape(crafting)}.*{reason}"):
        Cell.parse(levels)


@pytest.mark.parametrize("model", [SMALL, "vgg16", "lenet5", "vgg_small+norm=batch+dropout=0.5"])
def test_networks_of_convolutions_and_dense_layers_fit(model: str) -> None:
    MKOR().check(parse("dataset", "photos+size=32"), parse("model", model))


@pytest.mark.parametrize(
    ("model", "crafting", "reason"),
    [
        ("lenet+width=4", "mkor", "two dense layers or more"),
        ("resnet20+width=1", "mkor", "cannot contain Residual"),
        ("mlp+hidden=16", "mkor", "no convolutions before dense layers"),
        ("vgg_small+width=2+hidden=20", "mkor", "'features.0' has 2 channels, but 6 are needed"),
        ("vgg_small+width=8+hidden=7", "mkor", "'classifier.0' has 7 neurons, .* need 8"),
        (SMALL, "mkor+directions=2", "has 16 channels, but 24 are needed; fewer directions"),
    ],
)
def test_what_only_the_network_tells_is_refused_when_it_is_crafted(
    simulate: Callable[..., Path], model: str, crafting: str, reason: str
) -> None:
    artifact = Model.read(simulate(model=model) / "model.h5")
    fit = re.escape(f"crafting {crafting} does not fit model {artifact.model}: ")
    with pytest.raises(IncompatibleError, match=f"{fit}.*{reason}"):
        parse("crafting", crafting).craft(artifact, 0)


def test_parallel_paths_are_as_many_as_dropout_or_the_field_asks_for() -> None:
    assert MKOR().paths_per_class(0) == 1
    assert MKOR().paths_per_class(0.5) == 4
    assert MKOR(paths=2).paths_per_class(0) == MKOR(paths=2).paths_per_class(0.5) == 2


def test_crafted_parameters_are_those_of_the_model_in_kind(simulate: Callable[..., Path]) -> None:
    """And spread as widely, none of them zero."""
    honest = Model.read(simulate(model=SMALL, training="untrained") / "model.h5")
    crafted = MKOR(quiet=0).craft(honest, 0).model
    assert not len(crafted.test_accuracy)
    assert list(crafted.parameters) == list(honest.parameters)
    for name, value in crafted.parameters.items():
        before = honest.parameters[name]
        assert (value.shape, value.dtype) == (before.shape, before.dtype)
        assert not np.array_equal(value, before)
        if value.ndim > 1:
            assert 0.9 * before.std() < value.std() < 2 * before.std()
            assert (value != 0).all()
