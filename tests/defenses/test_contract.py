"""What holds for every defence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.artifacts.encodings import check_encoded
from gleak.core.registry import load, parse
from gleak.defenses.base import DefenseSpec
from gleak.testing import defense_contract
from gleak.testing.defense_contract import (
    CHECKS,
    SHAPES,
    random_stream,
    small_network,
    small_update,
    with_samples,
)

NAMES = sorted(load("defense"))
NOISE = ["gaussian", "laplace"]
UNITS = ["value", "deviation", "norm", "gradient"]
OTHERS = [
    "dp+scaling=clip",
    "dp+sigma=none+noise_multiplier=0.5+unit=gradient",
    "flare_exclude+pattern=weight",
    "flare_svt+fraction=1+replace=false+gamma=1",
    "flower_central_dp+clients=20+quantile=0.5+noise_multiplier=0.1",
    "gaussian+unit=deviation",
    "gaussian+unit=gradient",
    "gaussian+unit=norm",
    "laplace+unit=deviation",
    "laplace+unit=norm",
    "low_rank+rank=1",
    "low_rank+rank=2+basis=best",
    "qsgd+scope=global+norm=l2",
    "quantize+bits=8+scope=global",
    "secure_aggregation+each=gaussian",
    "soteria+layer=classifier+probes=3",
    "soteria+probes=none",
    "threshold+scope=tensor",
    "topk+scope=global",
]
SPECS = [*NAMES, *OTHERS]
DETERMINISTIC = [
    "none",
    "dp+sigma=0",
    "dp+sigma=0+scaling=clip",
    "flare_exclude+pattern=weight",
    "flare_percentile",
    "flower_central_dp",
    "flower_clipping",
    "low_rank+rank=2+basis=best",
    "quantize",
    "quantize+scope=global",
    "secure_aggregation",
    "signsgd",
    "soteria",
    "threshold",
    "threshold+scope=tensor",
    "topk",
    "topk+scope=global",
]
NOISELESS = {
    "dp+scaling=clip": "dp+sigma=0+scaling=clip",
    "dp+sigma=none+noise_multiplier=0.5": "dp+sigma=0",
    "fedcdp": "fedcdp+snr=none+sigma=0",
    "fedcdp+snr=none+sigma=2+clip=1": "fedcdp+snr=none+sigma=0+clip=1",
    "flower_central_dp+clients=2": "flower_central_dp+clients=2+noise_multiplier=0",
    "flower_local_dp+epsilon=2": "flower_local_dp+sensitivity=0+epsilon=2",
    "gaussian+unit=norm": "gaussian+std=0+unit=norm",
    "laplace": "laplace+std=0",
    "none": "none",
    "secure_aggregation+each=gaussian": "secure_aggregation+each=gaussian~std=0",
    "topk+keep=0.2": "topk+keep=0.2",
}
UNCHANGED = [
    "none",
    "dp+sigma=0+norm=100+scaling=clip",
    "flare_exclude",
    "flare_percentile+percentile=0+gamma=100",
    "flower_central_dp+norm=100",
    "flower_clipping+norm=100",
    "flower_local_dp+clipping_norm=100+sensitivity=0",
    "gaussian+std=0",
    "gaussian+std=0+unit=deviation",
    "gaussian+std=0+unit=norm",
    "laplace+std=0",
    "low_rank+rank=4",
    "random_mask+keep=1",
    "secure_aggregation",
    "soteria+percentile=0",
    "threshold+theta=0",
    "threshold+theta=0+scope=tensor",
    "topk+keep=1",
    "topk+keep=1+scope=global",
]


def received(spec: str, sent: dict[str, Tensor], seed: int = 0) -> dict[str, np.ndarray]:
    return defense_contract.received(parse("defense", spec), sent, seed)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("check", CHECKS)
def test_the_contract_holds(spec: str, check: Callable[[DefenseSpec], None]) -> None:
    check(parse("defense", spec))


@pytest.mark.parametrize("spec", DETERMINISTIC)
def test_rounds_may_be_sent_one_at_a_time(spec: str) -> None:
    """As federated training does, what a client kept back carried from round to round."""
    defense, memory = parse("defense", spec), {}
    together = defense.protect(small_update(3), random_stream(), {})
    for number in range(3):
        one = {key: value[number : number + 1] for key, value in small_update(3).items()}
        alone = defense.protect(one, random_stream(), memory)
        for key in SHAPES:
            assert np.array_equal(alone[key].decode()[0, 0], together[key].decode()[0, number])


@pytest.mark.parametrize("spec", UNCHANGED)
def test_no_strength_is_no_change(spec: str) -> None:
    after = received(spec, with_samples(parse("defense", spec), small_update(), small_network()))
    for key, value in small_update().items():
        assert np.array_equal(after[key][0], value.numpy())


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("std", [0.01, 2.0])
def test_noise_is_unbiased_and_as_strong_as_stated(name: str, std: float) -> None:
    """Means of n values lie within 5 standard errors; Laplace's fourth moment is 6."""
    sent = {"weight": torch.full((1, 200, 500), 3.0)}
    noise = (received(f"{name}+std={std}", sent)["weight"].astype(np.float64) - 3) / std
    count = noise.size
    assert abs(noise.mean()) < 5 / math.sqrt(count) + 1e-5
    assert abs(noise.std() - 1) < 5 * math.sqrt(6 / count)
    kurtosis = {"gaussian": 3, "laplace": 6}[name]
    assert abs((noise**4).mean() / kurtosis - 1) < 0.1


@pytest.mark.parametrize("name", NOISE)
def test_noise_differs_between_victims_rounds_and_parameters(name: str) -> None:
    silent = {"a": torch.zeros(2, 50), "b": torch.zeros(2, 50)}
    one, other = (received(name, silent, seed) for seed in (0, 1))
    rows = [*one["a"][0], *one["b"][0], *other["a"][0]]
    assert len({row.tobytes() for row in rows}) == len(rows)


@pytest.mark.parametrize("name", NOISE)
def test_noise_may_be_relative_to_each_tensor_of_each_round(name: str) -> None:
    """Deviations of n values lie within 5 standard errors; equal values get no noise."""
    shape, deviations = (2, 200, 200), {"a": [1e-6, 3.0], "b": [50.0, 0.2], "equal": [0.0, 0.0]}
    drawn = torch.randn(*shape, generator=random_stream(3), dtype=torch.float64)
    sent = {key: 7 + drawn * torch.tensor(d)[:, None, None] for key, d in deviations.items()}
    for key, after in received(f"{name}+std=0.1+unit=deviation", sent).items():
        noise = (after[0] - sent[key].numpy()).reshape(2, -1)
        expected = 0.1 * sent[key].numpy().reshape(2, -1).std(1)
        np.testing.assert_allclose(noise.std(1), expected, rtol=5 * math.sqrt(1.5 / 40000))


@pytest.mark.parametrize("name", NOISE)
def test_noise_may_be_relative_to_the_length_of_each_round(name: str) -> None:
    """The square of its length, over M values, lies within 5 standard errors; it is even."""
    sizes, count = torch.tensor([1e-6, 50.0])[:, None, None], 60001
    drawn = torch.randn(2, 300, 200, generator=random_stream(3))
    sent = {"a": sizes * drawn, "b": 3 * sizes.flatten(1)}
    after = received(f"{name}+std=0.1+unit=norm", sent)
    for number in range(2):
        own = [value[number].numpy().astype(np.float64) for value in sent.values()]
        noise = after["a"][0, number].astype(np.float64) - own[0]
        deviation = 0.1 * math.sqrt(sum((each**2).sum() for each in own) / count)
        assert noise.std() == pytest.approx(deviation, rel=5 * math.sqrt(1.5 / count))
        assert 0 < abs(after["b"][0, number] - own[1]) < 20 * deviation


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("factor", [-0.05, 3.0])
def test_numbers_for_the_gradient_become_those_of_what_is_sent(name: str, factor: float) -> None:
    stated = {unit: parse("defense", f"{name}+std=0.1+unit={unit}") for unit in UNITS}
    found = stated["gradient"].rescaled(factor)
    assert (found.std, found.unit) == (pytest.approx(0.1 * abs(factor)), "value")
    for unit in ("value", "deviation", "norm"):
        assert stated[unit].rescaled(factor) == stated[unit]


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Dense reference: the values of largest magnitude, all others zero."""
    threshold = np.sort(np.abs(values))[-count]
    return np.where(np.abs(values) >= threshold, values, 0)


@given(st.integers(1, 100))
def test_topk_is_a_mask_of_each_tensor_or_of_all_together(percent: int) -> None:
    for scope, tensors in (("tensor", [[key] for key in SHAPES]), ("global", [list(SHAPES)])):
        after = received(f"topk+keep={percent / 100}+scope={scope}", small_update())
        for keys in tensors:
            joined = torch.cat([small_update()[key].flatten(1) for key in keys], 1).numpy()
            found = np.concatenate([after[key][0].reshape(2, -1) for key in keys], 1)
            count = -(-percent * joined.shape[1] // 100)
            for line, kept in zip(joined, found, strict=True):
                assert np.count_nonzero(kept) == count
                assert np.array_equal(kept, largest(line, count))


def test_topk_keeps_the_exact_count_among_equal_values() -> None:
    spec = parse("defense", "topk+keep=0.07")
    protected = spec.protect({"w": torch.ones(1, 100)}, random_stream(), {})
    assert protected["w"].values.shape == (1, 1, 7)


def test_victims_who_keep_different_tensors_are_joined() -> None:
    """Globally, a small tensor may send nothing at all."""
    spec, large = parse("defense", "topk+keep=0.5+scope=global"), {"b": 9 * torch.ones(1, 4)}
    kept = [
        spec.protect({"a": size * torch.ones(1, 3), **large}, random_stream(), {})["a"]
        for size in (1, 20)
    ]
    joined = type(kept[0]).stack(kept)
    check_encoded("update.h5", "a", joined)
    assert np.array_equal(joined.decode()[:, 0], [[0, 0, 0], [20, 20, 20]])


@pytest.mark.parametrize("text", NOISELESS)
def test_a_defence_without_its_noise_is_otherwise_the_same(text: str):
    quiet = parse("defense", text).noiseless
    assert quiet == parse("defense", NOISELESS[text])
    assert quiet.noiseless == quiet


def test_every_defence_with_a_guarantee_has_a_form_without_noise():
    for name in NAMES:
        defense = parse("defense", name)
        if defense.mechanism is not None:
            assert defense.noiseless.mechanism.deviation == 0
