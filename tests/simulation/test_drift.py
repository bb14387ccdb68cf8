"""Drift of local steps, beside what clients send and beside plain autograd."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.simulation import simulate as module
from gleak.simulation.victims import measure_drift, relative_error

CLIENT = "fedavg+victims=3+batch_size=4+local_steps=4+mini_batch=1"
SHUFFLED = "+order=shuffled"
LARGE, SMALL = "+local_lr=3", "+local_lr=1e-6"
SEED = 1


def lenet(fields: str = "") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parse("model", f"lenet+width=3{fields}").build((2, 8, 8), 4).eval()


@pytest.fixture
def samples() -> tuple[np.ndarray, np.ndarray]:
    """Three victims of four images."""
    inputs = np.random.default_rng(0).random((3, 4, 2, 8, 8), dtype=np.float32)
    return inputs, np.array([[0, 1, 2, 3], [3, 3, 1, 0], [2, 2, 2, 2]])


def drift(samples: tuple[np.ndarray, np.ndarray], client: str, model: str = "") -> np.ndarray:
    found = measure_drift(parse("client", client), lenet(model), *samples, SEED, 1)
    assert found is not None
    return found


def run(source: Path, folder: Path, client: str) -> None:
    paths = (source / "dataset.h5", source / "model.h5", folder)
    specs = parse("client", client), parse("defense", "none")
    module.simulate_clients(*specs, *paths, spec="a/cell", seed=SEED, device="cpu")


@pytest.mark.parametrize("fields", ["", SHUFFLED])
def test_it_is_that_of_the_steps_whose_gradient_is_sent(
    simulate: Callable[..., Path], tmp_path: Path, fields: str
) -> None:
    source = simulate()
    run(source, tmp_path, f"{CLIENT}+local_lr=0.5{fields}")
    private, update = Private.read(tmp_path / "private.h5"), Update.read(tmp_path / "update.h5")
    network = load_network(Model.read(source / "model.h5"), "model.h5")
    parameters = dict(network.named_parameters())
    assert private.drift is not None
    for victim, found in enumerate(private.drift):
        sent = [torch.from_numpy(update.update[name].decode()[victim, 0]) for name in parameters]
        inputs, labels = (torch.from_numpy(v[victim]) for v in (private.inputs, private.labels))
        loss = functional.cross_entropy(network(inputs), labels)
        whole = torch.autograd.grad(loss, list(parameters.values()))
        sent, whole = (torch.cat([value.flatten() for value in one]) for one in (sent, whole))
        assert found == pytest.approx(((sent - whole).norm() / whole.norm()).item(), rel=1e-4)


@pytest.mark.parametrize("fields", ["", SHUFFLED, "+sends=weights", "+loss=nll_raw"])
@pytest.mark.parametrize("model", ["", "+dropout=0.5", "+precode=5"])
def test_small_steps_are_one_step_on_the_whole_batch(
    samples: tuple[np.ndarray, np.ndarray], fields: str, model: str
) -> None:
    """What layers draw is no drift."""
    assert (drift(samples, CLIENT + SMALL + fields, model) < 1e-5).all()


def test_it_grows_in_proportion_to_small_learning_rates_and_on(
    samples: tuple[np.ndarray, np.ndarray],
) -> None:
    rates = [0.001, 0.01, 0.1, 1]
    drifts = np.stack([drift(samples, f"{CLIENT}+local_lr={rate}") for rate in rates])
    assert (np.diff(drifts, axis=0) > 0).all()
    np.testing.assert_allclose(drifts[1] / drifts[0], 10, rtol=0.02)


@pytest.mark.parametrize("client", ["fedsgd+batch_size=4", "fedavg+batch_size=4+local_lr=3"])
def test_clients_of_one_step_compute_nothing(
    samples: tuple[np.ndarray, np.ndarray], client: str
) -> None:
    assert measure_drift(parse("client", client), nn.Identity(), *samples, SEED, 1) is None


def test_a_gradient_of_zeros_is_as_far_as_what_is_taken_for_it() -> None:
    zero, one = {"weight": torch.zeros(2)}, {"weight": torch.ones(2)}
    assert relative_error(zero, zero) == 0
    assert relative_error(zero, one) == 1
    assert relative_error(one, zero) > 1


@pytest.mark.parametrize(("fields", "warned"), [(LARGE, True), (SMALL, False)])
def test_a_warning_says_who_drifts_how_far_and_what_to_do(
    samples: tuple[np.ndarray, np.ndarray],
    caplog: pytest.LogCaptureFixture,
    fields: str,
    warned: bool,
) -> None:
    worst = drift(samples, CLIENT + fields).max()
    messages = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(messages) == warned
    for message in messages:
        client = parse("client", CLIENT + fields)
        for part in (f"client {client}:", f"{worst:.2g} times", "smaller local_lr", "=unrolled"):
            assert part in message


@pytest.mark.parametrize("model", ["lenet+width=4", "lenet+width=4+dropout=0.5", "lenet+precode=5"])
def test_what_is_sent_does_not_depend_on_it(
    simulate: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    source, client = simulate(model=model), f"{CLIENT}{SHUFFLED}+local_lr=0.1"
    run(source, tmp_path / "measured", client)
    monkeypatch.setattr(module, "measure_drift", lambda *_: None)
    run(source, tmp_path / "not", client)
    first, second = (tmp_path / name / "update.h5" for name in ("measured", "not"))
    assert first.read_bytes() == second.read_bytes()
    drifts = [Private.read(file.with_name("private.h5")).drift for file in (first, second)]
    assert drifts[0] is not None
    assert drifts[1] is None
