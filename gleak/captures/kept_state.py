"""State that an optimiser keeps from earlier rounds: written with a client's truth, and replayed.

It is the client's secret as its samples are, so that it is in a file of its own, which no attack
reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gleak.captures.round_folder import State
from gleak.clients.fedavg import CapturedUpdates
from gleak.clients.flat_parameters import FlatParameters
from gleak.clients.local_training import LocalTraining
from gleak.core.errors import ArtifactError
from gleak.models.parameters import Tensors, trained_parameters, unwrapped

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "sgd": ("momentum_buffer",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
    "adagrad": ("sum",),
    "rmsprop": ("square_avg", "momentum_buffer"),
}
"""Names in torch of the parts of `ClientOptimizer.initial`, by the name of the optimiser."""
STEPS = "steps"
AGAIN = "import the round without it, or capture it again"


def steps_before(optimizer: Optimizer) -> int:
    """Return the number of steps in an optimiser's state: at least 1 if only moments tell."""
    counts = [0]
    for state in optimizer.state.values():
        buffer = state.get("momentum_buffer")
        moved = isinstance(buffer, Tensor) and bool(buffer.any())
        counts.append(max(int(state.get("step", 0)), int(moved)))
    return max(counts)


def state_of(optimizer: Optimizer, model: nn.Module) -> State:
    """Return a copy of an optimiser's state by ``<parameter>.<part>``, and its number of steps.

    Parameters that are not the model's are left out.
    """
    names: dict[Tensor, str] = {value: name for name, value in unwrapped(model).named_parameters()}
    found = {
        f"{names[parameter]}.{part}": value.detach().to("cpu", copy=True).contiguous()
        for parameter, state in optimizer.state.items()
        for part, value in state.items()
        if parameter in names and isinstance(value, Tensor) and value.shape == parameter.shape
    }
    return {STEPS: torch.tensor(steps_before(optimizer)), **found}


def training_before(
    client: CapturedUpdates, network: nn.Module, state: State, path: Path
) -> LocalTraining:
    """Return the training of which a client's optimiser has kept this state.

    Args:
        client: spec of the clients.
        network: with the broadcast parameters.
        state: as `state_of` gives it.
        path: of its file, for errors.

    Raises:
        ArtifactError: the state is not that of this optimiser for these parameters.
    """
    protocol, trained = client.protocol, trained_parameters(network)
    names = MOMENTS[protocol.optimizer.name]
    if STEPS not in state or not {f"{name}.{part}" for name in trained for part in names} & {
        *state
    }:
        raise ArtifactError(
            f"{path}: no state of {protocol.optimizer} for the parameters of the network; {AGAIN}"
        )
    parts: list[Tensors] = [{} for _ in protocol.optimizer.initial(torch.zeros(1))]
    for name, value in trained.items():
        initial = protocol.optimizer.initial(value.detach())
        for number, (part, zeros) in enumerate(zip(names, initial, strict=False)):
            kept = parts[number][name] = state.get(f"{name}.{part}", zeros)
            if kept.shape != value.shape:
                raise ArtifactError(f"{path}: {name}.{part} has another shape; {AGAIN}")
    flat = FlatParameters.of(trained)
    vectors, start = [flat.flattened(values) for values in parts], flat.flattened(trained)
    moments = {name: tuple(each[name] for each in vectors) for name in start}
    return LocalTraining(protocol, start, start, moments, steps=int(state[STEPS]))
