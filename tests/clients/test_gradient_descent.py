"""Local steps, beside torch's own optimiser."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from gleak.artifacts.protocol import Protocol
from gleak.clients.gradient_descent import descend, gradients, mini_batches
from gleak.core.registry import parse
from gleak.models import batching

BATCHES = [torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), torch.tensor([0, 2, 4])]


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture
def samples() -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(1)
    return torch.randn(6, 5, generator=numbers), torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("training", [True, False])
def test_steps_are_those_of_torch_in_either_mode(
    network: nn.Module, samples: tuple[Tensor, Tensor], training: bool
) -> None:
    """In training mode running statistics go along, in evaluation mode they stay."""
    inputs, labels = samples
    network.train(training)
    before, plain = deepcopy(network), deepcopy(network)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    losses = []
    for batch in BATCHES:
        optimizer.zero_grad()
        losses.append(functional.cross_entropy(plain(inputs[batch]), labels[batch]))
        losses[-1].backward()
        optimizer.step()
    found = descend(network, inputs, labels, BATCHES, Protocol(local_lr=0.1))
    torch.testing.assert_close(found.losses, torch.stack(losses).detach())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(found.parameters[name], parameter.detach())
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(network.get_buffer(name), buffer)
    for ours, theirs in zip(network.parameters(), before.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert all(layer.training == training for layer in network.modules())


@pytest.mark.parametrize("shuffled", [True, False])
def test_every_pass_takes_every_sample_once(shuffled: bool) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        batches = mini_batches(6, 4, 5, shuffled)
    assert [len(batch) for batch in batches] == [4] * 5
    passes = [order.tolist() for order in torch.cat(batches)[:18].split(6)]
    assert all(sorted(order) == list(range(6)) for order in passes)
    assert (passes[0] != list(range(6))) == (passes[0] != passes[1]) == shuffled


@pytest.mark.parametrize("at_once", [1, 4, 6])
def test_a_large_batch_in_parts_has_the_gradient_of_the_whole(
    network: nn.Module,
    samples: tuple[Tensor, Tensor],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a network in evaluation mode; one in training mode normalises by the whole batch."""
    inputs, labels = samples
    parameters = dict(network.named_parameters())
    monkeypatch.setattr(batching, "VALUES", at_once * inputs[0].numel())
    for mode in (network.train(), network.eval()):
        whole = functional.cross_entropy(mode(inputs), labels)
        expected = torch.autograd.grad(whole, list(parameters.values()))
        found = gradients(mode, parameters, inputs, labels, Protocol())
        torch.testing.assert_close(found, dict(zip(parameters, expected, strict=True)))


def test_a_variational_block_is_sampled_and_its_divergence_counts() -> None:
    """Beside plain autograd with the same numbers from torch's own stream."""
    network = parse("model", "lenet+precode=3+beta=0.5+width=2").build((1, 8, 8), 4).eval()
    images, labels = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 3, 0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parameters = dict(network.named_parameters())
        found = gradients(network, parameters, images, labels, Protocol())
        torch.manual_seed(0)
        noise = torch.randn(5, 3)
    *features, block, classifier = network
    means, values = block.encoder(nn.Sequential(*features)(images)).split(3, 1)
    gaussian = Normal(means, functional.softplus(values))
    logits = classifier(block.decoder(gaussian.mean + gaussian.stddev * noise))
    divergence = kl_divergence(gaussian, Normal(0.0, 1.0)).sum(1).mean()
    loss = functional.cross_entropy(logits, labels) + 0.5 * divergence
    expected = torch.autograd.grad(loss, list(parameters.values()))
    torch.testing.assert_close(found, dict(zip(parameters, expected, strict=True)))


FROZEN_BATCH = torch.rand(4, 12), torch.tensor([0, 1, 2, 0])


@pytest.fixture
def partly_frozen() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 3))
    network[1].requires_grad_(False)
    return network.eval()


@pytest.mark.parametrize(
    "client",
    ["fedsgd", "fedavg+local_steps=2", "fedavg+local_steps=2+sends=weights", "epochs+epochs=2"],
)
def test_frozen_parameters_are_neither_trained_nor_sent(
    client: str, partly_frozen: nn.Module
) -> None:
    spec = parse("client", f"{client}+batch_size=4")
    for gradient in (None, parse("defense", "fedcdp").local_gradient()):
        sent = spec.compute(partly_frozen, *FROZEN_BATCH, gradient)
        assert sent.keys() == {"3.weight", "3.bias"}
        assert all(value.any() for value in sent.values())


def test_frozen_parameters_have_a_part_in_what_others_learn(partly_frozen: nn.Module) -> None:
    inputs, labels = FROZEN_BATCH
    schedule = [torch.arange(4)] * 3, Protocol(local_lr=0.1)
    learnt = descend(partly_frozen, inputs, labels, *schedule).mean_gradient
    features, last = nn.Sequential(*partly_frozen[:3])(inputs), deepcopy(partly_frozen[3])
    for name, value in descend(last, features, labels, *schedule).mean_gradient.items():
        torch.testing.assert_close(learnt[f"3.{name}"], value)


def test_inputs_that_a_network_overwrites_are_left_to_the_client() -> None:
    class Overwriting(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.mul_(2))

    inputs = torch.rand(4, 12)
    before = inputs.clone()
    parse("client", "fedsgd").compute(Overwriting(12, 3), inputs, torch.zeros(4).long())
    assert torch.equal(inputs, before)
