from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.protocol import Protocol
from gleak.clients.gradient_descent import LocalGradient, gradients
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.defenses import differential_privacy
from gleak.runtime.seeding import drawing_from

SHAPES = {"weight": (4, 2, 3), "bias": (4,), "scale": ()}
SCALINGS = ["unit", "clip"]
LENGTHS = st.floats(-30, 20).map(lambda power: 10.0**power)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def update(*lengths: float) -> dict[str, Tensor]:
    """One round of each length, all parameters together."""
    drawn = {
        name: torch.randn(len(lengths), *shape, generator=stream(9), dtype=torch.float64)
        for name, shape in SHAPES.items()
    }
    factors = torch.tensor(lengths, dtype=torch.float64) / torch.from_numpy(length(drawn))
    return {
        name: (value * factors.reshape(-1, *[1] * (value.ndim - 1))).float()
        for name, value in drawn.items()
    }


def protect(sent: dict[str, Tensor], fields: str, seed: int = 0) -> dict[str, np.ndarray]:
    encoded = parse("defense", f"dp+{fields}").protect(sent, stream(seed), {})
    return {name: value.decode()[0] for name, value in encoded.items()}


def joined(values: dict[str, Tensor] | dict[str, np.ndarray]) -> np.ndarray:
    """Shape (R, M), in double precision."""
    rows = [
        np.asarray(value, dtype=np.float64).reshape(len(value), -1) for value in values.values()
    ]
    return np.concatenate(rows, axis=1)


def length(values: dict[str, Tensor] | dict[str, np.ndarray]) -> np.ndarray:
    return np.linalg.norm(joined(values), axis=1)


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.floats(0.1, 10))
def test_each_round_is_scaled_to_the_norm_as_one_vector(lengths: list[float], norm: float) -> None:
    sent = update(*lengths)
    scaled = joined(protect(sent, f"sigma=0+norm={norm}"))
    expected = norm * joined(sent) / length(sent)[:, None]
    np.testing.assert_allclose(scaled, expected, rtol=1e-5, atol=1e-6)


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.floats(0.1, 10))
def test_clipping_shortens_what_is_longer(lengths: list[float], norm: float) -> None:
    sent = joined(update(*lengths))
    clipped = joined(protect(update(*lengths), f"sigma=0+scaling=clip+norm={norm}"))
    expected = sent * np.minimum(1, norm / np.linalg.norm(sent, axis=1))[:, None]
    np.testing.assert_allclose(clipped, expected, rtol=1e-5, atol=1e-6)
    short = np.linalg.norm(sent, axis=1) <= norm
    np.testing.assert_array_equal(clipped[short], sent[short])


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_round_of_zeros_stays_and_leaves_the_others_alone(scaling: str) -> None:
    sent = update(3.0, 0.0)
    found = joined(protect(sent, f"sigma=0+scaling={scaling}"))
    np.testing.assert_allclose(found[0], joined(sent)[0] / 3, rtol=1e-5)
    np.testing.assert_array_equal(found[1], 0)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("sigma", [0.01, 2.0])
def test_noise_is_normal_and_as_strong_as_stated(scaling: str, sigma: float) -> None:
    """Means of n values lie within 5 standard errors; the noise does not grow with the norm."""
    sent = {"a": torch.ones(2, 200, 300), "b": torch.ones(2, 400)}
    loud, bare = (
        joined(protect(sent, f"norm=7+scaling={scaling}+sigma={size}")) for size in (sigma, 0)
    )
    noise = (loud - bare) / sigma
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size) + 1e-5
    for part in (noise[0], noise[1], noise[:, -400:]):
        assert abs(part.var() - 1) < 5 * math.sqrt(2 / part.size)
    assert abs((noise**4).mean() / 3 - 1) < 0.1


@pytest.mark.parametrize("scaling", SCALINGS)
def test_noise_may_be_a_multiple_of_the_norm(scaling: str) -> None:
    fields = f"norm=4+scaling={scaling}"
    given_directly = protect(update(3.0, 9.0), f"{fields}+sigma=2")
    found = protect(update(3.0, 9.0), f"{fields}+sigma=none+noise_multiplier=0.5")
    assert all(np.array_equal(found[name], value) for name, value in given_directly.items())


@pytest.mark.parametrize("noise", ["sigma=2", "sigma=none+noise_multiplier=0.5"])
@pytest.mark.parametrize("factor", [-0.25, 8.0])
def test_numbers_for_the_gradient_become_those_of_what_is_sent(noise: str, factor: float) -> None:
    """A power of two, so that nothing is rounded."""
    spec = parse("defense", f"dp+{noise}+norm=4+scaling=clip+unit=gradient")
    sent, size = update(3.0, 9.0), abs(factor)
    multiplied = {name: size * value for name, value in sent.items()}
    found = spec.rescaled(factor).protect(multiplied, stream(), {})
    for name, encoded in spec.protect(sent, stream(), {}).items():
        assert np.array_equal(found[name].decode(), size * encoded.decode())


IMAGES = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(5) % 4
SILENT = "fedcdp+snr=none+sigma=0"


def network(name: str = "lenet+width=4") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model: nn.Module = parse("model", name).build((3, 8, 8), 4)
    return model.eval()


def step(
    spec: str,
    model: nn.Module,
    loss: str = "cross_entropy",
    seed: int = 0,
    images: Tensor = IMAGES,
    labels: Tensor = LABELS,
) -> tuple[Tensor, dict[str, Tensor], LocalGradient]:
    gradient = parse("defense", spec).local_gradient()
    with drawing_from(torch.Generator().manual_seed(seed)):
        mean, slopes = gradient(model, dict(model.named_parameters()), images, labels, loss)
    return mean, slopes, gradient


def slow_clipped(model: nn.Module, bound: float) -> dict[str, list[Tensor]]:
    """Of each parameter every sample's gradient, by plain torch, shortened to the bound."""
    clipped: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for image, label in zip(IMAGES, LABELS, strict=True):
        loss = functional.cross_entropy(model(image[None]), label[None])
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        for name, slope in zip(clipped, slopes, strict=True):
            clipped[name].append(slope / max(1.0, float(slope.norm()) / bound))
    return clipped


@pytest.mark.parametrize("model", ["lenet+width=4", "mlp+hidden=16", "resnet20+width=1"])
@pytest.mark.parametrize("bound", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("values", [1, 2**24])
def test_gradients_of_samples_are_clipped_and_averaged(
    model: str, bound: float, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one sample is taken at a time or all at once."""
    monkeypatch.setattr(differential_privacy, "MAX_VALUES", values)
    net = network(model)
    _, slopes, _ = step(f"{SILENT}+clip={bound}", net)
    for name, parts in slow_clipped(net, bound).items():
        torch.testing.assert_close(slopes[name], torch.stack(parts).mean(0), atol=1e-7, rtol=1e-4)
        assert not slopes[name].requires_grad


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
def test_without_noise_and_bound_it_is_the_gradient_of_the_mean_loss(loss: str) -> None:
    net = network()
    mean, slopes, _ = step(f"{SILENT}+clip=1e9", net, loss)
    expected = gradients(net, dict(net.named_parameters()), IMAGES, LABELS, Protocol(loss=loss))
    torch.testing.assert_close(slopes, expected, atol=1e-6, rtol=1e-4)
    logits = net(IMAGES)
    whole = functional.cross_entropy(logits, LABELS)
    raw = -logits[torch.arange(5), LABELS].mean()
    torch.testing.assert_close(mean, whole if loss == "cross_entropy" else raw)


def noise(spec: str, net: nn.Module) -> dict[str, Tensor]:
    clip = parse("defense", spec).clip
    loud, quiet = step(spec, net)[1], step(f"{SILENT}+clip={clip}", net)[1]
    return {name: loud[name] - quiet[name] for name in loud}


def assert_normal(values: Tensor, deviation: float) -> None:
    """Mean and standard deviation lie within five standard errors."""
    drawn = values.flatten() / deviation
    assert abs(drawn.mean()) < 5 / math.sqrt(len(drawn))
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * len(drawn))


@pytest.mark.parametrize("clip", [0.5, 4.0])
def test_sigma_is_in_units_of_the_bound_on_the_sum_of_the_batch(clip: float) -> None:
    drawn = noise(f"fedcdp+snr=none+sigma=3+clip={clip}", network())
    assert_normal(torch.cat([value.flatten() for value in drawn.values()]), 3 * clip / 5)


@pytest.mark.parametrize("snr", [-20, 0, 10])
def test_each_samples_noise_is_weaker_than_its_layer_by_the_ratio(snr: float) -> None:
    """Of each layer the noises' powers add up; large layers show it."""
    net = network("mlp+hidden=64")
    drawn = noise(f"fedcdp+snr={snr}+clip=0.05", net)
    for name, parts in slow_clipped(net, 0.05).items():
        power = sum(float(part.square().mean()) for part in parts) / 10 ** (snr / 10)
        assert_normal(drawn[name], math.sqrt(power) / 5)


@pytest.mark.parametrize("snr", [-10, 0, 10])
def test_a_samples_clipped_layer_is_sent_with_the_norm_that_is_stated(snr: float) -> None:
    spec, net = f"fedcdp+snr={snr}+clip=0.05", network("mlp+hidden=64")
    sent = step(spec, net, images=IMAGES[:1], labels=LABELS[:1])[1]["1.weight"]
    stated = parse("defense", spec).norm_if_clipped
    assert float(sent.norm()) == pytest.approx(stated, rel=5 / math.sqrt(2 * sent.numel()))
    assert parse("defense", "fedcdp+snr=none+sigma=1+clip=0.05").norm_if_clipped == 0.05


@pytest.mark.parametrize("size", [4, 10, 1000])
def test_clipped_parameters_are_not_taken_for_whole_ones_and_short_ones_are(size: int) -> None:
    defense = parse("defense", "fedcdp+snr=-10")
    protocol = defense.protocol_of(parse("client", "fedsgd"))
    stream = torch.Generator().manual_seed(0)
    drawn = torch.randn(1000, size, generator=stream)
    clipped = 4 / size**0.5 * (1 + 10**0.5 * drawn)
    shares = [
        sum(map(protocol.may_be_clipped, scale * clipped)) / len(clipped) for scale in (1, 1e-3)
    ]
    assert shares[0] > 0.99
    assert shares[1] == 0


def test_multipliers_are_those_of_all_layers_together() -> None:
    """Layers of equal noise and sensitivity 2C are one Gaussian mechanism of 2C sqrt(layers)."""
    net = network()
    layers = len(list(net.parameters()))
    _, _, account = step("fedcdp+snr=none+sigma=3+clip=0.7", net)
    assert account.noise_multipliers == pytest.approx([3 / (2 * math.sqrt(layers))])
    assert step(SILENT, net)[2].noise_multipliers == [0]


@given(st.floats(-30, 30))
def test_with_a_ratio_multipliers_follow_from_the_strength_of_the_noise(snr: float) -> None:
    net = network()
    moved = [
        2 * 0.1 / math.sqrt(sum(float(part.square().mean()) for part in parts))
        for parts in slow_clipped(net, 0.1).values()
    ]
    expected = 10 ** (-snr / 20) / math.hypot(*moved)
    found = step(f"fedcdp+snr={snr:.6f}+clip=0.1", net)[2].noise_multipliers
    assert found == pytest.approx([expected], rel=1e-3)


def test_one_sample_moves_a_layer_by_no_more_than_is_accounted_for() -> None:
    """The sample that is exchanged pulls the other way, with a gradient beyond the bound."""
    net, clip = network(), 1e-3
    others = torch.where(torch.arange(5) == 2, (LABELS + 1) % 4, LABELS)
    before, after = (
        step(f"{SILENT}+clip={clip}", net, labels=labels)[1] for labels in (LABELS, others)
    )
    for name in before:
        moved = float((5 * after[name] - 5 * before[name]).norm())
        assert 0.2 * clip < moved <= 2 * clip * 1.001


def test_masks_and_noise_follow_the_stream() -> None:
    net = network("lenet+width=4+dropout=0.5")
    first, again, other = (step("fedcdp", net, seed=seed)[1] for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.allclose(first[name], other[name]) for name in first)
    assert not any(layer.training for layer in net.modules())


def test_every_sample_has_a_mask_of_its_own() -> None:
    """Of one image five times, all masks equal would give five equal gradients."""
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 4)).eval()
    images, labels = IMAGES[:1].expand(5, 3, 8, 8), torch.zeros(5, dtype=torch.int64)
    slopes = step(f"{SILENT}+clip=1e9", net, images=images, labels=labels)[1]
    assert (slopes["2.weight"] != 0).any(0).float().mean() > 0.9


def test_a_network_that_normalises_by_the_batch_is_refused() -> None:
    net = network("resnet20+width=1").train()
    with pytest.raises(IncompatibleError, match=r"fedcdp: layer '.+' .* the whole mini-batch"):
        step("fedcdp", net)


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("dp+sigma=none", r"sigma=DEVIATION, or sigma=none\+noise_multiplier"),
        ("dp+noise_multiplier=1", r"sigma=DEVIATION, or sigma=none\+noise_multiplier"),
        ("fedcdp+sigma=1", "exactly one of snr and sigma: write snr=DECIBEL, or"),
        ("fedcdp+snr=none", "exactly one of snr and sigma: write snr=DECIBEL, or"),
        ("fedcdp+snr=3+sigma=0", "exactly one of snr and sigma: write snr=DECIBEL, or"),
    ],
)
def test_noise_is_given_in_exactly_one_way(spec: str, remedy: str) -> None:
    with pytest.raises(SpecError, match=remedy):
        parse("defense", spec)
