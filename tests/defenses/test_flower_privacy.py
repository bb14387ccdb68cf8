"""Flower's clipping and noise by what they must do; `tests/captures/frameworks` has Flower's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import gleak
from gleak.artifacts.update import Update
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse

SHAPES = {"weight": (300, 50), "bias": (40,)}


def update(size: float = 1.0, rounds: int = 2) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        name: size * torch.randn(rounds, *shape, generator=random) for name, shape in SHAPES.items()
    }


def sent(spec: str, values: dict[str, Tensor], seed: int = 0) -> np.ndarray:
    """All values of each round; Shape (R, M)."""
    protected = parse("defense", spec).protect(values, torch.Generator().manual_seed(seed), {})
    return np.concatenate([one.decode()[0].reshape(2, -1) for one in protected.values()], 1)


def flat(values: dict[str, Tensor]) -> np.ndarray:
    return np.concatenate([value.numpy().reshape(len(value), -1) for value in values.values()], 1)


@pytest.mark.parametrize("size", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize("norm", [0.1, 3.0])
def test_clipping_is_that_of_dp_without_noise(norm: float, size: float) -> None:
    expected = sent(f"dp+sigma=0+norm={norm}+scaling=clip", update(size))
    for spec in (
        f"flower_clipping+norm={norm}",
        f"flower_local_dp+clipping_norm={norm}+sensitivity=0",
        f"flower_central_dp+norm={norm}",
    ):
        np.testing.assert_allclose(sent(spec, update(size)), expected, rtol=1e-6)


def test_parameters_without_axes_are_left_as_they_are() -> None:
    values = {"weight": torch.full((1, 4), 3.0), "scale": torch.full((1,), 8.0)}
    for spec in ("flower_clipping", "flower_local_dp"):
        found = parse("defense", spec).protect(values, torch.Generator(), {})
        assert found["scale"].decode() == 8
    clipped = parse("defense", "flower_clipping").protect(values, torch.Generator(), {})
    np.testing.assert_allclose(clipped["weight"].decode(), 3 / 10, rtol=1e-6)


def test_an_update_of_zeros_is_not_scaled() -> None:
    assert not sent("flower_clipping", update(0.0)).any()


def test_local_noise_is_that_of_the_stated_budget() -> None:
    spec = "flower_local_dp+clipping_norm=0.5+sensitivity=0.1+epsilon=4+delta=1e-3"
    noise = sent(spec, update()) - sent("flower_clipping+norm=0.5", update())
    expected = 0.1 * math.sqrt(2 * math.log(1.25 / 1e-3)) / 4
    assert noise.std() == pytest.approx(expected, rel=5 / math.sqrt(2 * noise.size))
    assert parse("defense", spec).stated_epsilon(1) == 4


def observed(simulate: Callable[..., Path], defense: str, victims: int = 1) -> np.ndarray:
    """All values that are observed; Shape (V, M)."""
    client = f"fedsgd+batch_size=4+victims={victims}"
    sent = Update.read(simulate(client=client, defense=defense) / "update.h5")
    each = [one.decode() for one in sent.update.values()]
    assert sent.protocol.clipping == ("update" if "flower" in defense else None)
    return np.concatenate([value.reshape(victims, -1) for value in each], 1)


def test_the_mean_of_clipped_updates_gets_the_noise_of_one(simulate: Callable[..., Path]) -> None:
    mean = observed(simulate, "secure_aggregation+clients=2+each=flower_clipping~norm=0.3")
    central = "flower_central_dp+clients=2+norm=0.3"
    silent = observed(simulate, f"{central}+noise_multiplier=0")
    np.testing.assert_array_equal(silent, mean)
    noise = observed(simulate, f"{central}+noise_multiplier=0.8") - mean
    assert noise.std() == pytest.approx(0.8 * 0.3 / 2, rel=5 / math.sqrt(2 * noise.size))


@pytest.mark.parametrize("members", [4, 10])
def test_the_noise_is_that_of_the_updates_of_which_there_is_a_mean(members: int) -> None:
    """A round of federated training has as many as it chose, whatever the defence's clients."""
    defense = parse("defense", "flower_central_dp+clients=4+norm=1+noise_multiplier=1")
    zero = {"weight": torch.zeros(1, 100, 100)}
    noise = flat(defense.protect_mean(zero, [zero] * members, torch.Generator().manual_seed(0)))
    assert noise.std() == pytest.approx(1 / members, rel=5 / math.sqrt(2 * noise.size))


def adapted(norm: float, updates: list[dict[str, Tensor]]) -> np.ndarray:
    """The noise in the mean, if almost none is in the count."""
    spec = f"flower_central_dp+norm={norm}+noise_multiplier=1e-3+quantile=0.5+rate=2"
    defense = parse("defense", f"{spec}+count_deviation=0.01")
    zero = {name: torch.zeros_like(value) for name, value in update().items()}
    return flat(defense.protect_mean(zero, updates, torch.Generator().manual_seed(0)))


def test_the_noise_is_made_with_the_norm_after_it_was_adapted() -> None:
    """It falls by exp(-2 / 2) if no client is clipped less, and rises by exp(1) if all are."""
    few, all_of_them = (adapted(norm, [update()] * 4) for norm in (1e6, 1e-3))
    assert few.std() / 1e6 / (all_of_them.std() / 1e-3) == pytest.approx(math.exp(2), rel=0.02)


@pytest.mark.parametrize("defense", ["flower_local_dp", "flower_central_dp"])
def test_parameters_that_flower_sends_as_they_are_leave_no_guarantee(defense: str) -> None:
    network = torch.nn.Linear(2, 2)
    parse("defense", defense).check_network(network, (2,))
    network.scale = torch.nn.Parameter(torch.tensor(1.0))
    with pytest.raises(IncompatibleError, match="'scale' has no axes"):
        parse("defense", defense).check_network(network, (2,))


def test_noise_in_the_count_suits_the_clients_of_a_round() -> None:
    text = "federated+clients={}+fraction=0.5+defense=flower_central_dp~clients=40~quantile=0.5"
    dataset = parse("dataset", "digits")
    parse("training", text.format(80)).check(dataset)
    with pytest.raises(
        IncompatibleError, match=r"of 10 updates: noise_multiplier=1\.0 needs a count"
    ):
        parse("training", text.format(20)).check(dataset)


@pytest.mark.parametrize("fields", ["quantile=0.5", "quantile=0+count_deviation=0"])
def test_too_little_noise_in_the_count_is_refused(fields: str) -> None:
    with pytest.raises(SpecError, match="needs a count_deviation of more than half"):
        parse("defense", f"flower_central_dp+noise_multiplier=1+{fields}")


def test_a_clipped_update_of_one_sample_is_inverted_exactly() -> None:
    """A dense first layer gives the sample as a ratio, which has no scale."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 32), torch.nn.ReLU())
    model.append(torch.nn.Linear(32, 4))
    image, client = torch.rand(1, 3, 4, 4), "fedavg+local_lr=0.1+sends=weights"
    update = gleak.compute_update(
        model, image, torch.tensor([1]), client=client, defense="flower_clipping+norm=1e-3"
    )
    norm = math.sqrt(sum(float(value.square().sum()) for value in update.values()))
    assert norm == pytest.approx(1e-3, rel=1e-4)
    found = gleak.attack("aono", model, update, shape=(3, 4, 4), client=client)
    assert gleak.score(found, image)["psnr"] > 60
