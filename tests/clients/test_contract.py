"""What holds for every client; those that send a gradient are compared with plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.core.registry import load, parse
from gleak.runtime.seeding import drawing_from, torch_stream

NAMES = sorted(load("client"))
GRADIENT = [name for name in NAMES if parse("client", name).protocol.content == "gradient"]
LOSSES = ["cross_entropy", "nll_raw"]


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parse("model", "lenet+width=4").build((3, 8, 8), 4)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return images, torch.tensor([0, 3, 3])


@pytest.mark.parametrize("name", GRADIENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_sends_the_mean_of_the_samples_gradients(
    name: str, loss: str, network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    update = parse("client", f"{name}+batch_size=3+loss={loss}").compute(network, *batch)
    for image, label in zip(*batch, strict=True):
        logits = network(image[None])
        raw = -logits[0, label]
        entropy = functional.cross_entropy(logits, label[None])
        ((raw if loss == "nll_raw" else entropy) / len(batch[0])).backward()
    for key, parameter in network.named_parameters():
        torch.testing.assert_close(update[key][0], parameter.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_updates_have_the_models_shapes_and_leave_it_as_it_was(
    name: str, network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    before = {key: value.clone() for key, value in network.state_dict().items()}
    update = parse("client", name).compute(network, *batch)
    assert list(update) == [key for key, _ in network.named_parameters()]
    rounds = {len(value) for value in update.values()}
    assert len(rounds) == 1
    for key, parameter in network.named_parameters():
        assert update[key].shape[1:] == parameter.shape
        assert parameter.grad is None
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["lenet+dropout=0.5", "mlp+dropout=0.5", "fc2+precode=5"])
def test_what_layers_draw_follows_the_clients_stream(
    name: str, model: str, batch: tuple[Tensor, Tensor]
) -> None:
    network = parse("model", model).build((3, 8, 8), 4).eval()
    updates = []
    for victim in (0, 0, 1):
        with drawing_from(torch_stream(0, "client", victim)):
            updates.append(parse("client", name).compute(network, *batch))
    first, again, other = (torch.cat([v.flatten() for v in one.values()]) for one in updates)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert not any(layer.training for layer in network.modules())


def test_a_parameter_that_takes_no_part_has_no_gradient() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    network.spare = nn.Parameter(torch.ones(3))
    network.forward = lambda inputs: network[1](network[0](inputs))
    update = parse("client", "fedsgd").compute(network, torch.rand(2, 4), torch.tensor([0, 1]))
    assert torch.equal(update["spare"], torch.zeros(1, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_defence_puts_in_place_of_the_gradient_is_what_every_step_takes(
    name: str, loss: str, network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """Clipped to no length, all gradients are zero; within a bound they are as they were."""
    steps = "+local_steps=3" if "local_steps" in load("client")[name].model_fields else ""
    client = parse("client", f"{name}+batch_size=3+loss={loss}{steps}")
    none, all_of_it = (
        parse("defense", f"fedcdp+snr=none+sigma=0+clip={clip}").local_gradient()
        for clip in (1e-20, 1e9)
    )
    for value in client.compute(network, *batch, none).values():
        torch.testing.assert_close(value, torch.zeros_like(value))
    plain = client.compute(network, *batch)
    for key, value in client.compute(network, *batch, all_of_it).items():
        torch.testing.assert_close(value, plain[key], atol=1e-6, rtol=1e-4)
    assert len(none.noise_multipliers) == client.protocol.local_steps
