"""Clients that are observed for several epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.clients.fedavg import FedAvg
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("epochs")
class Epochs(FedAvg):
    """Federated averaging over several complete epochs, all of whose updates the server keeps.

    A client sends one update for each part of its samples, and all clients at once; after each
    round the server goes by ``server_lr`` along the mean of what the gradients were, and broadcasts
    again. In every epoch the parts are drawn anew, so that the updates of a sample are computed
    beside other samples, at other parameters.
    """

    source = "AGIC section IV-B"

    epochs: int = parameter(2, "passes through a client's samples", source="AGIC section V-D", ge=1)
    update_size: int | None = parameter(
        None, "samples behind one update, of batch_size that the client holds; none: all", ge=1
    )
    server_lr: float = parameter(0.01, "rate by which the server goes on", source="ours", ge=0)

    @property
    @override
    def rounds(self) -> int:
        return self.epochs * (self.batch_size // self.samples_of_a_round)

    @property
    def samples_of_a_round(self) -> int:
        """Samples behind one update."""
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
        if self.batch_size % self.samples_of_a_round:
            raise ValueError(
                f"update_size={self.update_size} does not divide batch_size={self.batch_size}, the "
                "samples that each epoch goes through"
            )
        return self

    @property
    @override
    def server_rate(self) -> float:
        """What is sent is read as a gradient."""
        return self.server_lr / self.update_scale

    @override
    def members(self, generator: Generator) -> list[Tensor]:
        """A new order for every epoch."""
        import torch

        orders = [torch.randperm(self.batch_size, generator=generator) for _ in range(self.epochs)]
        return [part for order in orders for part in order.split(self.samples_of_a_round)]
