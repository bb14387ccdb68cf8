"""Gradients of the dummy samples of many victims, for networks of any kind.

`gleak.attacks.matching.choice` chooses between these and faster methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.parts import ClientModel
from gleak.attacks.matching.pieces import FormedPiece, Piece, derivatives
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.models.differentiation import penalties, sample_losses, smoothed

Parameters = dict[str, "torch.Tensor"]


@dataclass(frozen=True)
class ClientTraining:
    """Network and local training of the clients, as far as dummy gradients depend on them.

    Args:
        model: with the broadcast parameters.
        input_shape: of a sample.
        classes: number of logits.
        trained: names of the trained parameters; the others are frozen.
        protocol: of the client, or one step of it (`Protocol.of_one_step`).
        several_victims: True if the cell has several victims, so that the outcome of an evaluation
            must not depend on the number of victims in it (see `kernels.padded_rows`).
    """

    model: torch.nn.Module
    input_shape: tuple[int, ...]
    classes: int
    trained: frozenset[str]
    protocol: Protocol = field(default_factory=Protocol)
    several_victims: bool = False

    @classmethod
    def of(cls, observation: Observation, client_model: ClientModel) -> ClientTraining:
        """Return the training to repeat, given the attacker's model of the client."""
        protocol = observation.protocol
        return cls(
            model=observation.model,
            input_shape=observation.input_shape,
            classes=observation.classes,
            trained=frozenset(observation.update),
            protocol=protocol if client_model == "unrolled" else protocol.of_one_step(),
            several_victims=observation.total_victims > 1,
        )

    def sample_losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute the client's loss of each sample from logits and labels, (M, classes); (M)."""
        return sample_losses(
            self.protocol.loss, logits, smoothed(targets, self.protocol.label_smoothing)
        )


def repeated_steps(observation: Observation, client_model: ClientModel) -> int:
    """Return the number of the client's local steps that one evaluation repeats."""
    return observation.protocol.local_steps if client_model == "unrolled" else 1


class Gradients(ABC):
    """Method of computing the dummy gradients of V victims."""

    @abstractmethod
    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: Parameters
    ) -> list[Piece]:
        """Compute the gradient of each victim's mean loss, paired with the observed one.

        Args:
            inputs: Shape (V, N, *sample shape).
            targets: Shape (V, N, classes).
            observed: by trained parameter, Shape (V, *shape).

        Returns:
            One piece for each trained parameter, differentiable in inputs and targets.
        """

    @abstractmethod
    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute logits at the broadcast parameters, differentiably; each victim by itself.

        Shape (V, N, *sample shape) to (V, N, classes).
        """

    def in_microbatches(self, count: int) -> Gradients | None:
        """Return the method for batches in micro-batches; None if their samples interact."""
        return None


class GeneralGradients(Gradients):
    """Gradients by automatic differentiation of each victim's loss at separate parameters."""

    def __init__(self, training: ClientTraining) -> None:
        self.model, self.sample_losses = training.model, training.sample_losses
        self.parameters = {
            name: value.detach()
            for name, value in training.model.named_parameters()
            if name in training.trained
        }

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: Parameters
    ) -> list[Piece]:
        gradients = self.gradients_at(self.broadcast(len(inputs)), inputs, targets)
        return [FormedPiece(name, gradients[name], observed[name]) for name in gradients]

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.model(samples.clone()) for samples in inputs])

    def broadcast(self, victims: int) -> Parameters:
        """Return the first parameters of each victim, not copied; Shape (V, *shape)."""
        return {
            name: value.expand(victims, *value.shape).requires_grad_()
            for name, value in self.parameters.items()
        }

    def gradients_at(
        self, parameters: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> Parameters:
        """Compute each victim's gradient at its parameters, differentiable in all arguments."""
        total = self.losses(parameters, inputs, targets).sum()
        gradients = torch.autograd.grad(
            total, list(parameters.values()), create_graph=True, materialize_grads=True
        )
        return dict(zip(parameters, gradients, strict=True))

    @abstractmethod
    def losses(
        self, parameters: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Compute each victim's mean loss at its parameters; Shape (V)."""

    def client_loss(
        self, parameters: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Compute one victim's mean loss; Shape ()."""
        with penalties(self.model) as added:
            logits = torch.func.functional_call(self.model, parameters, (inputs.clone(),))
        return sum(added, self.sample_losses(logits, targets)).mean()


class VmappedGradients(GeneralGradients):
    """Gradients by passes of the network that are vectorised over victims.

    The derivative is taken outside `vmap`. With `vmap(grad(...))` second derivatives through layer
    and instance norm would be wrong: torch treats their statistics as constants there.
    """

    def losses(
        self, parameters: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        losses: torch.Tensor = torch.func.vmap(self.client_loss)(parameters, inputs, targets)
        return losses


class LoopedGradients(GeneralGradients):
    """Gradients of one victim after the other, for layers that torch cannot vectorise."""

    def losses(
        self, parameters: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        by_victim = zip(*(value.unbind() for value in parameters.values()), strict=True)
        losses = [
            self.client_loss(dict(zip(parameters, values, strict=True)), *batch)
            for values, *batch in zip(by_victim, inputs, targets, strict=True)
        ]
        return torch.stack(losses)


class SamplewiseGradients(Gradients):
    """Base class of methods for networks in which the samples of a batch do not interact."""

    def in_microbatches(self, count: int) -> Gradients:
        return MicrobatchedGradients(self, count)


class MicrobatchedGradients(Gradients):
    """Weighted sum of the gradients of ``count`` micro-batches, each with a graph of its own.

    The activations of a micro-batch exist only while it is processed, once for its gradient and
    once more for the derivative. An evaluation therefore takes about 1.5 times as long.
    """

    def __init__(self, method: SamplewiseGradients, count: int) -> None:
        self.method, self.count = method, count

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: Parameters
    ) -> list[Piece]:
        formed = derivatives().MicrobatchSum.apply(self, observed, inputs, targets)
        return [
            FormedPiece(name, gradient, observed[name])
            for name, gradient in zip(observed, formed, strict=True)
        ]

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.method.logits(inputs)

    def in_microbatches(self, count: int) -> Gradients:
        return MicrobatchedGradients(self.method, count)

    def shares(
        self, observed: Parameters, inputs: torch.Tensor, targets: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]]:
        """Yield samples and labels of each micro-batch, and its share of every gradient."""
        parts = zip(inputs.chunk(self.count, 1), targets.chunk(self.count, 1), strict=True)
        for samples, labels in parts:
            share = samples.shape[1] / inputs.shape[1]
            with torch.enable_grad():
                given = samples.detach().requires_grad_(), labels.detach().requires_grad_()
                pieces = {piece.name: piece for piece in self.method(*given, observed)}
                gradients = [pieces[name].formed().gradient * share for name in observed]
            yield *given, gradients
