"""Distances of gradients at known samples, with skipped layers and with drawn noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.attacks.matching import gradient_matching
from gleak.attacks.matching.distances import L2, Cosine
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import (
    DrawnMatching,
    GradientMatching,
    skipped_parameters,
)
from gleak.attacks.matching.parts import ClientModel
from gleak.attacks.matching.priors import TotalVariation, total_variation
from gleak.core.errors import GleakError, IncompatibleError
from gleak.core.registry import parse
from gleak.models.layers import GaussianSample
from gleak.models.stochastic import noise_sizes, sampling, with_noise_as_input
from gleak.testing.model_contract import truth_distance
from tests.attacks.matching.slopes import assert_gradient_of_objective, assert_victims_are_kept

Make = Callable[..., Any]


@pytest.mark.parametrize("model", ["lenet+width=3", "mlp+hidden=5"])
def test_the_truth_has_distance_zero(model: str, make_observation: Make, make_parts: Make):
    observation, inputs, _ = make_observation(model)
    problem = GradientMatching.of(observation, make_parts())
    truth = problem.evaluate(inputs.flatten(1))
    elsewhere = problem.evaluate(1 - inputs.flatten(1))
    assert (truth.distance < 1e-10).all()
    assert (truth.gradient.norm(dim=1) < 1e-4 * elsewhere.gradient.norm(dim=1)).all()
    assert (elsewhere.distance > 1e-4).all()


@pytest.mark.parametrize(
    ("client", "client_model"),
    [
        ("fedsgd+batch_size=3", "one_step"),
        ("fedavg+batch_size=4+mini_batch=2+local_steps=4+local_lr=0.1", "unrolled"),
    ],
)
def test_the_truth_of_clients_in_training_mode_has_distance_zero(
    client: str, client_model: ClientModel
):
    model = parse("model", "vgg_small+width=3+hidden=6+norm=batch").build((3, 8, 8), 4)
    training = parse("client", f"{client}+batch_norm=training")
    found = truth_distance(model.double().eval(), training, client_model, (3, 8, 8), 4)
    assert (found < 1e-15).all()


def test_priors_are_added_to_the_relative_distance(make_observation: Make, make_parts: Make):
    observation, inputs, labels = make_observation()
    problem = GradientMatching.of(
        observation, make_parts(priors=[TotalVariation(0.5)], label_term=2.0)
    )
    points = inputs.flatten(1) / 2
    found = problem.evaluate(points)
    scale = sum(value.flatten(1).square().sum(1) for value in observation.update.values())
    logits = observation.model(inputs.flatten(0, 1) / 2)
    wrong = logits.softmax(1) - functional.one_hot(labels.flatten(), 4)
    term = wrong.square().sum(1).unflatten(0, labels.shape).sum(1)
    expected = found.distance + (0.5 * total_variation(inputs / 2) + 2 * term) / scale
    torch.testing.assert_close(found.objective, expected)


@pytest.mark.parametrize("labels", ["known", "joint"])
def test_the_gradient_is_that_of_the_objective_and_victims_are_kept(
    labels: str, make_observation: Make, make_parts: Make
):
    parts = make_parts(labels=labels, label_term=0.1)
    problem = GradientMatching.of(make_observation("mlp+hidden=5")[0], parts)
    assert_gradient_of_objective(problem, 1e-2)
    assert_victims_are_kept(problem)


def test_joint_labels_are_unknowns_behind_the_pixels(make_observation: Make, make_parts: Make):
    observation, inputs, labels = make_observation("mlp+hidden=5")
    problem = GradientMatching.of(observation, make_parts(labels="joint"))
    logits = 50 * functional.one_hot(labels, 4).float()
    points = torch.cat([inputs.flatten(1), logits.flatten(1)], 1)
    assert points.shape[1] == problem.unknowns == problem.values + 2 * 4
    assert torch.equal(problem.inputs(points), inputs)
    assert torch.equal(problem.soft_labels(points).argmax(2), labels)
    assert (problem.evaluate(points).distance < 1e-8).all()


def test_labels_are_inferred_from_the_update_alone(make_observation: Make, make_parts: Make):
    observation, _, labels = make_observation("mlp+hidden=5", samples=1, granted={})
    for rule in ("argmin", "sign"):
        problem = GradientMatching.of(observation, make_parts(labels=rule))
        assert torch.equal(problem.targets.argmax(2), labels)


@pytest.fixture
def farthest(make_parts: Make) -> Callable[..., float]:
    """Return the largest distance of the true samples by the values that are compared."""

    def measure(observation: Any, inputs: Tensor, compared: str) -> float:
        problem = GradientMatching.of(observation, make_parts(compared=compared))
        return problem.evaluate(inputs.flatten(1)).distance.max()

    return measure


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), GleakError),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), GleakError),
        (RuntimeError("broken"), RuntimeError),
    ],
)
def test_too_little_memory_for_the_check_of_methods_is_told(
    make_observation: Make,
    make_parts: Make,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    told: type[Exception],
):
    def check(training: object) -> None:
        raise error

    monkeypatch.setattr(gradient_matching, "verified_method", check)
    words = "does not fit into memory; use a larger machine" if told is GleakError else "broken"
    with pytest.raises(told, match=words):
        GradientMatching.of(make_observation()[0], make_parts())


def test_only_what_was_sent_is_compared(make_observation: Make, farthest: Make):
    observation, inputs, _ = make_observation()
    sent = {name: torch.rand(value.shape) < 0.7 for name, value in observation.update.items()}
    update = {name: value * sent[name] for name, value in observation.update.items()}
    partial = dataclasses.replace(observation, update=update, sent=sent)
    assert farthest(partial, inputs, "sent") < 1e-10 < 1e-3 < farthest(partial, inputs, "all")


def test_a_mask_that_nobody_speaks_of_can_be_left_out(make_observation: Make, farthest: Make):
    """Zeros that a defence wrote travel like other values."""
    observation, inputs, _ = make_observation()
    update = dict(observation.update)
    name = next(reversed([name for name, value in update.items() if value.ndim > 3]))
    update[name] = update[name] * (torch.arange(update[name].shape[-1]) % 2)
    masked = dataclasses.replace(observation, update=update)
    assert farthest(masked, inputs, "nonzero") < 1e-10 < 1e-3 < farthest(masked, inputs, "sent")


IMAGE = (3, 8, 8)
NETWORK = nn.Sequential(
    nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 5), nn.Sigmoid(), nn.Linear(5, 4)
).eval()
NAMES = [name for name, _ in NETWORK.named_parameters()]


@pytest.mark.parametrize(
    ("skip", "names"),
    [
        (None, set()),
        ("2", {"2.weight", "2.bias"}),
        ("first_dense", {"2.weight", "2.bias"}),
        ("classifier", {"4.weight", "4.bias"}),
        ("2.weight-4", {"2.weight", "4.weight", "4.bias"}),
        ("0-classifier", {"0.weight", "0.bias", "4.weight", "4.bias"}),
    ],
)
def test_layers_are_named_or_found(skip: str | None, names: set[str]):
    assert skipped_parameters(NETWORK, IMAGE, NAMES, skip) == names


@pytest.mark.parametrize(
    ("network", "skip", "fault"),
    [
        (NETWORK, "clasifier", "skip=clasifier: unknown 'clasifier'; did you mean 'classifier'"),
        (NETWORK, "2.weights", "did you mean '2.weight'"),
        (NETWORK, "0-2-4", "leaves out all parameters"),
        (NETWORK[:2], "first_dense", "no dense layer"),
    ],
)
def test_an_unknown_layer_is_named(network: nn.Module, skip: str, fault: str):
    with pytest.raises(IncompatibleError, match=fault):
        skipped_parameters(network, IMAGE, NAMES, skip)


@pytest.mark.parametrize("distance", [L2(), Cosine()])
def test_what_a_skipped_layer_sends_does_not_matter(
    distance: Any, make_observation: Make, make_parts: Make
):
    observation, inputs, _ = make_observation()
    last = list(observation.update)[-1].rpartition(".")[0]
    update = {
        name: torch.rand(value.shape) * 100 if name.startswith(last) else value
        for name, value in observation.update.items()
    }
    spoilt = dataclasses.replace(observation, update=update)
    points = inputs.flatten(1) / 2
    found = [
        GradientMatching.of(seen, make_parts(skip=last, distance=distance)).evaluate(points)
        for seen in (observation, spoilt)
    ]
    torch.testing.assert_close(found[0].distance, found[1].distance)
    torch.testing.assert_close(found[0].gradient, found[1].gradient)


MODEL = "lenet+width=3+precode=5"
SHAPE = (3, 8, 8)


def observed_with(noise: Tensor, make_observation: Make) -> tuple[Any, Tensor]:
    """Return an observation of clients that drew this noise, Shape (V, N, K)."""
    observation, inputs, labels = make_observation(MODEL)
    network = with_noise_as_input(observation.model, SHAPE).requires_grad_()
    (layer,) = sampling(network)
    rows = []
    for samples, drawn, label in zip(inputs, noise, labels, strict=True):
        penalties: list[Tensor] = []
        hook = layer.register_forward_hook(
            lambda module, given, _, kept=penalties: kept.append(module.penalty(given[0]))
        )
        logits = network(torch.cat([samples.flatten(1), drawn], 1))
        hook.remove()
        loss = functional.cross_entropy(logits, label) + penalties[0].mean()
        rows.append(torch.autograd.grad(loss, list(network.parameters())))
    network.requires_grad_(False)
    names = [name for name, _ in network.named_parameters()]
    slopes = [torch.stack(values)[:, None] for values in zip(*rows, strict=True)]
    observation.update.update(zip(names, slopes, strict=True))
    return observation, inputs


@pytest.fixture
def noise() -> Tensor:
    return torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(8))


def test_noise_as_input_is_what_the_layer_adds():
    network = parse("model", MODEL).build(SHAPE, 4).eval()
    samples = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    assert noise_sizes(network, SHAPE) == [5]
    extended = with_noise_as_input(network, SHAPE)
    silent = extended(torch.cat([samples.flatten(1), torch.zeros(4, 5)], 1))
    torch.testing.assert_close(silent, network(samples))
    (layer,) = sampling(network)
    kept: dict[str, Tensor] = {}
    layer.register_forward_hook(lambda _, given, out: kept.update(given=given[0], out=out))
    network(samples)
    deviations = torch.nn.functional.softplus(kept["given"][:, 5:])
    drawn = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    decoder = [one for one in extended.modules() if isinstance(one, GaussianSample)]
    seen: list[Tensor] = []
    decoder[0].register_forward_hook(lambda _, given, out: seen.append(out))
    extended(torch.cat([samples.flatten(1), drawn], 1))
    torch.testing.assert_close(seen[0], kept["out"] + deviations * drawn)


def test_the_truth_has_distance_zero_only_with_its_noise(
    noise: Tensor, make_observation: Make, make_parts: Make
):
    observation, inputs = observed_with(noise, make_observation)
    problem = DrawnMatching.of(observation, make_parts())
    truth = torch.cat([inputs.flatten(1), noise.flatten(1)], 1)
    assert truth.shape[1] == problem.unknowns
    silent = torch.cat([inputs.flatten(1), torch.zeros_like(noise).flatten(1)], 1)
    assert (problem.evaluate(truth).distance < 1e-9).all()
    assert (problem.evaluate(silent).distance > 1e-5).all()
    mean = GradientMatching.of(observation, make_parts()).evaluate(inputs.flatten(1))
    torch.testing.assert_close(problem.evaluate(silent).distance, mean.distance)


@pytest.mark.parametrize("labels", ["known", "joint"])
def test_the_gradient_with_drawn_noise_is_that_of_the_objective(
    labels: str, noise: Tensor, make_observation: Make, make_parts: Make
):
    observation, _ = observed_with(noise, make_observation)
    problem = DrawnMatching.of(observation, make_parts(labels=labels, label_term=0.1))
    assert_gradient_of_objective(problem, 2e-2)


def test_the_search_comes_closer_than_with_the_mean(
    noise: Tensor, make_observation: Make, make_parts: Make
):
    observation, _ = observed_with(noise, make_observation)
    found = {
        draws: match(observation, make_parts(draws=draws, iterations=30)).objective
        for draws in ("mean", "searched")
    }
    assert (found["searched"] < found["mean"]).all()
    assert found["searched"].max() < 0.5 * found["mean"].min()
