"""Steps of an optimiser as hooks see them: learning rates, modes and other optimisers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gleak.captures.observed_gradients import GradientComparison
from gleak.captures.observed_optimizer import OPTIONS, learning_rates
from gleak.models.batch_norm import TRAINING, batch_norm_layers
from gleak.models.parameters import trained_parameters

log = logging.getLogger(__name__)


@dataclass
class StepObserver:
    """Context in which the steps of an optimiser on a model are observed, without changing them.

    Nothing is raised before the training is over.

    Attributes:
        rates: learning rates of the groups of parameters in each step.
        gradients: compared when each step begins.
        others: names of other optimisers that took steps on the same parameters.
        changed: names of the optimiser's options that changed.
        batch_norm: for each layer of batch normalisation, True if it was in training mode in the
            first step.
    """

    model: nn.Module
    optimizer: Optimizer
    rates: list[list[float]] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    batch_norm: list[bool] = field(default_factory=list)

    def __enter__(self) -> Self:
        parameters = [*trained_parameters(self.model).values()]
        self._own = {id(value) for value in parameters}
        self._options = _options(self.optimizer)
        with ExitStack() as stack:
            self.gradients = stack.enter_context(GradientComparison(parameters))
            stack.callback(register_optimizer_step_pre_hook(self._step).remove)
            self._hooks = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a step of any optimiser, before it is taken."""
        if optimizer is not self.optimizer:
            groups = (group["params"] for group in optimizer.param_groups)
            if any(id(value) in self._own for params in groups for value in params):
                self.others.add(type(optimizer).__name__)
            return
        if not self.rates:
            self.batch_norm = batch_norm_modes([self.model])
        if (options := _options(optimizer)) != self._options:
            self.changed |= {name for name, _ in {*options} ^ {*self._options}}
        self.rates.append(learning_rates(optimizer))
        self.gradients.begin_step(args, kwargs)


def batch_norm_modes(networks: Iterable[nn.Module]) -> list[bool]:
    """Return for each layer of batch normalisation of networks if it is in training mode."""
    return [layer.training for network in networks for layer in batch_norm_layers(network)]


def one_mode(modes: Sequence[bool]) -> str:
    """Return the mode of batch normalisation of a client, with a warning if layers have several."""
    if any(modes) and not all(modes):
        log.warning(
            "gleak.capture: %d of %d layers of batch normalisation were in training mode, the "
            "others in evaluation mode; attacks assume one mode for all, and evaluation is "
            "recorded. If those in training mode matter more, give batch_norm='training' to "
            "gleak.capture, or --batch-norm training to gleak import, which says with the true "
            "samples how far each is from the update",
            sum(modes),
            len(modes),
        )
    return TRAINING if modes and all(modes) else "evaluation"


def _options(optimizer: Optimizer) -> list[tuple[str, Any]]:
    """Return the options of an optimiser's groups of parameters that are not the learning rate."""
    return [(name, group.get(name)) for group in optimizer.param_groups for name in OPTIONS]
