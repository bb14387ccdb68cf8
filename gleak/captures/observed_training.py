"""Optimiser, steps and samples of a training that is not ours, seen by PyTorch's global hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gleak.artifacts.protocol import CONSTANT, PLAIN
from gleak.captures.kept_state import state_of, steps_before
from gleak.captures.observed_gradients import GradientComparison
from gleak.captures.observed_optimizer import learning_rates, one_rate, optimizer_of
from gleak.captures.observed_schedule import schedule_of
from gleak.captures.observed_steps import batch_norm_modes, one_mode
from gleak.captures.round_folder import State, write_samples
from gleak.core.errors import IncompatibleError
from gleak.core.spec import format_spec, format_value
from gleak.models.batch_norm import TRAINING

log = logging.getLogger(__name__)
Samples = Callable[[Tensor], Tensor]
"""Function from what a network takes to values in [0, 1]; Shape (N, *shape)."""


@dataclass(frozen=True)
class Forward:
    """Forward pass of a network in training.

    Args:
        network: or a part of it that is called on its own.
        inputs: copy of what it takes, Shape (N, *shape); None: of samples nothing is to be seen,
            or what it takes was computed by another part.
    """

    network: nn.Module
    inputs: Tensor | None

    def trains(self, optimizer: Optimizer) -> bool:
        """Return True if the network holds a parameter of an optimiser, as teachers do not."""
        trained = _trained_by(optimizer)
        return any(id(value) in trained for value in self.network.parameters())


@dataclass
class ObservedTraining:
    """Training seen in an `observed` block, and its samples if they are asked for.

    Args:
        samples: from what the network takes to values in [0, 1]; None: samples are not kept.
        state: that the optimiser kept from before the block, if samples are kept and it did.
        batch_norm: as in `StepObserver`.
        unequal: numbers of samples and of labels, of steps in which they differ.
    """

    samples: Samples | None = None
    optimizers: list[Optimizer] = field(default_factory=list)
    kept_state: bool = False
    state: State | None = None
    rates: list[list[float]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    unequal: list[tuple[int, int]] = field(default_factory=list)
    batch_norm: list[bool] = field(default_factory=list)
    _gradients: GradientComparison | None = None
    _hooks: ExitStack = field(default_factory=ExitStack, compare=False)
    _depth: int = 0
    _forwards: list[Forward] = field(default_factory=list)
    _asked: list[Tensor] = field(default_factory=list)
    _kinds: dict[int, tuple[nn.Module, bool]] = field(default_factory=dict)

    def fields(self) -> dict[str, str]:
        """Return the fields of the client as its steps have shown them, as text, without defaults.

        Raises:
            IncompatibleError: no step was seen, or those of several optimisers, or of one that is
                not followed.
        """
        if not self.rates:
            raise IncompatibleError(
                "no step of a torch.optim optimizer was seen, so the training is not recorded; it "
                "must run in this process"
            )
        if len(self.optimizers) > 1:
            names = ", ".join(type(each).__name__ for each in self.optimizers)
            raise IncompatibleError(
                f"{len(self.optimizers)} optimizers took steps ({names}), so the training is not "
                "recorded; train one network with one optimizer at a time"
            )
        (optimizer,) = self.optimizers
        spec = optimizer_of(optimizer)
        rate, schedule = schedule_of([one_rate(rates) for rates in self.rates])
        recorded = {"local_steps": str(len(self.rates)), "local_lr": repr(rate)}
        if spec != PLAIN:
            recorded["optimizer"] = format_spec(spec, "~")
        if schedule != CONSTANT:
            recorded["schedule"] = format_spec(schedule, "~")
        if self.kept_state and spec.initial(torch.ones(1)):
            recorded["state"] = "kept"
        if one_mode(self.batch_norm) == TRAINING:
            recorded["batch_norm"] = TRAINING
        if self._gradients is not None:
            bounds = self._gradients.clipping.items()
            recorded |= {name: format_value(bound) for name, bound in bounds}
        return recorded | self._numbers()

    def _numbers(self) -> dict[str, str]:
        """Return the numbers of samples as fields, or none with a warning that says why."""
        if self.unequal:
            taken, labelled = self.unequal[0]
            log.warning(
                "in %d of %d steps there were other numbers of samples than of labels, first %d "
                "samples and %d labels, so batch_size, mini_batch and samples are left out; call "
                "the network and its loss once for each sample, or give --batch-size and "
                "--mini-batch to gleak import",
                len(self.unequal),
                len(self.rates),
                taken,
                labelled,
            )
        elif (
            self.sizes and {*self.sizes[:-1]} <= {self.sizes[0]} and self.sizes[-1] <= self.sizes[0]
        ):
            return {"batch_size": str(sum(self.sizes)), "mini_batch": str(self.sizes[0])}
        elif self.sizes:
            log.warning(
                "the steps took %s samples: other numbers than that of the first before the last "
                "step cannot be recorded, so batch_size and mini_batch are left out; let the "
                "loader drop_last, or train for one epoch",
                ", ".join(map(str, self.sizes)),
            )
        return {}

    @property
    def has_samples(self) -> bool:
        """True if samples are kept, with labels for all of them."""
        seen = sum(map(len, self.inputs))
        return (
            bool(seen)
            and not self.unequal
            and seen == sum(self.sizes) == sum(map(len, self.labels))
        )

    def write_samples(self, path: Path) -> None:
        """Write all samples in the order of the steps, a sample of several epochs as often."""
        assert self.samples is not None, "no samples are kept"
        converted = (self.samples(each).float() for each in self.inputs)
        write_samples(path, converted, self.labels)

    def before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not any(optimizer is each for each in self.optimizers):
            self.optimizers.append(optimizer)
            if len(self.optimizers) == 1:
                self._begin(optimizer)
        elif optimizer is self.optimizers[0] and self._gradients is not None:
            self._gradients.begin_step(args, kwargs)

    def _begin(self, optimizer: Optimizer) -> None:
        """Note what the first step shows, and compare the gradients of the next ones."""
        networks = dict.fromkeys(each.network for each in self._forwards if each.trains(optimizer))
        self.batch_norm = batch_norm_modes(networks)
        trained = _trained_by(optimizer)
        whole = [each for each in networks if trained.keys() <= {*map(id, each.parameters())}]
        self.kept_state = steps_before(optimizer) > 0
        if self.kept_state and self.samples is not None and whole:
            self.state = state_of(optimizer, whole[0])
        if self.samples is None:
            self._hooks.close()
        values = [value for value in trained.values() if value.requires_grad]
        self._gradients = self._hooks.enter_context(GradientComparison(values))

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.rates.append(learning_rates(optimizer))
        inputs = [
            each.inputs
            for each in self._forwards
            if each.inputs is not None and each.trains(optimizer)
        ]
        taken, labelled = (sum(map(len, each)) for each in (inputs, self._asked))
        if labelled not in (0, taken):
            self.unequal.append((taken, labelled))
        elif len(inputs) == len(self._asked):
            self.inputs += inputs
            self.labels += self._asked
        if taken:
            self.sizes.append(taken)
        self._forwards, self._asked = [], []

    def before_module(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note what the network and its loss take in training, not what their parts do."""
        self._depth += 1
        if self._depth > 1 or not torch.is_grad_enabled():
            return
        first, last = (arguments[0], arguments[-1]) if arguments else (None, None)
        inputs = None
        if self._is_network(module):
            if self.samples is not None and isinstance(first, Tensor) and first.is_leaf:
                inputs = first.detach().to("cpu", copy=True)
            self._forwards.append(Forward(module, inputs))
        if self.samples is not None and inputs is None and _are_labels(last):
            self._asked.append(last.detach().cpu().clone())

    def after_module(self, *_: Any) -> None:
        self._depth -= 1

    def _is_network(self, module: nn.Module) -> bool:
        """Return True if a module has parameters; asked once, as loaders call theirs so often."""
        known = self._kinds.get(id(module))
        if known is None:
            known = self._kinds[id(module)] = module, next(module.parameters(), None) is not None
        return known[1]


def _trained_by(optimizer: Optimizer) -> dict[int, Tensor]:
    """Return the parameters of an optimiser by their ids."""
    return {id(value): value for group in optimizer.param_groups for value in group["params"]}


def _are_labels(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.dtype == torch.long and value.ndim == 1


@contextmanager
def observed(samples: Samples | None = None) -> Iterator[ObservedTraining]:
    """Observe the training in the block, without a change of its code; see `ObservedTraining`."""
    with ExitStack() as stack:
        yield start_observing(stack, samples)


def start_observing(stack: ExitStack, samples: Samples | None = None) -> ObservedTraining:
    """Observe the training until a stack is closed; see `observed`."""
    seen = ObservedTraining(samples)
    stack.callback(register_optimizer_step_pre_hook(seen.before_step).remove)
    stack.callback(register_optimizer_step_post_hook(seen.after_step).remove)
    hooks = stack.enter_context(seen._hooks)
    hooks.callback(register_module_forward_pre_hook(seen.before_module).remove)
    hooks.callback(register_module_forward_hook(seen.after_module, always_call=True).remove)
    return seen
