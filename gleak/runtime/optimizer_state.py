"""What an optimiser of torch's keeps from one step to the next, as tensors by name and back."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

SEPARATOR = ":"


def optimizer_state(optimizer: Optimizer) -> dict[str, Tensor]:
    """Its tensors, by the number of the parameter and their name."""
    return {
        f"{index}{SEPARATOR}{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def resume_optimizer(optimizer: Optimizer, state: Mapping[str, Tensor]) -> None:
    """Go on from what `optimizer_state` gave."""
    found: dict[int, dict[str, Tensor]] = {}
    for name, value in state.items():
        index, _, key = name.partition(SEPARATOR)
        found.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": found, "param_groups": groups})
