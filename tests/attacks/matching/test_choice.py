"""Methods of computing gradients are compared with plain differentiation before they are used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching import choice, kernels
from gleak.attacks.matching.choice import Trial
from gleak.attacks.matching.gradients import (
    Gradients,
    LoopedGradients,
    Parameters,
    VmappedGradients,
)
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.attacks.matching.pieces import Piece
from gleak.attacks.matching.tangent_gradients import TangentGradients
from gleak.attacks.matching.unrolled import GeneralUnrolled
from gleak.core.errors import IncompatibleError
from gleak.models.differentiation import differentiable_kernels
from tests.attacks.matching import slopes
from tests.attacks.matching.slopes import ClientTraining, choose_gradients, dummies, plain_gradients
from tests.zoo import CLASSES, FORMS, NETWORKS, SHAPE

UNSPLITTABLE = [
    "batch statistics, functional",
    "centred",
    "dense on time first",
    "weight used twice",
    "divided by a weight's norm",
]


class Named(nn.Module):
    """Layer that is called with a named argument."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(192, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(input=inputs.flatten(1))


BUILDERS = NETWORKS | {
    "named argument": Named,
    "same padding": lambda: nn.Sequential(
        nn.Conv2d(3, 3, 3, padding="same"), nn.Flatten(), nn.Linear(192, CLASSES)
    ),
}
CHOSEN = {
    **dict.fromkeys(UNSPLITTABLE, VmappedGradients),
    **dict.fromkeys(["layer used twice", "tied weights", "named argument"], VmappedGradients),
    **dict.fromkeys(["same padding", "circular padding", "grouped convolution"], VmappedGradients),
    **dict.fromkeys(["layer norm", "group norm", "instance norm"], VmappedGradients),
    **dict.fromkeys(["overwrites activations", "unused layer first"], VmappedGradients),
    **dict.fromkeys(["LSTM", "GRU", "RNN"], LoopedGradients),
    **dict.fromkeys(["frozen body", "batch norm", "max pooling"], LayerwiseGradients),
}


def training_of(network: nn.Module, **fields: object) -> ClientTraining:
    return slopes.training_of(network.eval(), SHAPE, CLASSES, **fields)


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return BUILDERS[name]()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in FORMS["no graph"]])
def test_the_chosen_method_gives_gradients_and_slopes_of_autograd(name: str):
    network, given = built(name).double(), dummies(2, 3, SHAPE, CLASSES)
    trained = [key for key, value in network.named_parameters() if value.requires_grad]
    training = training_of(network, trained=frozenset(trained), several_victims=True)
    with differentiable_kernels(network):
        gradients = choose_gradients(training)
        plain = plain_gradients(network, "cross_entropy", *given)
        expected = {key: plain[key] for key in trained}
        pieces = gradients(*given, {key: value.detach() for key, value in expected.items()})
        found = {piece.name: piece.formed().gradient for piece in pieces}
        torch.testing.assert_close(found, expected)
        derivatives = [
            torch.autograd.grad(sum(values[key].sin().sum() for key in trained), given)
            for values in (found, expected)
        ]
        torch.testing.assert_close(*derivatives)
    assert isinstance(gradients, CHOSEN.get(name, Gradients))


@pytest.mark.parametrize("name", UNSPLITTABLE)
def test_steps_of_networks_that_look_splittable_and_are_not_go_the_general_way(name: str):
    protocol = Protocol(local_steps=2, batch_size=4, mini_batch=2, local_lr=0.1)
    training = training_of(built(name), protocol=protocol)
    assert LayerwiseGradients(training).layers
    assert isinstance(choose_gradients(training), GeneralUnrolled)


def test_the_method_depends_on_the_cell_and_the_device(monkeypatch: pytest.MonkeyPatch):
    """Dense layers' gradients are not formed, nor those of several victims in large networks.

    Of several large batches, those of a half-dense network are not, either.
    """
    half = training_of(nn.Sequential(nn.Conv2d(3, 8, 3, 3), nn.Flatten(), nn.Linear(32, CLASSES)))
    several = replace(half, several_victims=True)
    for training in (half, several):
        assert isinstance(choose_gradients(training), TangentGradients)
    batch = Protocol(batch_size=16, mini_batch=16)
    assert isinstance(choose_gradients(replace(half, protocol=batch)), TangentGradients)
    assert isinstance(choose_gradients(replace(several, protocol=batch)), LayerwiseGradients)
    dense = training_of(nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)))
    assert isinstance(choose_gradients(dense), LayerwiseGradients)
    monkeypatch.setattr(choice, "MOST_WEIGHTS", 100)
    assert isinstance(choose_gradients(half), TangentGradients)
    assert isinstance(choose_gradients(several), LayerwiseGradients)
    monkeypatch.setattr(kernels, "on_cpu", lambda _: False)
    assert isinstance(choose_gradients(several), TangentGradients)
    assert isinstance(choose_gradients(dense), LayerwiseGradients)


class Cached(nn.Module):
    """Layer that keeps a reference to a weight, which replacing the parameter does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(192, CLASSES)
        self.weights = [self.inner.weight]

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1) @ self.weights[0].T + self.inner.bias


def test_a_parameter_that_cannot_be_replaced_is_named():
    with pytest.raises(
        IncompatibleError, match=r"'weight' of layer 'inner' \(Linear\).*references"
    ):
        choose_gradients(training_of(Cached()))


class NoSecondDerivative(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cdist(inputs, inputs.new_ones(CLASSES, inputs.shape[1]))


def test_layers_without_a_second_derivative_are_named():
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), NoSecondDerivative())
    with pytest.raises(IncompatibleError, match=r"layer '2' \(NoSecondDerivative\) has no second"):
        choose_gradients(training_of(network))


class Scaled(VmappedGradients):
    """Gradients with a wrong factor in one parameter."""

    factor = 1 + 1e-5

    def gradients_at(self, parameters: Parameters, inputs: Tensor, targets: Tensor) -> Parameters:
        found = super().gradients_at(parameters, inputs, targets)
        return {**found, "1.bias": self.factor * found["1.bias"]}


class Detached(VmappedGradients):
    """Correct gradients, of which those of one parameter are not differentiable."""

    def __call__(self, inputs: Tensor, targets: Tensor, observed: Parameters) -> list[Piece]:
        first, *rest = super().__call__(inputs, targets, observed)
        return [replace(first, gradient=first.gradient.detach()), *rest]  # type: ignore[type-var]


def test_small_errors_in_values_and_in_derivatives_are_found():
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)).double()
    training = training_of(network)
    inputs, targets = dummies(2, 3, SHAPE, CLASSES)
    right = VmappedGradients(training)
    trial = Trial.of(inputs, targets, right.gradients_at(right.broadcast(2), inputs, targets))
    assert trial.wrong_parameters(right) == []
    assert trial.wrong_parameters(Scaled(training)) == ["1.bias"]
    assert trial.wrong_parameters(Detached(training)) == ["1.weight", "1.bias"]


@pytest.mark.parametrize("name", ["dense on time first", "contrastive head", "transformer layer"])
def test_a_victim_has_the_same_gradient_alone_and_among_others(name: str):
    network = built(name).double()
    gradients = choose_gradients(training_of(network))
    inputs, targets = dummies(4, 3, SHAPE, CLASSES)
    observed = {key: value.expand(4, *value.shape) for key, value in network.named_parameters()}
    with differentiable_kernels(network):
        together = gradients(inputs, targets, observed)
        alone = [
            gradients(*batch, {key: value[:1] for key, value in observed.items()})
            for batch in zip(inputs.split(1), targets.split(1), strict=True)
        ]
    for piece, *own in zip(together, *alone, strict=True):
        distances = torch.cat([one.squared_distance() for one in own])
        torch.testing.assert_close(distances, piece.squared_distance())
