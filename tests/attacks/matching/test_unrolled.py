"""All local steps of a client, compared with a loop of `torch.autograd` over victims and steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.gradients import ClientTraining, LoopedGradients, VmappedGradients
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.attacks.matching.unrolled import GeneralUnrolled, LayerwiseUnrolled, Unrolled
from gleak.attacks.observation import Observation
from gleak.clients.fedavg import FedAvg
from gleak.models.differentiation import sample_losses
from tests.attacks.matching import slopes
from tests.attacks.matching.slopes import choose_gradients

Make = Callable[..., Any]
Way = Callable[[ClientTraining], Unrolled]

SAMPLES = 4
SCHEDULES = [(2, 4), (3, 4), (4, 1), (6, 2)]
"""Local steps and mini-batch: one pass and several."""


@pytest.fixture
def observe(make_observation: Make) -> Make:
    """Return the updates of three clients of federated averaging, and their samples."""

    def make(model: str, client: FedAvg) -> tuple[Observation, Tensor, Tensor]:
        observation, inputs, labels = make_observation(
            model, samples=SAMPLES, protocol=client.protocol
        )
        batches = zip(inputs, labels, strict=True)
        network = observation.model.requires_grad_(True)
        updates = [client.compute(network, *batch) for batch in batches]
        network.requires_grad_(False)
        update = {key: torch.stack([one[key].detach() for one in updates]) for key in updates[0]}
        return replace(observation, update=update), inputs, labels

    return make


def averaging(steps: int, size: int, **fields: object) -> FedAvg:
    return FedAvg(
        batch_size=SAMPLES, local_steps=steps, mini_batch=size, **{"local_lr": 0.5, **fields}
    )


def mean_gradient(observation: Observation, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Compute the mean gradient of one client from the difference of the weights."""
    before = {
        name: value.detach().to(inputs).requires_grad_()
        for name, value in observation.model.named_parameters()
    }
    after = before
    for step in range(observation.protocol.local_steps):
        size = observation.protocol.mini_batch
        some = [(step * size + place) % len(inputs) for place in range(size)]
        logits = functional_call(observation.model, after, (inputs[some],))
        loss = sample_losses(observation.protocol.loss, logits, targets[some]).mean()
        slopes = torch.autograd.grad(loss, list(after.values()), create_graph=True)
        after = {
            name: value - observation.protocol.local_lr * slope
            for (name, value), slope in zip(after.items(), slopes, strict=True)
        }
    walked = observation.protocol.local_lr * observation.protocol.local_steps
    return {name: (before[name] - after[name]) / walked for name in before}


def dummies(inputs: Tensor, dtype: torch.dtype = torch.double) -> tuple[Tensor, Tensor]:
    """Return samples, and soft labels of all victims, which require a gradient."""
    _, soft = slopes.dummies(*inputs.shape[:2], (), 4)
    return inputs.to(dtype).requires_grad_(), soft.detach().to(dtype).requires_grad_()


def unrolled(observation: Observation) -> ClientTraining:
    return ClientTraining.of(observation, "unrolled")


WAYS: dict[str, Way] = {
    "layerwise": lambda local: LayerwiseUnrolled(local, LayerwiseGradients(local)),
    "vmapped": lambda local: GeneralUnrolled(local, VmappedGradients(local)),
    "looped": lambda local: GeneralUnrolled(local, LoopedGradients(local)),
}
EACH = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.mark.usefixtures("kernels_of_either_device")
@EACH
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
@pytest.mark.parametrize("model", ["lenet+width=2", "mlp+hidden=5"])
@pytest.mark.parametrize(("steps", "size"), SCHEDULES)
def test_gradients_and_their_slopes_are_those_of_a_plain_loop(
    steps: int, size: int, model: str, loss: str, way: Way, observe: Make
):
    observation, inputs, _ = observe(model, averaging(steps, size, loss=loss))
    observation.model.double()
    samples, soft = dummies(inputs)
    observed = {name: value[:, 0].double() for name, value in observation.update.items()}
    pieces = way(unrolled(observation))(samples, soft, observed)
    rows = [mean_gradient(observation, *one) for one in zip(samples, soft, strict=True)]
    assert [piece.name for piece in pieces] == list(rows[0])
    expected = torch.zeros(())
    for piece in pieces:
        true = torch.stack([row[piece.name] for row in rows])
        torch.testing.assert_close(piece.formed().gradient, true)
        assert piece.target is observed[piece.name]
        expected = expected + (true - piece.target).square().sum()
    found = sum(piece.squared_distance().sum() for piece in pieces)
    torch.testing.assert_close(
        torch.autograd.grad(found, (samples, soft)),
        torch.autograd.grad(expected, (samples, soft), materialize_grads=True),
    )


@pytest.mark.parametrize("sends", ["gradient", "weights"])
@pytest.mark.parametrize(("steps", "size"), SCHEDULES)
def test_the_truth_has_distance_zero_where_all_steps_are_repeated(
    steps: int, size: int, sends: str, observe: Make, make_parts: Make
):
    """One step in place of several does not lead to the same weights."""
    observation, inputs, _ = observe("lenet+width=3", averaging(steps, size, sends=sends))
    distance = {
        client_model: GradientMatching.of(observation, make_parts(client_model=client_model))
        .evaluate(inputs.flatten(1))
        .distance
        for client_model in ("one_step", "unrolled")
    }
    assert (distance["unrolled"] < 1e-9).all()
    assert (distance["one_step"] > 1e-4).all()


@pytest.mark.parametrize("fields", [{}, {"clip_norm": 0.01}, {"clip_value": 1e-3}])
@pytest.mark.parametrize(("steps", "size"), [(1, 4), (2, 4), (2, 1), (4, 1), (1, 2)])
def test_clients_of_a_sum_take_their_steps_in_parallel(
    steps: int, size: int, fields: dict[str, float], observe: Make, make_parts: Make
):
    """Each on its half of the samples, of which it clips the gradient by itself."""
    client = averaging(steps, size, **fields)
    observation, inputs, labels = observe("mlp+hidden=5", client)
    network = observation.model.requires_grad_(True)
    halves = [
        [client.compute(network, *half) for half in zip(one.chunk(2), own.chunk(2), strict=True)]
        for one, own in zip(inputs, labels, strict=True)
    ]
    network.requires_grad_(False)
    update = {
        name: torch.stack([(first[name] + second[name]).detach() / 2 for first, second in halves])
        for name in observation.update
    }
    protocol = replace(observation.protocol, clients=2)
    observation = replace(observation, update=update, protocol=protocol, verified_methods={})
    matching = GradientMatching.of(observation, make_parts(client_model="unrolled"))
    assert (matching.evaluate(inputs.flatten(1)).distance < 1e-9).all()


def test_one_step_on_a_part_of_the_samples_is_no_gradient_of_all(observe: Make, make_parts: Make):
    observation, inputs, _ = observe("mlp+hidden=5", averaging(1, 2))
    assert not observation.protocol.shows_gradient
    assert observation.protocol.of_one_step().shows_gradient
    matching = GradientMatching.of(observation, make_parts(client_model="unrolled"))
    assert (matching.evaluate(inputs.flatten(1)).distance < 1e-9).all()


@EACH
def test_precision_does_not_depend_on_the_learning_rate(way: Way, observe: Make):
    """Differences of weights of size 0.5 would be known to 1e-7 alone, here a tenth percent."""
    observation, inputs, _ = observe("mlp+hidden=5", averaging(2, 4, local_lr=1e-4))
    samples, soft = dummies(inputs, torch.float)
    observed = {name: value[:, 0] for name, value in observation.update.items()}
    pieces = way(unrolled(observation))(samples, soft, observed)
    observation.model.double()
    rows = [mean_gradient(observation, *one) for one in zip(*dummies(inputs), strict=True)]
    for piece in pieces:
        true = torch.stack([row[piece.name] for row in rows]).float()
        torch.testing.assert_close(piece.formed().gradient, true, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["resnet20", "vgg_small+norm=batch+width=2+hidden=3"])
def test_all_ways_agree_on_networks_with_batch_norm(model: str, observe: Make):
    """Pieces, and the slopes at the samples of their products with the observed gradients."""
    observation, inputs, _ = observe(model, averaging(4, 2, local_lr=0.01))
    observation.model.double()
    samples, soft = dummies(inputs)
    observed = {name: value[:, 0].double() for name, value in observation.update.items()}
    outcomes = []
    for way in WAYS.values():
        pieces = [piece.formed() for piece in way(unrolled(observation))(samples, soft, observed)]
        along = sum((piece.gradient * piece.target).sum() for piece in pieces)
        gradients = {piece.name: piece.gradient for piece in pieces}
        outcomes.append((gradients, torch.autograd.grad(along, samples)[0]))
    for gradients, slope in outcomes[1:]:
        torch.testing.assert_close(gradients, outcomes[0][0])
        torch.testing.assert_close(slope, outcomes[0][1])


@pytest.mark.parametrize(
    ("model", "client_model", "steps", "kind"),
    [
        ("mlp+hidden=5", "one_step", 1, LayerwiseGradients),
        ("mlp+hidden=5", "one_step", 3, LayerwiseGradients),
        ("mlp+hidden=5", "unrolled", 1, LayerwiseGradients),
        ("mlp+hidden=5", "unrolled", 3, LayerwiseUnrolled),
        ("lenet+width=12", "unrolled", 3, GeneralUnrolled),
    ],
)
def test_steps_are_unrolled_where_there_are_several(
    model: str, client_model: str, steps: int, kind: type, observe: Make
):
    observation, _, _ = observe(model, averaging(steps, SAMPLES))
    assert isinstance(choose_gradients(ClientTraining.of(observation, client_model)), kind)
