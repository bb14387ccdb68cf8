"""What every defence spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.artifacts.encodings import Encoded
    from gleak.clients.base import ClientSpec
    from gleak.local_training.base import LocalGradient

Memory = dict[str, "Tensor"]
"""By parameter, what a client has not sent yet; Shape (*shape)."""


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

        What is sent is compared with this (`gleak.simulation.perturbation`).

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
            IncompatibleError: says what does not fit.
        """

    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """Refuse a network that it does not serve, told by the network itself.

        Args:
            network: untrained, in the mode that clients train it in; left as it is.
            shape: of a sample.

        Raises:
            IncompatibleError: says what the network lacks.
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
