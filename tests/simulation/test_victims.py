"""How much a defence changed what is sent, and when that hangs on the form in which it is sent."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import load, parse
from gleak.defenses.base import encode
from gleak.runtime.checkpointing import Journal
from gleak.runtime.seeding import derived_seed
from gleak.simulation.simulate import log_perturbation
from gleak.simulation.victims import Observed, Simulation, epoch_change, perturbation

CLIENT = "fedavg+victims=2+batch_size=4+local_steps=3+local_lr=0.03"
WEIGHTS = "+sends=weights"
RELATIVE = [
    "dp+noise_multiplier=0.01+sigma=none",
    "dp+scaling=clip+unit=gradient+sigma=0.01+norm=0.5",
    "dp+scaling=clip+unit=gradient+norm=0.5+sigma=none+noise_multiplier=0.01",
    "gaussian+unit=deviation+std=0.5",
    "gaussian+unit=gradient",
    "gaussian+unit=norm+std=2",
    "laplace+unit=deviation",
    "laplace+unit=gradient",
    "laplace+unit=norm",
    "secure_aggregation+clients=2+each=gaussian~unit=gradient",
    "secure_aggregation+clients=2+each=gaussian~unit=norm",
    "fedcdp+snr=none+sigma=0.1",
]
ABSOLUTE = ["dp+scaling=clip", "gaussian", "laplace", "secure_aggregation+clients=2+each=laplace"]
OF_WEIGHTS = {"flare_svt": "flare_svt+gamma=1e-3", "flower_clipping": "flower_clipping+norm=1e-2"}
"""Numbers by which filters of weights change these updates by another share than of gradients."""
NAMES = {OF_WEIGHTS.get(name, name) for name in load("defense")}
SPECS = sorted({*NAMES, *RELATIVE, *ABSOLUTE})
SHAPES = {"weight": (4, 30), "bias": (4,)}
SEED = 1


@pytest.fixture(scope="module")
def observe() -> Callable[[str, str], Observed]:
    """All rounds of two clients of a small network with four classes."""
    inputs = np.random.default_rng(0).random((2, 4, 2, 8, 8), dtype=np.float32)
    labels = np.array([[0, 1, 2, 3], [3, 3, 1, 0]])

    def run(client: str, defense: str) -> Observed:
        specs = parse("client", client), parse("defense", defense)
        return Simulation(*specs, lenet(), inputs, labels, SEED).run()

    return run


def lenet() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = parse("model", "lenet+width=3+activation=relu")
        return model.build((2, 8, 8), 4).eval()


def values(observed: Observed) -> np.ndarray:
    """All parameters as one vector; Shape (V, R, M)."""
    decoded = (encoded.decode() for encoded in observed.update.values())
    return np.concatenate([each.reshape(*each.shape[:2], -1) for each in decoded], axis=2)


def drawn(factor: float) -> dict[str, Tensor]:
    numbers = torch.Generator().manual_seed(9)
    return {
        name: factor * torch.randn(1, *shape, generator=numbers) for name, shape in SHAPES.items()
    }


def changed(spec: str, factor: float) -> float:
    """By how much an update is perturbed that stands for a gradient, ``factor`` times as large."""
    defense, update = parse("defense", spec).rescaled(factor), drawn(factor)
    sent = defense.protect(update, torch.Generator().manual_seed(3), {})
    return perturbation(sent, [defense.at_sent_norm(update)])


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_the_same_of_a_gradient_and_of_weights_unless_numbers_are_absolute(
    spec: str, observe: Callable[[str, str], Observed]
) -> None:
    gradient, weights = (observe(f"{CLIENT}{form}", spec).perturbations for form in ("", WEIGHTS))
    if parse("defense", spec).scale_dependent:
        assert (np.abs(weights / gradient - 1) > 0.1).all()
    else:
        np.testing.assert_allclose(weights, gradient, rtol=2e-3)


@pytest.mark.parametrize("spec", RELATIVE)
@given(st.floats(-4, 2).map(lambda power: 10.0**power), st.sampled_from([-1, 1]))
def test_relative_noise_does_not_know_how_large_the_update_is(
    spec: str, size: float, sign: int
) -> None:
    assert changed(spec, sign * size) == pytest.approx(changed(spec, sign), rel=1e-4)


@pytest.mark.parametrize("spec", ABSOLUTE[1:])
def test_absolute_noise_counts_the_more_the_smaller_the_update(spec: str) -> None:
    assert changed(spec, 0.01) == pytest.approx(100 * changed(spec, 1), rel=1e-4)


@pytest.mark.parametrize(
    "spec", ["gaussian+std=0.1", "fedcdp", "soteria", "topk", "secure_aggregation+each=topk"]
)
def test_it_is_how_far_what_is_sent_is_from_what_would_be_sent_without(
    spec: str, observe: Callable[[str, str], Observed]
) -> None:
    plain_spec = "secure_aggregation" if "secure" in spec else "none"
    observed, plain = observe(CLIENT, spec), values(observe(CLIENT, plain_spec))
    far = np.linalg.norm(values(observed) - plain, axis=2) / np.linalg.norm(plain, axis=2)
    assert (far > 0.01).all()
    np.testing.assert_allclose(observed.perturbations, far, rtol=1e-4)
    assert (observe(CLIENT, plain_spec).perturbations < 1e-6).all()


def test_every_round_has_its_own(observe: Callable[[str, str], Observed]) -> None:
    """A server that stands still; what a client kept back it sends later, beside the new."""
    client = "epochs+victims=2+batch_size=4+epochs=3+server_lr=0"
    observed, plain = (observe(client, name) for name in ("threshold+theta=0.9", "none"))
    far = np.linalg.norm(values(observed) - values(plain), axis=2)
    expected = far / np.linalg.norm(values(plain), axis=2)
    assert observed.perturbations.shape == (2, 3)
    np.testing.assert_allclose(observed.perturbations, expected, rtol=1e-4)
    assert (np.diff(observed.perturbations, axis=1) != 0).all()


EPOCHS = "epochs+victims=2+batch_size=4+update_size=2+server_lr=0.1"


def test_others_train_the_network_between_two_epochs() -> None:
    """After the server's step; layers that were in evaluation mode are so again."""
    inputs = np.random.default_rng(0).random((2, 4, 2, 8, 8), dtype=np.float32)
    labels = np.array([[0, 1, 2, 3], [3, 3, 1, 0]])
    dataset = Dataset(
        spec="tiny",
        class_names=np.array(list("abcd")),
        **{f"{split}_{name}": value for split in ("train", "test") for name, value in held(split)},
    )
    between = parse("client", f"{EPOCHS}+between=central~epochs=1")
    plain, none = parse("client", EPOCHS), parse("defense", "none")
    network = lenet()
    observed = Simulation(between, none, network, inputs, labels, SEED, dataset).run()
    assert not any(layer.training for layer in network.modules())
    alone = Simulation(plain, none, lenet(), inputs, labels, SEED).run()
    for name, value in alone.broadcast.items():
        assert np.array_equal(observed.broadcast[name][:2], value[:2])
    expected = lenet()
    expected.load_state_dict({name: torch.from_numpy(v[2]) for name, v in alone.broadcast.items()})
    seed = derived_seed(SEED, "training before round 2")
    between.between.fit(expected, dataset, seed, Journal().part())
    for name, value in expected.state_dict().items():
        assert np.array_equal(observed.broadcast[name][2], value.numpy())
    assert (epoch_change(observed) > epoch_change(alone)).all()


def held(split: str) -> list[tuple[str, np.ndarray]]:
    """Samples and labels of a split of sixteen."""
    numbers = np.random.default_rng(len(split))
    samples = numbers.integers(0, 256, (16, 2, 8, 8)).astype(np.uint8)
    return [("inputs", samples), ("labels", np.arange(16) % 4)]


def test_the_change_of_a_samples_updates_is_between_its_first_and_its_last() -> None:
    sent = np.array([[[3.0, 4], [1, 0], [1, 1], [3, 4.5]]])
    observed = Observed(
        update={"weight": encode(torch.from_numpy(sent[0]))},
        broadcast=None,
        positions=np.array([[[0], [1], [1], [0]]]),
        noise_multipliers=None,
        perturbations=np.zeros((1, 4)),
        sent_bytes=np.zeros((1, 4)),
    )
    assert epoch_change(observed) == pytest.approx([(0.1 + 1) / 2])
    assert epoch_change(replace(observed, positions=None)) is None


def test_defences_that_choose_the_length_are_compared_by_direction() -> None:
    update = torch.cat([value.flatten() for value in drawn(1).values()])
    cosine = (update.abs().sum() / (update.norm() * math.sqrt(len(update)))).item()
    assert changed("signsgd", 5) == pytest.approx(math.sqrt(2 - 2 * cosine), rel=1e-5)
    assert changed("dp+sigma=0+norm=7", 5) < 1e-6
    noise = changed("dp+sigma=0.1+norm=7", 5) * 7 / 0.1
    assert noise == pytest.approx(math.sqrt(len(update)), rel=0.25)


def test_an_update_of_zeros_has_a_finite_one() -> None:
    assert changed("gaussian+unit=norm", 0) == changed("signsgd", 0) == changed("none", 0) == 0
    assert 1 < changed("gaussian", 0) < math.inf


@pytest.mark.parametrize(
    ("fields", "spec", "worst", "said"),
    [
        ("", "gaussian", 1.5, ["1.5 times", "smaller std", "unit=norm"]),
        ("", "gaussian+unit=norm+std=1.5", 1.5, ["1.5 times", "smaller std"]),
        ("", "fedcdp", 1.5, ["1.5 times", "larger snr"]),
        ("", "dp", 1.5, ["1.5 times", "noise_multiplier"]),
        ("", "gaussian", 0.9, []),
        ("", "signsgd", 1.2, []),
        (WEIGHTS, "gaussian", 0.9, ["0.09 times the norm", "11.1 times as large", "unit=gradient"]),
        (WEIGHTS, "secure_aggregation+each=laplace", 0.9, ["11.1 times as large"]),
        (WEIGHTS, "dp+scaling=clip", 0.9, ["11.1 times as large", "unit=gradient"]),
        (WEIGHTS, "dp", 0.9, []),
        (WEIGHTS, "gaussian+unit=gradient", 0.9, []),
        (f"{WEIGHTS}+local_steps=4+local_lr=0.25", "gaussian", 0.9, []),
    ],
)
def test_a_warning_names_client_defence_value_and_remedy(
    fields: str, spec: str, worst: float, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = CLIENT.replace("+local_steps=3+local_lr=0.03", "") if "local" in fields else CLIENT
    client, defense = parse("client", text + fields), parse("defense", spec)
    with caplog.at_level(logging.INFO):
        log_perturbation(client, defense, np.array([[0.5], [worst]]))
    levels = [record.levelno for record in caplog.records]
    messages = [record.getMessage() for record in caplog.records]
    assert levels == [logging.INFO] + [logging.WARNING] * bool(said)
    mean = f"mean relative perturbation of the update {(0.5 + worst) / 2:.3g}"
    assert f"defense {defense}: {mean}" in messages[0]
    for part in [*said, *([f"client {client}, defense {defense}:"] if said else [])]:
        assert part in messages[-1]
