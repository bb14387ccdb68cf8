"""Clients that train for several local steps before they send anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.clients.base import ClientSpec
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gleak.local_training.base import LocalGradient
    from gleak.local_training.descent import Descent, LocalDescent


@register("fedavg")
class FedAvg(ClientSpec):
    """Federated averaging: plain gradient descent over the client's samples (CPL section 2.1).

    What is sent is the mean gradient of the local steps or the difference of the weights, which is
    minus the learning rate times the number of steps times as much. To an attacker these are the
    same but for rounding, which is a defence of its own with small learning rates. Defences act on
    what is sent. Most act on both alike, but not those whose numbers are in the unit of the values:
    ``gaussian`` and ``laplace`` with their default ``unit=value``, and ``dp`` with
    ``scaling=clip``. With ``unit=gradient``, or noise relative to the update (``unit=norm``), they
    do too. The metric `perturbation` says how much a defence changed what was sent.

    A step takes a mini-batch, and as many steps go once through all samples as there are
    mini-batches; with a mini-batch of all samples every step sees the whole batch, which is CPL's
    "gradient squeezing" (section 4.3).
    """

    source = "McMahan et al. 2017; CPL sections 2.1 and 4.3"

    local_steps: int = parameter(1, "steps before the update is sent", source="CPL Table 9", ge=1)
    local_lr: float = parameter(
        1e-4, "learning rate of a step", source="ours; CPL names none", gt=0
    )
    mini_batch: int | None = parameter(None, "samples of a step; none: all", ge=1)
    sends: Literal["gradient", "weights"] = parameter(
        "gradient",
        "weights: their difference, -local_lr local_steps times the gradient",
        source="CPL Algorithm 1, lines 4-6",
    )
    order: Literal["fixed", "shuffled"] = parameter("fixed", "shuffled: anew for every pass")

    @property
    @override
    def content(self) -> str:
        return "gradient" if self.sends == "gradient" else "difference"

    @property
    def samples_of_a_round(self) -> int:
        """Samples behind one update."""
        return self.batch_size

    @property
    def samples_of_a_step(self) -> int:
        """Size of a mini-batch."""
        return self.mini_batch or self.samples_of_a_round

    @property
    @override
    def protocol(self) -> dict[str, Any]:
        return {
            "batch_size": self.samples_of_a_round,
            "mini_batch": self.samples_of_a_step,
            "local_steps": self.local_steps,
            "local_lr": self.local_lr,
            "loss": self.loss,
        }

    @property
    @override
    def gradients_per_sample(self) -> float:
        return self.local_steps * self.samples_of_a_step / self.samples_of_a_round

    @property
    @override
    def local_descent(self) -> LocalDescent | None:
        return self._descend if self.local_steps > 1 else None

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        samples, taken = self.samples_of_a_round, self.local_steps * self.samples_of_a_step
        if samples % self.samples_of_a_step or taken % samples:
            raise ValueError(
                f"{self.local_steps} local steps of {self.samples_of_a_step} samples do not go "
                f"through the {samples} of an update a whole number of times; choose a "
                "mini_batch that divides them, and local_steps a multiple of how many it makes"
            )
        return self

    @override
    def compute(
        self,
        model: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        gradient: LocalGradient | None = None,
    ) -> dict[str, Tensor]:
        found = self._descend(model, inputs, labels, gradient)
        if self.sends == "gradient":
            return {name: value[None] for name, value in found.mean_gradient.items()}
        before = dict(model.named_parameters())
        return {name: (after - before[name])[None] for name, after in found.parameters.items()}

    def _descend(
        self,
        model: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        gradient: LocalGradient | None = None,
    ) -> Descent:
        from gleak.local_training.descent import descend, mini_batches

        whole_batch = self.samples_of_a_step == self.samples_of_a_round
        size = len(inputs) if whole_batch else self.samples_of_a_step
        batches = mini_batches(len(inputs), size, self.local_steps, self.order == "shuffled")
        return descend(model, inputs, labels, batches, self.local_lr, self.loss, gradient)
