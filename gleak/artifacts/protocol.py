"""Training of clients as the server knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Loss = Literal["cross_entropy", "nll_raw"]
Clipping = Literal["update", "parameter"]
Pruning = Literal["columns"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Training of a client in one round, as far as the server knows it.

    It is what an attack must know to compute the update of other samples, and is carried whole:
    from the client's spec to ``update.h5``, whose root has every field as an attribute, and to the
    attacker's observation. A further hyperparameter of the optimiser is a field here and in the
    client's spec, and arithmetic in `gleak.clients.gradient_descent.descend` and
    `gleak.attacks.matching.unrolled`. Its default must be None, so that older files can be read.

    Args:
        content: "gradient" (the mean over local steps of the mean loss's gradient), or "difference"
            (weights after minus before).
        batch_size: number of samples that one client uses in one round.
        mini_batch: number of samples of one local step.
        local_steps: number of optimisation steps in one round.
        local_lr: learning rate of those steps.
        reduction: reduction of the loss over the samples of a batch.
        loss: see `gleak.models.differentiation`.
        batch_norm: "training" if clients normalise by the statistics of their batches; None if they
            do so by the running statistics.
        clipping: what a defence multiplies by a factor that the server does not know: the whole
            update, or each parameter; None: nothing.
        pruning: what a defence sets to zero without saying so: columns of a dense layer's gradient;
            None: nothing.
        epochs: number of passes of the rounds over all samples of a client.
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
    pruning: Pruning | None = None

    @property
    def update_scale(self) -> float:
        """Factor from the mean gradient of the local steps to the values sent, up to rounding."""
        return 1.0 if self.content == "gradient" else -self.local_lr * self.local_steps
