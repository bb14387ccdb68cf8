"""Shadow clients: what a server would observe of samples that the attacker drew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.api.attack_setting import Setting
from gleak.api.given_specs import client_of
from gleak.api.user_network import examine, prepared_copy
from gleak.artifacts.protocol import Clipping
from gleak.artifacts.reconstruction import Candidate
from gleak.attacks.best import SHADOWS, Best
from gleak.attacks.candidates import Batch
from gleak.attacks.map import MAP
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.observation import Observation
from gleak.attacks.shadow_clients import greatest, shadow_clients, stage_errors
from gleak.core.registry import parse
from tests.attacks.cases import natural_images

SHAPE, SAMPLES, NOISE = (3, 8, 8), 4, 0.02


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))


def in_noise(client: str, clipping: Clipping | None, factor: float) -> tuple[Posterior, Batch]:
    """Return the posterior of a client whose update has a factor and noise, and its samples."""
    inputs, labels = natural_images(SAMPLES, SHAPE), torch.arange(SAMPLES) + 3
    draws = torch.Generator().manual_seed(1)
    sent = gleak.compute_update(network(), inputs, labels, client=client)
    values = {
        name: (factor * value + NOISE * torch.randn(value.shape, generator=draws)).numpy()
        for name, value in sent.items()
    }
    copied = prepared_copy(network())
    setting = Setting(copied, SHAPE, examine(copied, SHAPE), client_of(client, SAMPLES))
    seen = setting.observe(Best(), setting.update(values, {}), {}, {}, 0)
    seen = replace(seen, protocol=replace(seen.protocol, clipping=clipping))
    truth = Batch(inputs[None].numpy(), labels[None].numpy(), np.zeros(1))
    return Posterior.of(seen, MAP().parts()), truth


def as_sent(update: dict[str, torch.Tensor], defense: str) -> Observation:
    """Return what a server observes of a gradient under a defence."""
    values = {name: value[None] for name, value in update.items()}
    coded = parse("defense", defense).protect(values, torch.Generator().manual_seed(2), {})
    copied = prepared_copy(network())
    setting = Setting(copied, SHAPE, examine(copied, SHAPE), client_of("fedsgd", SAMPLES))
    decoded = {name: one.decode()[0, 0] for name, one in coded.items()}
    whole = setting.update(decoded, {})
    return setting.observe(Best(), replace(whole, update=coded), {}, {}, 0)


def gradients(seen: Observation) -> dict[str, np.ndarray]:
    return {name: value[0, 0].numpy() for name, value in seen.update.items()}


@pytest.mark.parametrize("client", ["fedsgd", "fedavg+local_steps=2+mini_batch=2+local_lr=0.01"])
def test_its_update_is_that_of_the_samples_with_noise_of_the_same_size(client: str) -> None:
    posterior, truth = in_noise(client, None, 1.0)
    seen, samples = shadow_clients(posterior, truth)
    own = gleak.compute_update(
        network(), torch.from_numpy(samples[0]), torch.from_numpy(truth.labels[0]), client=client
    )
    for name, sent in gradients(seen).items():
        noise = sent - own[name].numpy()
        assert noise.std() == pytest.approx(NOISE, rel=4 / np.sqrt(2 * min(noise.size, 200)))
        assert abs(noise.mean()) < 4 * NOISE / np.sqrt(noise.size)


@pytest.mark.parametrize("clipping", ["update", "parameter"])
def test_where_clients_clip_its_gradient_is_as_long_as_that_of_the_victim(
    clipping: Clipping,
) -> None:
    posterior, truth = in_noise("fedsgd", clipping, 100.0)
    seen, samples = shadow_clients(posterior, truth)
    inputs, labels = torch.from_numpy(samples[0]), torch.from_numpy(truth.labels[0])
    own = gleak.compute_update(network(), inputs, labels)
    sent, victim = gradients(seen), gradients(posterior.observation)
    for name, value in own.items():
        direction = value.numpy() / np.linalg.norm(value)
        cosine = np.sum(sent[name] * direction) / np.linalg.norm(sent[name])
        assert cosine > 0.95
        if clipping == "parameter":
            lengths = [np.linalg.norm(each[name]) for each in (sent, victim)]
            assert lengths[0] == pytest.approx(lengths[1], rel=0.05)
    whole = [np.sqrt(sum(np.sum(v**2) for v in each.values())) for each in (sent, victim)]
    assert whole[0] == pytest.approx(whole[1], rel=0.05)


def test_its_samples_are_drawn_for_each_victim_whoever_is_beside() -> None:
    posterior, truth = in_noise("fedsgd", None, 1.0)
    twice = posterior.observation.of_victims(np.array([0, 0]))
    both = replace(twice, victim_ids=np.array([0, 1]))
    seen, samples = shadow_clients(Posterior.of(both, MAP().parts()), truth.keep(np.array([0, 0])))
    _, alone = shadow_clients(posterior, truth)
    np.testing.assert_array_equal(samples[0], alone[0])
    assert np.abs(samples[0] - samples[1]).max() > 0.1
    assert samples.min() >= 0
    assert samples.max() <= 1
    assert seen.victims == 2


@pytest.mark.parametrize("defense", ["quantize", "qsgd", "signsgd"])
def test_its_update_is_sent_in_the_code_of_the_victim(defense: str) -> None:
    inputs, labels = natural_images(SAMPLES, SHAPE), torch.arange(SAMPLES) + 3
    seen = as_sent(gleak.compute_update(network(), inputs, labels), defense)
    truth = Batch(inputs[None].numpy(), labels[None].numpy(), np.zeros(1))
    shadow, samples = shadow_clients(Posterior.of(seen, MAP().parts()), truth)
    own = gleak.compute_update(network(), torch.from_numpy(samples[0]), labels)
    for name, sent in gradients(shadow).items():
        value = own[name].numpy()
        if defense == "signsgd":
            np.testing.assert_array_equal(sent, np.sign(value))
        else:
            step = float(shadow.cells[name].step[0, 0])
            np.testing.assert_allclose(sent / step, np.round(sent / step), atol=1e-4)
            within = step / 2 if defense == "quantize" else step
            assert np.abs(sent - value).max() <= within * (1 + 1e-5)
            assert not np.array_equal(sent, value)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("basis", ["random", "best"])
@pytest.mark.parametrize("captured", [False, True])
def test_its_update_is_sent_in_a_basis_of_the_same_kind(
    rank: int, basis: str, captured: bool
) -> None:
    """Of captured updates the basis is computed from what was received."""
    defense = f"low_rank+rank={rank}+basis={basis}"
    inputs, labels = natural_images(SAMPLES, SHAPE), torch.arange(SAMPLES) + 3
    seen = as_sent(gleak.compute_update(network(), inputs, labels), defense)
    if captured:
        values = {name: value[0] for name, value in seen.update.items()}
        coded = parse("defense", defense).encode_received(values)
        left = {name: torch.from_numpy(coded[name].left) for name in seen.bases}
        seen = replace(seen, bases=left)
    truth = Batch(inputs[None].numpy(), labels[None].numpy(), np.zeros(1))
    shadow, samples = shadow_clients(Posterior.of(seen, MAP().parts()), truth)
    own = gleak.compute_update(network(), torch.from_numpy(samples[0]), labels)
    expected = as_sent(own, defense)
    for name, value in expected.update.items():
        torch.testing.assert_close(shadow.update[name], value, rtol=1e-3, atol=1e-6)
    assert shadow.bases.keys() == expected.bases.keys()
    for name, own_basis in expected.bases.items():
        projections = [each @ each.mT for each in (shadow.bases[name], own_basis)]
        torch.testing.assert_close(*projections, rtol=1e-3, atol=1e-4)


def test_each_number_has_other_draws_and_the_greatest_error_of_a_stage_counts() -> None:
    posterior, truth = in_noise("fedsgd", None, 1.0)
    first, second = (shadow_clients(posterior, truth, number)[1] for number in (0, 1))
    assert np.abs(first - second).max() > 0.1
    stages = [{("a", ""): -20.0, ("b", ""): -9.0}, {("a", ""): -12.0, ("c", ""): -8.0}]
    assert greatest(stages) == {("a", ""): -12.0, ("b", ""): -9.0, ("c", ""): -8.0}


def test_errors_are_those_of_the_nearest_order_and_stages_without_samples_have_none() -> None:
    truth = np.random.default_rng(0).uniform(0.2, 0.8, (3, 2, 2)).astype(np.float32)
    found = [
        Candidate(attack="near", reason="why", inputs=truth[[2, 0, 1]] + 0.1, labels=np.zeros(3)),
        Candidate(attack="far", reason="why", inputs=truth - 10, labels=np.zeros(3)),
        Candidate(attack="none", reason="does not suit"),
    ]
    computed = stage_errors(found, truth)
    assert computed.keys() == {("near", "why"), ("far", "why")}
    assert computed["near", "why"] == pytest.approx(-20, abs=1e-4)
    beyond = np.mean(10 * np.log10(np.square(truth).reshape(3, -1).mean(1)))
    assert computed["far", "why"] == pytest.approx(beyond, abs=1e-4)


@pytest.mark.parametrize(
    ("samples", "noise", "defense", "runs"),
    [
        (4, 0.5, "none", 1 + SHADOWS),
        (4, 1e-6, "none", 1),
        (1, 0.5, "none", 1),
        (4, 0, "low_rank+rank=2+basis=best", 1 + SHADOWS),
        (4, 0, "low_rank+rank=5+basis=best", 1),
        (1, 0, "low_rank+rank=1", 1),
    ],
)
def test_batches_in_noise_or_products_of_few_values_have_shadow_clients(
    samples: int, noise: float, defense: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, labels = natural_images(samples, SHAPE), torch.arange(samples) + 3
    sent = gleak.compute_update(network(), inputs, labels, defense=defense)
    sent = {name: value + noise * torch.randn(value.shape) for name, value in sent.items()}
    called = []
    searched = Best._searched

    def counted(self: Best, proposals: object, seen: Observation) -> object:
        called.append(seen)
        return searched(self, proposals, seen)  # type: ignore[arg-type]

    monkeypatch.setattr(Best, "_searched", counted)
    gleak.attack(Best(budget=2), network(), sent, SHAPE, batch_size=samples, defense=defense)
    assert len(called) == runs
