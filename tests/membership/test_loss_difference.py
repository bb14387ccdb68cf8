from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
import torch

from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.membership.loss_difference import parameters_after
from tests.membership.conftest import MakeVictims


@pytest.mark.parametrize("sends", ["gradient", "weights"])
def test_it_is_the_loss_that_the_clients_training_took_away(
    sends: str, make_victims: MakeVictims
) -> None:
    client = f"fedavg+batch_size=4+victims=3+local_steps=3+local_lr=0.1+sends={sends}"
    observation, candidates, member = make_victims(client=client)
    found = parse("membership", "loss_difference").infer(observation, candidates)
    own = candidates.positions[0][torch.from_numpy(member[0])]
    inputs, labels = candidates.inputs[own], candidates.labels[own]
    after = trained(observation, inputs, labels)
    losses = [
        torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        for logits in (
            observation.model(inputs),
            torch.func.functional_call(observation.model, after, (inputs,)),
        )
    ]
    expected = (losses[0] - losses[1]).detach().numpy()
    assert found[0][member[0]] == pytest.approx(expected, abs=1e-5)
    for name, value in parameters_after(observation, 0).items():
        torch.testing.assert_close(value, after[name], atol=1e-5, rtol=1e-4)


MOMENTUM = "sgd~momentum=0.9~weight_decay=0.1", torch.optim.SGD
DECAY = {"momentum": 0.9, "weight_decay": 0.1}


@pytest.mark.parametrize("sends", ["gradient", "weights"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("optimizer", "build", "options"),
    [(*MOMENTUM, DECAY), ("adam", torch.optim.Adam, {})],
    ids=["sgd", "adam"],
)
def test_parameters_after_the_round_are_those_of_the_client(
    sends: str,
    steps: int,
    optimizer: str,
    build: type[torch.optim.Optimizer],
    options: dict[str, float],
    make_victims: MakeVictims,
) -> None:
    training = f"batch_size=4+victims=3+local_steps={steps}+local_lr=0.1+optimizer={optimizer}"
    observation, candidates, member = make_victims(client=f"fedavg+{training}+sends={sends}")
    own = candidates.positions[1][torch.from_numpy(member[1])]
    samples = candidates.inputs[own], candidates.labels[own]
    after = trained(observation, *samples, steps, build, options)
    for name, value in parameters_after(observation, 1).items():
        torch.testing.assert_close(value, after[name], atol=1e-4, rtol=1e-3)


def trained(
    observation: Observation,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    steps: int = 3,
    build: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    options: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, torch.Tensor]:
    """Train on the whole batch with torch's optimiser, as the client did."""
    values = {
        name: torch.nn.Parameter(observation.model.get_parameter(name).detach().clone())
        for name in observation.update
    }
    optimizer = build(values.values(), lr=0.1, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = torch.func.functional_call(observation.model, values, (inputs,))
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
    return {name: value.detach() for name, value in values.items()}
