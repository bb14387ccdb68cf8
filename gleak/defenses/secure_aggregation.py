"""The server sees what several clients send in sum, and nothing of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.dp import DifferentialPrivacy
from gleak.defenses.none import NoDefense

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.artifacts.encodings import Encoded
    from gleak.clients.base import ClientSpec


@register("secure_aggregation")
class SecureAggregation(DefenseSpec):
    """Updates are masked so that the server can read their sum alone (Bonawitz et al. 2016).

    A victim is then a group of clients: its samples are dealt out to them in their order, in equal
    shares, each client trains on its own, and what is observed is the mean over the clients, which
    is their sum but for a number that the server knows. Of clients that take one step that is the
    gradient of all their samples, so the defence is worth what a batch of so many is worth. The
    protocol's masks cancel in the sum and are not simulated.

    In federated training the server adds up what it has chosen in any case: nothing changes.
    """

    source = "Bonawitz et al. 2016; ROG sections 2 and 7"

    clients: int = parameter(4, "whose updates are added up", source="ours", ge=2)
    each: Annotated[DefenseSpec, nested("defense")] = parameter(
        NoDefense(),
        "what each client does to its own update before it is summed",
        source="ROG section 7",
    )

    def check(self, client: ClientSpec) -> None:
        """Refuse clients whose samples cannot be dealt out once and for all.

        Raises:
            IncompatibleError: shares would differ in size, be cut by mini-batches, or change with
                the round.
        """
        held, step = (client.protocol[size] for size in ("batch_size", "mini_batch"))
        share, left = divmod(held, self.clients)
        if left:
            raise IncompatibleError(
                f"defense {self}: the {held} samples behind an update of {client} cannot be dealt "
                f"out to {self.clients} clients in equal shares; choose clients that divide them"
            )
        if step != held and share % step:
            raise IncompatibleError(
                f"defense {self}: mini_batch={step} of {client} does not divide the {share} "
                "samples of each client; choose one that does, or leave it out"
            )
        if client.rounds > 1:
            raise IncompatibleError(
                f"defense {self}: {client} is observed for several rounds, in which samples would "
                "go from one client to another; choose fedsgd or fedavg"
            )

    @property
    @override
    def summed(self) -> int:
        return self.clients

    @property
    @override
    def absolute(self) -> bool:
        """Of one client."""
        return self.each.absolute

    @property
    @override
    def remedy(self) -> str:
        """Of one client."""
        return self.each.remedy

    @override
    def converted(self, factor: float) -> Self:
        return self.model_copy(update={"each": self.each.converted(factor)})

    @override
    def at_sent_length(self, update: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of one client."""
        return self.each.at_sent_length(update)

    @model_validator(mode="after")
    def _check_each(self) -> Self:
        if self.each.summed > 1:
            raise ValueError("sums of sums are one sum: raise clients and leave out each")
        counted = isinstance(self.each, DifferentialPrivacy)
        if counted or self.each.local_gradient() is not None:
            raise ValueError(
                f"each={self.each} gives an account of a client's own privacy, and that of a sum "
                "is another; choose a defence of updates, such as gaussian"
            )
        return self

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """Of one client."""
        self.each.check_network(network, shape)

    @override
    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """Of one client."""
        return self.each.with_samples(update, model, inputs, labels)

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """Of one client."""
        return self.each.protect(update, generator, memory)
