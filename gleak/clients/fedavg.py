"""Federated averaging: clients with several local steps, observed for one or several epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.clients.base import ClientSpec
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.local_training.base import LocalGradient
    from gleak.local_training.gradient_descent import Descent, LocalDescent

LEAST_RATE = 1e-45
"""Smaller numbers are zero in single precision."""


@register("fedavg")
class FedAvg(ClientSpec):
    """Federated averaging: plain gradient descent on the client's samples (CPL section 2.1).

    The update is the mean gradient of the local steps, or the difference of the weights, which is
    -local_lr local_steps times the mean gradient. To an attacker these are the same up to rounding,
    which acts as a defence if the learning rate is small. Defences are applied to the values sent.
    Most protect both forms alike, except those with parameters in the unit of the values:
    ``gaussian`` and ``laplace`` with their default ``unit=value``, and ``dp`` with
    ``scaling=clip``. With ``unit=gradient``, or noise relative to the update (``unit=norm``), they
    do too. The metric `perturbation` measures how much a defence changed the update.

    With batch_norm=training each step normalises by its own mini-batch. The running statistics that
    the client updates meanwhile influence no gradient and are not part of the update; a client that
    sends them reveals what the grant ``batch_norm_statistics`` contains.

    Each step takes one mini-batch of the samples, epoch after epoch; if the mini-batch contains all
    samples, every step uses the whole batch, which is CPL's "gradient squeezing" (section 4.3).
    """

    source = "McMahan et al. 2017; CPL sections 2.1 and 4.3"

    local_steps: int = parameter(1, "local steps per update", source="CPL Table 9", ge=1)
    local_lr: float = parameter(
        1e-4, "learning rate of a step", source="ours; CPL names none", ge=LEAST_RATE
    )
    mini_batch: int | None = parameter(None, "samples per step; none: all", ge=1)
    sends: Literal["gradient", "weights"] = parameter(
        "gradient",
        "weights: difference of weights, -local_lr local_steps times the gradient",
        source="CPL Algorithm 1, lines 4-6",
    )
    order: Literal["fixed", "shuffled"] = parameter(
        "fixed", "order of samples; shuffled: anew for every epoch"
    )

    @property
    @override
    def content(self) -> str:
        return "gradient" if self.sends == "gradient" else "difference"

    @property
    def samples_per_round(self) -> int:
        """Number of samples of one update."""
        return self.batch_size

    @property
    def samples_per_step(self) -> int:
        """Number of samples of a mini-batch."""
        return self.mini_batch or self.samples_per_round

    @property
    @override
    def protocol(self) -> dict[str, Any]:
        return {
            "batch_size": self.samples_per_round,
            "mini_batch": self.samples_per_step,
            "local_steps": self.local_steps,
            "local_lr": self.local_lr,
            "loss": self.loss,
            "batch_norm": self._by_batch,
        }

    @property
    @override
    def gradients_per_sample(self) -> float:
        return self.local_steps * self.samples_per_step / self.samples_per_round

    @property
    @override
    def local_descent(self) -> LocalDescent | None:
        return self._descend if self.local_steps > 1 else None

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        samples, taken = self.samples_per_round, self.local_steps * self.samples_per_step
        if samples % self.samples_per_step or taken % samples:
            raise ValueError(
                f"{self.local_steps} local steps of {self.samples_per_step} samples are not a "
                f"whole number of epochs over the {samples} samples of an update; choose a "
                "mini_batch that divides them, and a multiple of an epoch's steps as local_steps"
            )
        return self

    @override
    def compute(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
    ) -> dict[str, torch.Tensor]:
        descent = self._descend(model, inputs, labels, gradient)
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
    ) -> Descent:
        from gleak.local_training.gradient_descent import descend, mini_batches

        whole_batch = self.samples_per_step == self.samples_per_round
        size = len(inputs) if whole_batch else self.samples_per_step
        batches = mini_batches(len(inputs), size, self.local_steps, self.order == "shuffled")
        return descend(model, inputs, labels, batches, self.local_lr, self.loss, gradient)


@register("epochs")
class Epochs(FedAvg):
    """Federated averaging observed for several epochs; the server keeps all updates.

    In each round every client sends an update computed from some of its samples; then the server
    takes a step of ``server_lr`` along the mean gradient, by default that of federated averaging,
    and broadcasts again. The samples are
    partitioned anew in every epoch, so the updates of a sample are computed together with other
    samples, at other parameters.
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

    @property
    @override
    def rounds(self) -> int:
        return self.epochs * (self.batch_size // self.samples_per_round)

    @property
    @override
    def samples_per_round(self) -> int:
        return self.update_size or self.batch_size

    @property
    @override
    def protocol(self) -> dict[str, Any]:
        return {**super().protocol, "epochs": self.epochs}

    @property
    @override
    def gradients_per_sample(self) -> float:
        return self.epochs * super().gradients_per_sample

    @model_validator(mode="after")
    def _check_updates(self) -> Self:
        if self.batch_size % self.samples_per_round:
            raise ValueError(
                f"update_size={self.update_size} does not divide batch_size={self.batch_size}, the "
                "samples of an epoch"
            )
        return self

    @property
    @override
    def server_rate(self) -> float:
        averaging = self.local_lr * self.local_steps
        return (averaging if self.server_lr is None else self.server_lr) / self.update_scale

    @override
    def round_positions(self, generator: torch.Generator) -> list[torch.Tensor]:

        orders = [torch.randperm(self.batch_size, generator=generator) for _ in range(self.epochs)]
        return [part for order in orders for part in order.split(self.samples_per_round)]
