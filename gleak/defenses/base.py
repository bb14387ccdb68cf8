"""What every defence spec provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from gleak.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.artifacts.encodings import Encoded
    from gleak.clients.base import ClientSpec

Memory = dict[str, "Tensor"]
"""By parameter, what a client has not sent yet; Shape (*shape)."""


class LocalGradient(ABC):
    """What a client takes its local steps by, where that is not the gradient of the mean loss.

    It belongs to one client and keeps account of the client's steps.

    Args:
        noise_multipliers: of each step so far, the standard deviation of its noise over how far one
            sample can move it; see `gleak.metrics.privacy`.
    """

    noise_multipliers: list[float]

    @abstractmethod
    def __call__(
        self,
        model: nn.Module,
        parameters: dict[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        loss: str,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over one mini-batch, and for each parameter what takes the gradient's place.

        Random numbers are torch's own, set by the caller to the client's stream.

        Args:
            model: whose own parameters are left as they are.
            parameters: at which gradients are taken, Shape (*shape).
            inputs: Shape (B, *shape).
            labels: Shape (B).
            loss: see `gleak.models.losses`.
        """


class DefenseSpec(Spec):
    """What a client does to its update before sending it, or to the steps that lead there.

    It acts on what is sent: a gradient, or a difference of weights, which is -local_lr local_steps
    times as much.
    """

    kind: ClassVar[str] = "defense"

    @property
    def absolute(self) -> bool:
        """Whether it acts otherwise, relative to the update, on an update that is multiplied.

        So it is if numbers of the spec are in the unit of the values sent.
        """
        return False

    @property
    def remedy(self) -> str:
        """What to do where most of what is sent is noise; empty if it adds none."""
        return ""

    def converted(self, factor: float) -> Self:
        """This defence for values that are ``factor`` times a gradient.

        Numbers that are stated for the gradient (``unit=gradient``) become those of the values.
        """
        return self

    def at_sent_length(self, update: dict[str, Tensor]) -> dict[str, Tensor]:
        """The update, of the length (L2) at which it is sent if the defence chooses that.

        What is sent is compared with this (`gleak.clients.perturbation`).

        Args:
            update: before the defence, for each parameter, Shape (R, *shape).

        Returns:
            The same parameters, Shape (R, *shape).
        """
        return update

    @property
    def summed(self) -> int:
        """Clients whose updates are added up before the server sees them; 1: it sees each."""
        return 1

    def check(self, client: ClientSpec) -> None:
        """Refuse clients that it does not serve, as far as is known before any work.

        Raises:
            FitError: says what does not fit.
        """

    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """Refuse a network that it does not serve, told by the network itself.

        Args:
            network: untrained, in the mode that clients train it in; left as it is.
            shape: of a sample.

        Raises:
            FitError: says what the network lacks.
        """

    def local_gradient(self) -> LocalGradient | None:
        """What one client takes all of its local steps by; None: the gradient of the mean loss."""
        return None

    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """What becomes of an update while the client has its samples at hand; then see `protect`.

        Args:
            update: for each parameter, Shape (R, *shape).
            model: holds the broadcast parameters; left as it is.
            inputs: Shape (N, *shape).
            labels: Shape (N).

        Returns:
            The same parameters, Shape (R, *shape).
        """
        return update

    @abstractmethod
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """One client's update as sent.

        Args:
            update: for each parameter, Shape (R, *shape).
            generator: this client's own random stream.
            memory: what this client kept back in earlier rounds, changed in place; empty at first.

        Returns:
            The same parameters in the form they travel, victim axis of size 1 in front.
        """
