"""Distributed SGD, and federated averaging: simulated for one or several epochs, or captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import model_validator

from gleak.artifacts.protocol import Protocol
from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import (
    Descent,
    LocalDescent,
    LocalGradient,
    descend,
    gradients,
)
from gleak.clients.local_training import LocalTraining, epoch_batches, steps_of_epoch
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import FILE_NAME, Spec, parameter
from gleak.data.base import DatasetSpec
from gleak.models.parameters import Tensors, trained_parameters
from gleak.optimizers.base import ClientOptimizer
from gleak.optimizers.schedules import Constant, Schedule
from gleak.optimizers.sgd import SGD


@register("fedsgd")
class FedSGD(ClientSpec):
    """Distributed SGD: one gradient of the mean loss over one batch (CPL section 2.1)."""

    def compute(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
    ) -> Tensors:
        trained: Tensors = {**trained_parameters(model)}
        update = gradients(model, trained, self.feed(inputs), labels, self.protocol, gradient)
        return {name: value[None] for name, value in update.items()}


@register("fedavg")
class FedAvg(ClientSpec):
    """Federated averaging: local steps of an optimiser on the client's samples (CPL section 2.1).

    The update is the difference of the weights, or the mean direction of the local steps, from
    which it differs by the factor -local_lr local_steps. Of plain gradient descent the mean
    direction is the mean gradient. To an attacker these are the same up to rounding, which acts as
    a defence if the learning rate is small. Defences are applied to the values sent.
    They protect both forms alike, except those with parameters in the unit of the values:
    ``gaussian`` and ``laplace`` with the default ``unit=value``, ``dp`` with ``scaling=clip``.
    The metric `perturbation` measures how much a defence changed the update.

    With batch_norm=training each step normalises by its own mini-batch. The running statistics that
    the client updates meanwhile influence no gradient and are not part of the update; a client that
    sends them reveals what the grant ``batch_norm_statistics`` contains.

    With an augmentation every epoch draws anew; attackers do not know of it, those of the first
    epoch are what is recovered and scored.

    Each step takes one mini-batch of the samples, epoch after epoch; if the mini-batch contains all
    samples, every step uses the whole batch, which is CPL's "gradient squeezing" (section 4.3).
    """

    source = "McMahan et al. 2017; CPL sections 2.1 and 4.3"

    local_steps: int = parameter(1, "local steps per update", source="CPL Table 9", ge=1)
    local_lr: float = parameter(
        1e-4, "learning rate of a step", source="ours; CPL names none", ge=1e-45
    )
    """Smaller numbers are zero in single precision."""
    mini_batch: int | None = parameter(None, "samples per step; none: all", ge=1)
    sends: Literal["gradient", "weights"] = parameter(
        "gradient",
        "weights: difference of weights, -local_lr local_steps times the gradient",
        source="CPL Algorithm 1, lines 4-6",
    )
    order: Literal["fixed", "shuffled"] = parameter(
        "fixed", "order of samples; shuffled: anew for every epoch"
    )
    drop_last: bool = parameter(
        False, "true: the last mini-batch of an epoch is left out if it is smaller", source="torch"
    )
    optimizer: Annotated[ClientOptimizer, nested("client_optimizer")] = parameter(
        SGD(), "optimiser of the local steps", source="McMahan et al. 2017"
    )
    schedule: Annotated[Schedule, nested("schedule")] = parameter(
        Constant(), "of the learning rate over the local steps", source="McMahan et al. 2017"
    )
    clip_norm: float | None = parameter(
        None, "largest norm of a step's gradient, of all parameters; none: any", gt=0
    )
    clip_value: float | None = parameter(
        None, "largest magnitude of a value of a step's gradient; none: any", gt=0
    )
    proximal: float | None = parameter(
        None,
        "factor of half the squared distance from the broadcast parameters, added to the loss",
        source="FedProx, Li et al. 2020, Equation 2",
        gt=0,
    )
    state: Literal["zero", "kept"] = parameter(
        "zero", "of the optimiser; kept: as after an earlier round on the same samples"
    )

    @property
    def samples_per_round(self) -> int:
        """Number of samples of one update."""
        return self.batch_size

    @property
    def samples_per_step(self) -> int:
        """Number of samples of a mini-batch."""
        return self.mini_batch or self.samples_per_round

    @property
    def protocol(self) -> Protocol:
        return replace(
            super().protocol,
            content="gradient" if self.sends == "gradient" else "difference",
            batch_size=self.samples_per_round,
            mini_batch=self.samples_per_step,
            local_steps=self.local_steps,
            local_lr=self.local_lr,
            optimizer=self.optimizer,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            clip_value=self.clip_value,
            proximal=self.proximal,
            drop_last=self.drop_last or None,
            order="shuffled" if self.order == "shuffled" else None,
            state="kept" if self.state == "kept" else None,
        )

    @property
    def gradients_per_sample(self) -> float:
        return self.local_steps * self.samples_per_step / self.samples_per_round

    @property
    def uses_per_sample(self) -> int:
        passes = ceil(self.local_steps / steps_of_epoch(self.protocol, self.samples_per_round))
        return passes * (2 if self.state == "kept" else 1)

    @property
    def local_descent(self) -> LocalDescent | None:
        return self._descend if self.local_steps > 1 else None

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.samples_per_step > self.samples_per_round:
            raise ValueError(
                f"mini_batch={self.samples_per_step} is more than the {self.samples_per_round} "
                "samples of an update; leave it out for steps of all samples"
            )
        self.schedule.check(self.local_steps)
        return self

    def compute(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
    ) -> Tensors:
        return self._sent(model, self._descend(model, inputs, labels, gradient))

    def _sent(self, model: torch.nn.Module, descent: Descent) -> Tensors:
        """Return what a client sends after its steps; Shape (1, *shape)."""
        if self.sends == "gradient":
            return {name: value[None] for name, value in descent.mean_gradient.items()}
        before = dict(model.named_parameters())
        return {name: (after - before[name])[None] for name, after in descent.parameters.items()}

    def _descend(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
        before: LocalTraining | None = None,
    ) -> Descent:
        """Take the local steps; ``before`` is the training whose state was kept, if it is known."""
        protocol = self.protocol
        if protocol.mini_batch == protocol.batch_size:  # of a share, if clients are summed
            protocol = replace(protocol, mini_batch=len(inputs))
        samples = self._fed(inputs, protocol)
        targets = labels.repeat(len(samples) // len(inputs))
        if self.state == "kept" and before is None:
            batches, earlier = self._batches(protocol, len(inputs)), self._fed(inputs, protocol)
            before = descend(model, earlier, targets, batches, protocol, gradient).training
        batches = self._batches(protocol, len(inputs))
        return descend(model, samples, targets, batches, protocol, gradient, before)

    def _fed(self, inputs: torch.Tensor, protocol: Protocol) -> torch.Tensor:
        """Return the samples of all epochs in a row, or of one if they are alike in all."""
        if not self.augmentation:
            return inputs
        epochs = -(-protocol.local_steps // steps_of_epoch(protocol, len(inputs)))
        return torch.cat([self.feed(inputs) for _ in range(epochs)])

    def _batches(self, protocol: Protocol, samples: int) -> list[torch.Tensor]:
        """Return the positions of each step's samples among those of `_fed`."""
        batches, length = epoch_batches(protocol, samples), steps_of_epoch(protocol, samples)
        if not self.augmentation:
            return batches
        return [batch + step // length * samples for step, batch in enumerate(batches)]


@register("epochs")
class Epochs(FedAvg):
    """Federated averaging observed for several epochs; the server keeps all updates.

    In each round every client sends an update computed from some of its samples; then the server
    takes a step of ``server_lr`` along the mean gradient, by default that of federated averaging,
    and broadcasts again. The samples are partitioned anew in every epoch, so the updates of a
    sample are computed together with other samples, at other parameters. Between two epochs other
    clients may train the network, on the train split (``between=central~epochs=1``).
    """

    source = "AGIC section IV-B"

    epochs: int = parameter(2, "epochs over a client's samples", source="AGIC section V-D", ge=1)
    update_size: int | None = parameter(
        None, "samples per update, out of the client's batch_size; none: all", ge=1
    )
    server_lr: float | None = parameter(
        None,
        "learning rate of the server; none: local_lr local_steps, which averages the clients' "
        "parameters",
        source="McMahan et al. 2017",
        ge=0,
    )
    between: Annotated[Spec, nested("training")] | None = parameter(
        None,
        "training of the network by other clients between two epochs; none: it moves by these "
        "clients' updates alone",
        source="AGIC section V-D: an epoch",
    )

    @property
    def rounds(self) -> int:
        return self.epochs * (self.batch_size // self.samples_per_round)

    @property
    def samples_per_round(self) -> int:
        return self.update_size or self.batch_size

    @property
    def protocol(self) -> Protocol:
        return replace(super().protocol, epochs=self.epochs)

    @property
    def gradients_per_sample(self) -> float:
        return self.epochs * super().gradients_per_sample

    @property
    def uses_per_sample(self) -> int:
        return self.epochs * super().uses_per_sample

    @model_validator(mode="after")
    def _check_updates(self) -> Self:
        if self.augmentation:
            raise ValueError(
                f"augmentation={self.augmentation} draws anew for every update, so that there are "
                "no samples to recover from all; use client fedavg"
            )
        if self.between is not None and not callable(getattr(self.between, "fit", None)):
            raise ValueError(
                f"between={self.between} does not train a network further; use central or federated"
            )
        if self.batch_size % self.samples_per_round:
            raise ValueError(
                f"update_size={self.update_size} does not divide batch_size={self.batch_size}, the "
                "samples of an epoch"
            )
        return self

    @property
    def server_rate(self) -> float:
        averaging = self.local_lr * sum(self.protocol.factors)
        rate = averaging if self.server_lr is None else self.server_lr
        return rate / self.protocol.update_scale

    def training_before(self, number: int) -> Spec | None:
        begins = number > 0 and number % (self.batch_size // self.samples_per_round) == 0
        return self.between if begins else None

    def round_positions(self, generator: torch.Generator) -> list[torch.Tensor]:
        orders = [torch.randperm(self.batch_size, generator=generator) for _ in range(self.epochs)]
        return [part for order in orders for part in order.split(self.samples_per_round)]


@register("captured")
class CapturedUpdates(FedAvg):
    """Real clients, whose updates are read from a capture, ``<data_dir>/captures/<capture>/``.

    ``gleak import`` writes the capture and prints this spec; see docs/guide/real-updates.md. The
    fields are the clients' hyperparameters as known to the server; a capture with other values is
    refused. They are those of federated averaging, which the clients are assumed to use: if the
    true samples are known, drift and the check of an import are computed under this assumption.
    """

    source = "the user's own updates"

    repeats: Literal[1] = parameter(1, "every captured client is one victim")
    first: Literal[0] = parameter(0, "not drawn: given by the capture")
    labels: Literal["random"] = parameter("random", "not drawn: given by the capture")
    classes: None = parameter(None, "not drawn: given by the capture")
    augmentation: None = parameter(None, "not drawn: samples are given as the network got them")
    sends: Literal["gradient", "weights"] = parameter(
        "weights", "captured updates: differences of weights, or gradients"
    )
    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)

    @property
    def draw(self) -> tuple[object, ...]:
        return ("captured", self.capture)

    def repeat(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        before: LocalTraining | None,
    ) -> Tensors:
        """Compute an update as `compute` does, with the state that the optimiser kept, if known.

        Args:
            model: with the broadcast parameters.
            inputs: Shape (N, *shape).
            labels: Shape (N).
            before: training after which the state was kept; None: as `compute` assumes.
        """
        return self._sent(model, self._descend(model, inputs, labels, before=before))

    def check(self, dataset: DatasetSpec) -> None:
        """Accept any dataset, because no samples are drawn from it."""

    @property
    def required_specs(self) -> Mapping[str, str]:
        training = f"captured+capture={self.capture}"
        return {"training": training, "crafting": "honest"}
