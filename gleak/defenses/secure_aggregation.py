"""Secure aggregation: the server only observes the sum of several clients' updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Self

from pydantic import model_validator

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.protocol import Clipping, Protocol, Pruning
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, NoDefense
from gleak.models.parameters import Tensors


class ClientGroup(DefenseSpec):
    """Base of defences under which only the mean of several clients' updates is observed.

    A victim is then a group of clients. Its samples are divided among them in order and in equal
    shares, and each client trains on its own share.
    """

    clients: int = parameter(4, "clients whose updates are summed", source="ours", ge=2)

    def check(self, client: ClientSpec) -> None:
        if client.batch_norm == "training":
            raise IncompatibleError(
                f"defense {self}: with batch_norm=training each client of the sum normalises by "
                f"its own samples, and attacks take the samples of {client} for one batch; leave "
                "out batch_norm"
            )
        if not client.protocol.optimizer.linear:
            raise IncompatibleError(
                f"defense {self}: the mean of the clients' steps by optimizer="
                f"{client.protocol.optimizer} is no step on all samples, for which attacks take "
                "it; use optimizer=sgd"
            )
        samples, step = client.protocol.batch_size, client.protocol.mini_batch
        share, remainder = divmod(samples, self.clients)
        if remainder:
            raise IncompatibleError(
                f"defense {self}: the {samples} samples of an update of {client} cannot be divided "
                f"equally among {self.clients} clients; choose clients that divide them"
            )
        if step != samples and share % step:
            raise IncompatibleError(
                f"defense {self}: mini_batch={step} of {client} does not divide the {share} "
                "samples of each client; choose one that does, or leave it out"
            )
        if client.rounds > 1:
            raise IncompatibleError(
                f"defense {self}: {client} is observed for several rounds, in which samples would "
                "move between clients; choose fedsgd or fedavg"
            )

    def protocol_of(self, client: ClientSpec) -> Protocol:
        return replace(super().protocol_of(client), clients=self.clients)

    @property
    def clients_per_update(self) -> int:
        return self.clients


@register("secure_aggregation")
class SecureAggregation(ClientGroup):
    """Updates are masked so that the server can only read their sum (Bonawitz et al. 2016).

    A victim is then a group of clients. Its samples are divided among them in order and in equal
    shares, each client trains on its own share, and the server observes the mean over the clients,
    which is their sum up to a known factor. For clients that take one step this is the gradient of
    all their samples, so the defence protects as much as a batch of that size. The protocol's masks
    cancel in the sum and are not simulated. All other properties are those of the defence ``each``
    of a client.

    In federated training the server sums the updates of the chosen clients in any case, so the
    defence changes nothing.
    """

    source = "Bonawitz et al. 2016; ROG sections 2 and 7"

    each: Annotated[DefenseSpec, nested("defense")] = parameter(
        NoDefense(),
        "defence that each client applies to its own update before the sum",
        source="ROG section 7",
    )

    def check(self, client: ClientSpec) -> None:
        self.each.check(client)
        super().check(client)

    @property
    def clipping(self) -> Clipping | None:
        return self.each.clipping

    @property
    def pruning(self) -> Pruning | None:
        return self.each.pruning

    @property
    def takes_differences(self) -> bool:
        return self.each.takes_differences

    @property
    def scale_dependent(self) -> bool:
        return self.each.scale_dependent

    @property
    def data_dependent_noise(self) -> bool:
        return self.each.data_dependent_noise

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"each": self.each.noiseless})

    @property
    def remedy(self) -> str:
        return self.each.remedy

    def rescaled(self, factor: float) -> Self:
        return self.model_copy(update={"each": self.each.rescaled(factor)})

    def at_sent_norm(self, update: Tensors) -> Tensors:
        return self.each.at_sent_norm(update)

    @model_validator(mode="after")
    def _check_each(self) -> Self:
        if self.each.clients_per_update > 1:
            raise ValueError("nested sums are one sum: raise clients and leave out each")
        if self.each.mechanism is not None or self.each.local_gradient() is not None:
            raise ValueError(
                f"each={self.each} has a privacy guarantee per client, which differs from that of "
                "the sum; choose a defence without a guarantee, such as gaussian"
            )
        return self

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        self.each.check_network(network, shape)

    def with_samples(
        self, update: Tensors, model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor
    ) -> Tensors:
        return self.each.with_samples(update, model, inputs, labels)

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return self.each.protect(update, generator, memory)
