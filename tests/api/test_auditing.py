"""`gleak.audit`: equal to `gleak audit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.cli.files import audit_file
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.models.broadcast import load_network

Simulate = Callable[..., Path]


@pytest.mark.parametrize("crafting", ["honest", "mkor+hiding=naive"])
@pytest.mark.parametrize("with_samples", [True, False])
def test_the_verdicts_are_those_of_the_command(
    crafting: str, with_samples: bool, simulate: Simulate
) -> None:
    folder = simulate(model="vgg_small+width=8+hidden=24", crafting=crafting)
    path = folder / ("model.h5" if crafting == "honest" else "parameters.h5")
    data = Dataset.read(folder / "dataset.h5")
    expected = audit_file(path, folder / "dataset.h5" if with_samples else None)
    samples = (data.samples("train"), data.labels("train")) if with_samples else ()
    network = load_network(Model.read(path), "model.h5")
    report = gleak.audit(network, *samples, shape=(3, 8, 8))
    assert report.records == expected.records
    assert str(report) == str(expected)
    assert bool(report.alarms) == (crafting != "honest")


def test_a_network_in_double_precision_is_audited_with_samples() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    samples = torch.rand(9, 3, 2, 2), np.arange(9) % 3
    expected = str(gleak.audit(network, *samples))
    assert str(gleak.audit(network.double(), *samples)) == expected
    assert next(network.parameters()).dtype == torch.float64


def test_the_callers_network_stays() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).train()
    network[1].bias.requires_grad_(False)
    gleak.audit(network, torch.rand(9, 3, 2, 2), np.arange(9) % 3)
    assert network.training
    assert not network[1].bias.requires_grad


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ((torch.rand(9, 3, 2, 2),), SpecError, "give samples as inputs and labels, or neither"),
        ((torch.rand(9, 3, 2, 2), [3] * 9), ArtifactError, "values from 3 to 3, .*0 to 2"),
        ((torch.rand(9, 3, 3, 3), [0] * 9), IncompatibleError, r"accept samples .*\(3, 3, 3\)"),
    ],
)
def test_samples_that_do_not_fit_are_named(samples: tuple, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        gleak.audit(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), *samples)
