"""Training of clients as the server knows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.optimizers.base import ClientOptimizer
from gleak.optimizers.schedules import Constant, Schedule
from gleak.optimizers.sgd import SGD

Loss = Literal["cross_entropy", "nll_raw"]
Clipping = Literal["update", "parameter"]
Pruning = Literal["columns"]
SHORT, DEVIATIONS = 0.9, 3
"""A parameter was not clipped if its norm is below this share of that of clipped ones, and shorter
by so many standard deviations of noise."""
KINDS = {"optimizer": "client_optimizer", "schedule": "schedule"}
"""Fields that are specs, stored as text, with their kinds."""
PLAIN, CONSTANT = SGD(), Constant()


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Training of a client in one round, as far as the server knows it.

    It is what an attack must know to compute the update of other samples, and is carried whole:
    from the client's spec to ``update.h5``, whose root has every field as an attribute, and to the
    attacker's observation. A further hyperparameter of local training is a field here and in the
    client's spec, and arithmetic in `gleak.clients.local_training.LocalTraining`, which simulated
    clients and attacks that unroll the steps share. Its default must be None, so that older files
    can be read.

    Args:
        content: "gradient" (the mean of the local steps' directions, weighted by their learning
            rates: of plain gradient descent the mean gradient), or "difference" (weights after
            minus before).
        batch_size: number of samples that one client uses in one round.
        mini_batch: number of samples of one local step.
        local_steps: number of optimisation steps in one round.
        local_lr: learning rate of those steps, times the factors of the schedule.
        reduction: reduction of the loss over the samples of a batch.
        loss: see `gleak.models.differentiation`.
        batch_norm: "training" if clients normalise by the statistics of their batches; None if they
            do so by the running statistics.
        clipping: what a defence multiplies by a factor that the server does not know: the whole
            update, or each parameter; None: nothing.
        norm_if_clipped: L2 norm, as a gradient, of a parameter that a defence has clipped for one
            sample, with noise that is relative to it; None: unknown. Other noise makes it longer.
        pruning: what a defence sets to zero without saying so: columns of a dense layer's gradient;
            None: nothing.
        epochs: number of passes of the rounds over all samples of a client.
        optimizer: of the local steps.
        schedule: of their learning rates.
        clip_norm: largest L2 norm of a step's gradient, of all parameters; None: any.
        clip_value: largest magnitude of a value of a step's gradient; None: any.
        proximal: factor of half the squared distance from the broadcast parameters, which is added
            to the loss (FedProx, Li et al. 2020, Equation 2); None: none.
        label_smoothing: share of the label that is spread over all classes; None: none.
        drop_last: True if the samples that are left after an epoch's whole mini-batches are left
            out, None if they are a smaller one.
        order: "shuffled" if every epoch has an order of samples that the server does not know.
        state: "kept" if the optimiser starts with the state of an earlier round, which the server
            does not know; None: with zeros.
        clients: number of clients of which an update is the mean: the samples belong to them in
            order and in equal shares; None: one.
        autocast: "bfloat16" if the network runs in mixed precision; None: in single precision.
    """

    content: Literal["gradient", "difference"] = "gradient"
    batch_size: int = 1
    mini_batch: int = 1
    local_steps: int = 1
    local_lr: float = 1.0
    reduction: str = "mean"
    loss: Loss = "cross_entropy"
    batch_norm: str | None = None
    epochs: int = 1
    clipping: Clipping | None = None
    norm_if_clipped: float | None = None
    pruning: Pruning | None = None
    optimizer: ClientOptimizer = PLAIN
    schedule: Schedule = CONSTANT
    clip_norm: float | None = None
    clip_value: float | None = None
    proximal: float | None = None
    label_smoothing: float | None = None
    drop_last: bool | None = None
    order: Literal["shuffled"] | None = None
    state: Literal["kept"] | None = None
    clients: int | None = None
    autocast: Literal["bfloat16"] | None = None

    @cached_property
    def factors(self) -> list[float]:
        """Factors of the learning rate in each local step."""
        return self.schedule.factors(self.local_steps)

    @property
    def update_scale(self) -> float:
        """Factor from the mean direction of the local steps to the values sent, up to rounding."""
        return 1.0 if self.content == "gradient" else -self.local_lr * sum(self.factors)

    @property
    def is_linear(self) -> bool:
        """True if the mean direction is linear in the steps' gradients and the parameters."""
        clips = self.clip_norm is not None or self.clip_value is not None
        return self.optimizer.linear and self.state is None and not clips

    @property
    def shows_gradient(self) -> bool:
        """True if the mean direction determines the gradient of all samples (`gradient_response`).

        Up to a factor, if the gradient's norm was clipped, but not if several clients clipped it.
        """
        members = self.clients or 1
        whole = self.mini_batch * members >= self.batch_size
        clipped = self.clip_norm is not None and members > 1
        one_step = self.local_steps == 1 and whole and not clipped
        return one_step and replace(self, clip_norm=None).is_linear

    def may_be_clipped(self, gradient: torch.Tensor) -> bool:
        """Return False if a defence has not clipped a parameter of one sample's gradient.

        Its norm is then below that of clipped ones by more than noise explains: M values of noise
        have a squared norm whose third root is about normal (Wilson and Hilferty 1931).
        """
        if self.clipping != "parameter" or self.norm_if_clipped is None:
            return self.clipping is not None
        variance = 2 / (9 * gradient.numel())
        least = max(0, 1 - variance - DEVIATIONS * math.sqrt(variance)) ** 1.5
        return float(gradient.norm()) >= min(SHORT, least) * self.norm_if_clipped

    @property
    def is_plain(self) -> bool:
        """True if the mean direction is the mean gradient of the local steps."""
        plain = self.optimizer == PLAIN and self.schedule == CONSTANT and self.proximal is None
        return plain and self.is_linear

    def mean_response(self, parameter: float, gradient: float) -> float:
        """Compute the mean direction for a parameter whose gradient is the same in all steps."""
        moving, moments = torch.tensor(parameter, dtype=torch.float64), None
        start, constant, total = moving, torch.full_like(moving, gradient), 0.0
        moments = self.optimizer.initial(moving)
        for step, factor in enumerate(self.factors):
            given = constant + (self.proximal or 0.0) * (moving - start)
            direction, moments = self.optimizer.direction(moving, given, moments, step)
            moving = moving - factor * self.local_lr * direction
            total += factor * float(direction)
        return total / sum(self.factors)

    @cached_property
    def gradient_response(self) -> float:
        """Factor from a gradient that is the same in all steps to the mean direction.

        One of momentum, for example, is more than 1. Of a linear protocol only.
        """
        return self.mean_response(0.0, 1.0)

    @cached_property
    def decay(self) -> float:
        """Factor of the broadcast parameters in the mean direction, by weight decay.

        Of a linear protocol only.
        """
        return self.mean_response(1.0, 0.0)

    def of_one_step(self) -> Protocol:
        """Return one step of plain gradient descent on all samples.

        Updates are matched at its gradient.
        """
        return replace(
            self,
            mini_batch=self.batch_size,
            local_steps=1,
            optimizer=PLAIN,
            schedule=CONSTANT,
            clip_norm=None,
            clip_value=None,
            proximal=None,
            state=None,
        )

    def attributes(self) -> dict[str, Any]:
        """Return the fields as attributes of a file, without those that older files lack."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in KINDS:
            values[name] = None if values[name] == getattr(Protocol, name) else str(values[name])
        return values

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """Return the protocol with these attributes; see `attributes`.

        Raises:
            SpecError: text that is no spec.
        """
        read = {
            name: parse(KINDS[name], value) if name in KINDS else value
            for name, value in attributes.items()
        }
        return cls(**read)
