"""Optimisers of torch as specs of a client's optimiser, and the options that cannot be followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import is_tensor, nn
from torch.optim import Optimizer

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.models.parameters import trained_parameters
from gleak.optimizers.base import ClientOptimizer

FOLLOWED: dict[type[Optimizer], str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.Adagrad: "adagrad",
    torch.optim.RMSprop: "rmsprop",
}
REFUSED = ("maximize", "amsgrad", "centered")
"""Options that no spec of a client's optimiser has; they must be false."""
OPTIONS = (*REFUSED, "momentum", "nesterov", "dampening", "weight_decay", "betas", "eps", "alpha")
"""Options by which a step is computed, but for the learning rate."""
NAMES = ", ".join(kind.__name__ for kind in FOLLOWED)
ELSE = (
    f"train the captured round with one of {NAMES} of torch.optim, or save the states before and "
    "after, and gleak import --before --after says which of them explains the update best"
)
SAME = (
    "give all groups the same, or save the state dicts before and after: gleak import --before "
    "--after --truth compares the update with that of one value for all, and says how far off it is"
)


def optimizer_of(optimizer: Optimizer) -> ClientOptimizer:
    """Return the spec of an optimiser of torch, from its options.

    Raises:
        IncompatibleError: it is of another class, has an option that is not followed, or its groups
            of parameters have different ones.
    """
    name = FOLLOWED.get(type(optimizer))
    if name is None:
        raise IncompatibleError(
            f"gleak.capture: the optimizer is {type(optimizer).__name__}, whose steps are not "
            f"followed; {ELSE}"
        )
    one_rate(learning_rates(optimizer))
    specs = [_spec_of(name, group) for group in optimizer.param_groups]
    for spec in specs:
        for (field, value), (_, first) in zip(spec, specs[0], strict=True):
            if value != first:
                raise IncompatibleError(
                    f"gleak.capture: the optimizer has groups of parameters with {field}={first} "
                    f"and {field}={value}, but attacks assume one for all; {SAME}"
                )
    return specs[0]


def _spec_of(name: str, group: Mapping[str, Any]) -> ClientOptimizer:
    """Return the spec of one group of parameters."""
    for option in REFUSED:
        if group.get(option):
            raise IncompatibleError(
                f"gleak.capture: the optimizer has {option}={group[option]}, which is not "
                f"followed; leave {option} out, or {ELSE}"
            )
    if name == "adam" and group.get("decoupled_weight_decay"):
        name = "adamw"
    kind, (beta1, beta2) = find("client_optimizer", name), group.get("betas", (0, 0))
    options = {"beta1": beta1, "beta2": beta2, **group}
    fields = {
        field: value if isinstance(value := options[field], bool) else float(value)
        for field in kind.model_fields
    }
    try:
        spec = build_spec(kind, fields)
    except SpecError as error:
        raise IncompatibleError(
            f"gleak.capture: the optimizer's options: {error}; {ELSE}"
        ) from None
    assert isinstance(spec, ClientOptimizer)
    return spec


def check_parameters(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise an `IncompatibleError` unless an optimiser trains exactly what the model trains."""
    trained = trained_parameters(model)
    given = {id(value) for group in optimizer.param_groups for value in group["params"]}
    left = [name for name, value in trained.items() if id(value) not in given]
    if left:
        raise IncompatibleError(
            f"gleak.capture: the optimizer does not train {left[0]}, which requires a gradient; "
            "give it model.parameters() of this model, or freeze it with requires_grad_(False)"
        )
    foreign = given - {id(value) for value in model.parameters()}
    if foreign:
        raise IncompatibleError(
            f"gleak.capture: the optimizer trains {len(foreign)} parameters that are not in "
            "model.parameters(), so the state dict would not be the update; give the model that "
            "contains them"
        )


def learning_rates(optimizer: Optimizer) -> list[float]:
    """Return the different learning rates of an optimiser's groups of parameters.

    Those that are tensors have the digits of single precision.
    """
    rates = (group["lr"] for group in optimizer.param_groups)
    return sorted({float(f"{float(rate):.7g}" if is_tensor(rate) else rate) for rate in rates})


def one_rate(rates: Sequence[float]) -> float:
    """Return the learning rate of all groups of parameters; `IncompatibleError` for several."""
    if len(rates) > 1:
        raise IncompatibleError(
            f"gleak.capture: the optimizer has learning rates {rates}, but attacks assume one for "
            f"all parameters; {SAME}"
        )
    return rates[0]
