"""FLARE's filters by what they must do; `tests/captures/frameworks` compares them with FLARE."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import gleak
from gleak.artifacts.encodings import Dense, Encoded
from gleak.artifacts.private import Private
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.testing.tiny_cells import TinyCells

SHAPES = {"weight": (40, 50), "bias": (40,), "scale": ()}
SIZE = 40 * 50 + 40 + 1


def update(seed: int = 0, rounds: int = 1) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(rounds, *shape, generator=random) for name, shape in SHAPES.items()}


def sent(spec: str, values: dict[str, Tensor], seed: int = 0) -> dict[str, Encoded]:
    return parse("defense", spec).protect(values, torch.Generator().manual_seed(seed), {})


def decoded(spec: str, values: dict[str, Tensor], seed: int = 0) -> dict[str, np.ndarray]:
    return {name: one.decode()[0] for name, one in sent(spec, values, seed).items()}


@given(st.integers(0, 100), st.sampled_from([0.5, 100.0]), st.integers(0, 50))
def test_values_above_the_percentile_are_sent_and_cut(
    percentile: int, gamma: float, seed: int
) -> None:
    values, found = update(seed), decoded(f"flare_percentile+{percentile=}+{gamma=}", update(seed))
    magnitudes = np.sort(np.abs(np.concatenate([v.numpy().ravel() for v in values.values()])))
    least = magnitudes[int(np.floor(percentile / 100 * (SIZE - 1)))]
    for name in ("weight", "bias"):
        own, after = values[name].numpy(), found[name]
        large, kept = np.abs(own) > least * (1 + 1e-6), after != 0
        assert abs(int(kept.sum()) - int(large.sum())) <= 1
        np.testing.assert_array_equal(after[kept], np.clip(own[kept], -gamma, gamma))
    np.testing.assert_array_equal(found["scale"], values["scale"])


def test_numbers_of_the_percentile_filter_are_of_one_step() -> None:
    """A power of two, by which division does not round."""
    one = decoded("flare_percentile+gamma=0.5+percentile=30", update())
    eight = {name: 8 * value for name, value in update().items()}
    found = decoded("flare_percentile+gamma=0.5+percentile=30+steps=8", eight)
    for name, value in one.items():
        np.testing.assert_array_equal(found[name], 8 * value)


def test_the_server_knows_which_values_were_sent() -> None:
    found = sent("flare_percentile+percentile=75", update())["weight"]
    assert found.sent().mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_array_equal(found.sent(), found.decode() != 0)


STRONG = "epsilon=1e9+epsilon_release=1e9+gamma=9+tau=1"
"""Budgets so large that there is no noise."""


@pytest.mark.parametrize("replace", ["true", "false"])
def test_without_noise_values_above_the_threshold_are_sent(replace: str) -> None:
    values = update()
    found = sent(f"flare_svt+{STRONG}+fraction=0.1+replace={replace}", values)
    count = 0
    for name in ("weight", "bias"):
        own, after, mask = values[name].numpy(), found[name].decode()[0], found[name].sent()[0]
        count += int(mask.sum())
        assert (np.abs(own[mask]) > 1 - 1e-3).all()
        np.testing.assert_allclose(after[mask], own[mask], atol=1e-3)
    most = np.ceil(0.1 * SIZE)  # one of them may be the parameter that is sent as it is
    assert count in ((most, most - 1) if replace == "false" else range(int(0.7 * most), int(most)))


def test_what_is_chosen_is_drawn_from_all_parameters_alike() -> None:
    """Half of the values above the threshold are sent: of 400 masks each place's share is 1/2."""
    values = {"a": torch.full((1, 15), 2.0), "b": torch.full((1, 5), -2.0)}
    spec = f"{STRONG}+fraction=0.5"
    masks = [sent(f"flare_svt+{spec}+replace=false", values, seed) for seed in range(400)]
    shares = np.concatenate([np.mean([m[k].sent()[0, 0] for m in masks], 0) for k in values])
    assert np.abs(shares - 0.5).max() < 5 * (0.25 / 400) ** 0.5


def test_released_values_have_the_noise_of_their_budget() -> None:
    """Laplace noise of scale 2 gamma c / budget; its mean magnitude is the scale."""
    spec = "flare_svt+fraction=1+replace=false+gamma=0.5+epsilon_release=1000"
    found = decoded(spec, {"w": torch.zeros(1, 4000)})["w"]
    assert np.abs(found).mean() == pytest.approx(2 * 0.5 * 4000 / 1000, rel=0.1)


@pytest.mark.parametrize(
    ("fields", "epsilon"),
    [
        ("", 0.1 + 100 * 0.1),
        ("+epsilon=3+noise_var=0.02+fraction=0.05", 3 + 50 * 0.02),
        ("+epsilon_release=7+epsilon_threshold=0.04", 0.1 + 7),
    ],
)
def test_the_stated_epsilon_is_that_of_choice_and_release(fields: str, epsilon: float) -> None:
    assert parse("defense", f"flare_svt{fields}").stated_epsilon(1000) == pytest.approx(epsilon)


def test_the_budget_of_the_choice_is_split_for_queries_that_are_not_monotonic() -> None:
    threshold, query = parse("defense", "flare_svt+epsilon=2").budgets(100)
    assert query / threshold == pytest.approx(200 ** (2 / 3))
    assert threshold + query == pytest.approx(2)


@pytest.mark.parametrize(
    "fields",
    [
        "epsilon_threshold=0.1",
        "epsilon_query=0.3",
        "epsilon_query=0.3+epsilon=2+epsilon_threshold=1",
    ],
)
def test_parts_that_are_not_the_whole_budget_are_refused(fields: str) -> None:
    with pytest.raises(SpecError, match="must add up to epsilon"):
        parse("defense", f"flare_svt+{fields}")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 4))


@pytest.mark.parametrize(("fields", "left"), [("names=1.weight-3.bias", 2), ("pattern=bias", 2)])
def test_excluded_parameters_are_not_sent(fields: str, left: int) -> None:
    values = {name: value.detach()[None] for name, value in small().named_parameters()}
    found = sent(f"flare_exclude+{fields}", values)
    dense = [name for name, one in found.items() if isinstance(one, Dense)]
    assert len(dense) == left
    assert all(not found[name].sent().any() for name in values.keys() - dense)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("names=1.weigth", r"no parameter is named 1.weigth; the parameters"),
        ("pattern=fc", r"no parameter matches fc; the parameters of the network are 1.weight,"),
        ("pattern=.", "all parameters are excluded"),
    ],
)
def test_names_that_do_not_exist_and_empty_updates_are_refused(fields: str, said: str) -> None:
    with pytest.raises(IncompatibleError, match=said):
        gleak.compute_update(
            small(), torch.rand(1, 3, 4, 4), torch.tensor([1]), defense=f"flare_exclude+{fields}"
        )


CLIENT = "fedavg+victims=2+local_lr=0.1+sends=weights"
MODEL = "mlp+hidden=64+activation=relu"
BEST = parse("attack", "best+budget=30")


def best(tiny: TinyCells, defense: str, **changed: object) -> np.ndarray:
    """Peak signal-to-noise ratio of what `best` finds of each victim's sample, in dB."""
    folder = tiny.simulate(model=MODEL, client=CLIENT, defense=defense)
    found = BEST.reconstruct(replace(tiny.observe(folder, BEST), **changed)).inputs[:, 0]
    error = ((found - Private.read(folder / "private.h5").inputs[:, 0]) ** 2).mean((1, 2, 3))
    return -10 * np.log10(error)


@pytest.mark.parametrize("fields", ["", "+percentile=50+gamma=1e-4"])
def test_a_value_that_was_cut_may_have_been_larger(cells: TinyCells, fields: str) -> None:
    """An attacker who takes it as it is finds less."""
    defense = f"flare_percentile{fields}"
    told = best(cells, defense)
    assert (told > 15).all()
    assert (best(cells, defense, cells={}) < told - 10).all()


@pytest.mark.parametrize(
    ("spec", "said"),
    [("percentile+gamma=0.1", "magnitude 0.5, larger than gamma"), ("exclude+names=w", "not zero")],
)
def test_values_that_a_filter_does_not_send_are_refused(spec: str, said: str) -> None:
    with pytest.raises(ArtifactError, match=f"w: .*{said}"):
        parse("defense", f"flare_{spec}").encode_received({"w": torch.tensor([[0.1, -0.5]])})


def test_what_is_left_of_few_noisy_values_shows_nothing(cells: TinyCells) -> None:
    assert (best(cells, "flare_svt") < 10).all()


def test_a_sample_is_found_without_an_excluded_parameter(cells: TinyCells) -> None:
    assert (best(cells, "flare_exclude+pattern=bias") > 15).all()
