"""Base class of defences, the one that changes nothing, and norms of updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gleak.artifacts.encodings import Dense, Encoded
from gleak.artifacts.protocol import Clipping, Protocol, Pruning
from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import LocalGradient
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec
from gleak.models.parameters import Tensors

Memory = dict[str, "torch.Tensor"]
"""Values that a client has not sent yet, by parameter; Shape (*shape)."""


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise on values that a client's data change by at most twice a norm.

    Args:
        norm: largest L2 norm of the client's part of what is observed in one round.
        deviation: standard deviation of the noise of every value.
    """

    norm: float
    deviation: float


class DefenseSpec(Spec):
    """Base class of defences: transformations of a client's update, or of its local steps.

    A defence is applied to the values sent: a gradient, or a difference of weights, which is
    -local_lr local_steps times the gradient. ``takes_single_samples`` is true if the defence treats
    each sample of a batch by itself.
    """

    kind: ClassVar[str] = "defense"
    takes_single_samples: ClassVar[bool] = False

    @property
    def clipping(self) -> Clipping | None:
        """Part of an update that is multiplied by a factor unknown to the server; None: nothing."""
        return None

    @property
    def norm_if_clipped(self) -> float | None:
        """L2 norm of a sample's parameter that was clipped, see `Protocol`; None: unknown."""
        return None

    @property
    def pruning(self) -> Pruning | None:
        """Values that the defence sets to zero without saying so; None: no such."""
        return None

    @property
    def takes_differences(self) -> bool:
        """True if the numbers of the defence are those of a difference of weights.

        Federated training then applies it to one.
        """
        return False

    def protocol_of(self, client: ClientSpec) -> Protocol:
        """Return what a server knows about the training of clients under the defence."""
        return replace(
            client.protocol,
            clipping=self.clipping,
            norm_if_clipped=self.norm_if_clipped,
            pruning=self.pruning,
        )

    @property
    def scale_dependent(self) -> bool:
        """True if parameters of the defence are in the unit of the values sent.

        Its relative effect then changes when the update is multiplied.
        """
        return self.takes_differences

    @property
    def data_dependent_noise(self) -> bool:
        """True if the noise's strength depends on, and reveals, the data: it guarantees nothing."""
        return False

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """Noise of one round that guarantees differential privacy of a client's batch, or None."""
        return None

    @property
    def guarantees_epsilon(self) -> bool:
        """True if noise guarantees differential privacy, of an update or in every local step."""
        private = self.mechanism is not None or self.local_gradient() is not None
        return private and not self.data_dependent_noise

    def stated_epsilon(self, size: int) -> float | None:
        """Return the epsilon of one round that a framework states, or None.

        Args:
            size: number of trained values of the network.
        """
        return None

    @property
    def noiseless(self) -> Self:
        """This defence without its Gaussian or Laplace noise, which a test of its privacy compares.

        By default the defence itself.
        """
        return self

    @property
    def remedy(self) -> str:
        """Advice for the log if noise dominates the update; empty for defences without noise."""
        return ""

    def rescaled(self, factor: float) -> Self:
        """Return this defence, with numbers of ``unit=gradient`` multiplied by a factor."""
        return self

    def at_sent_norm(self, update: Tensors) -> Tensors:
        """Return the update with the L2 norm at which it is sent, if the defence fixes the norm.

        This is the reference of the perturbation (`gleak.simulation.victims`). Shape (R, *shape) of
        each parameter, before the defence and in the result.
        """
        return update

    @property
    def clients_per_update(self) -> int:
        """Number of clients whose updates are summed before the server observes them."""
        return 1

    @property
    def needs_samples(self) -> bool:
        """True if the defence uses or divides the client's samples, or changes its local steps."""
        uses_samples = type(self).with_samples is not DefenseSpec.with_samples
        return uses_samples or self.clients_per_update > 1 or self.local_gradient() is not None

    def check(self, client: ClientSpec) -> None:
        """Raise if the defence does not support a client, as far as its spec tells.

        Raises:
            IncompatibleError: the client is not supported.
        """
        if self.takes_single_samples and client.batch_norm == "training":
            raise IncompatibleError(
                f"defense {self} treats every sample by itself, but client {client} normalises by "
                "the whole batch; leave out batch_norm, or choose a defence of the update"
            )
        if self.local_gradient() is not None and (client.label_smoothing or client.autocast):
            raise IncompatibleError(
                f"defense {self} computes gradients of its own, in single precision and without "
                f"label smoothing, but client {client} has these; leave out autocast and "
                "label_smoothing, or choose a defence of the update"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        """Raise if the defence does not support a network, in the mode in which clients train it.

        Raises:
            IncompatibleError: the network is not supported.
        """

    def check_members(self, members: int) -> None:
        """Raise if the server's part of the defence does not suit so many updates of a round.

        Raises:
            IncompatibleError: it does not.
        """

    def local_gradient(self) -> LocalGradient | None:
        """Return the substitute for the gradient in all local steps of one client, or None."""
        return None

    def with_samples(
        self, update: Tensors, model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor
    ) -> Tensors:
        """Apply the part of the defence that needs the client's samples, before `protect`.

        Args:
            update: by parameter, Shape (R, *shape).
            model: model with the broadcast parameters; not changed.
            inputs: Shape (N, *shape).
            labels: Shape (N).

        Returns:
            The same parameters, Shape (R, *shape).
        """
        return update

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """Apply the defence to one client's update and encode the result; by default, encode it.

        Args:
            update: by parameter, Shape (R, *shape).
            generator: random stream of this client.
            memory: values not sent in earlier rounds, changed in place; empty at first.

        Returns:
            Every parameter, encoded with a leading victim axis of size 1 (`encode`); zeros if it is
            not sent.
        """
        return {name: encode(value) for name, value in update.items()}

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode values that a server decoded, as far as they tell how they were sent.

        An attacker then knows masks, codes and bases, as from ``update.h5``. By default all values
        were sent.

        Args:
            update: by parameter, Shape (R, *shape).

        Returns:
            Every parameter, encoded with a leading victim axis of size 1.

        Raises:
            ArtifactError: the defence does not send such values.
        """
        return {name: encode(value) for name, value in update.items()}

    def decode_alike(
        self, update: Tensors, sent: Mapping[str, Encoded], generator: torch.Generator
    ) -> Tensors:
        """Return what a server decodes of an update that is sent as another one was.

        By default with random numbers of its own; a defence whose choices ``sent`` tells repeats
        them.

        Args:
            update: by parameter, Shape (R, *shape).
            sent: encoded parameters of the other update, with a leading victim axis of size 1.
            generator: random stream.
        """
        protected = self.protect({**update}, generator, {})
        return {name: torch.from_numpy(own.decode()[0]) for name, own in protected.items()}

    def protect_mean(
        self, mean: Tensors, computed: Sequence[Tensors], generator: torch.Generator
    ) -> Tensors:
        """Apply the server's part of the defence to the mean of several clients' updates.

        Args:
            mean: of what the clients send, by parameter; Shape (R, *shape).
            computed: of each client, before its defence.
            generator: random stream of the server in this round.
        """
        return mean


@register("none")
class NoDefense(DefenseSpec):
    """The update is sent as computed."""


def encode(value: torch.Tensor) -> Dense:
    """Encode one client's parameter without compression, with a leading victim axis of size 1."""
    return Dense(value.numpy()[None])


def update_norms(update: Tensors) -> torch.Tensor:
    """Compute the L2 norm of all parameters as one vector, in double precision; Shape (R)."""
    flat = [value.reshape(len(value), -1) for value in update.values()]
    norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in flat]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def per_round(numbers: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Reshape one number per round for broadcasting with a parameter; (R) to (R, 1, ...)."""
    return numbers.reshape(-1, *[1] * (value.ndim - 1))


def scale_rounds(value: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Multiply each round of a parameter, (R, *shape), by a factor, (R), and keep its data type."""
    return (value * per_round(factors, value)).to(value.dtype)
