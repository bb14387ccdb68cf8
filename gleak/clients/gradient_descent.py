"""Mini-batch gradient descent on a client's samples, in simulations and in federated training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from gleak.artifacts.protocol import Loss, Protocol
from gleak.clients.flat_parameters import FlatParameters, replaced_parameters
from gleak.clients.local_training import LocalTraining
from gleak.core.lazy import torch
from gleak.models.batching import batch_slices
from gleak.models.differentiation import penalties, sample_losses, smoothed
from gleak.models.parameters import Tensors, trained_parameters
from gleak.models.stochastic import stochastic_training_mode


class LocalGradient(ABC):
    """Substitute for the gradient of the mean loss in the local steps of one client.

    It keeps an account of the steps so far: ``noise_multipliers``, the standard deviation of each
    one's noise over the largest change by one sample (`gleak.metrics.epsilon`).
    """

    noise_multipliers: list[float]

    @abstractmethod
    def __call__(
        self,
        model: torch.nn.Module,
        parameters: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        loss: Loss,
    ) -> tuple[torch.Tensor, Tensors]:
        """Compute the mean loss over one mini-batch and the substitute for each gradient.

        Random numbers are drawn from torch's global generator, which the caller sets to the
        client's stream.

        Args:
            model: its own parameters are not changed.
            parameters: at which gradients are computed, Shape (*shape).
            inputs: Shape (B, *shape).
            labels: Shape (B).
            loss: see `gleak.models.differentiation.sample_losses`.

        Raises:
            IncompatibleError: a layer is not supported.
        """


def mini_batches(samples: int, size: int, steps: int, shuffled: bool) -> list[torch.Tensor]:
    """Return the positions of the samples of each step, epoch after epoch; Shape (size) each.

    If the size does not divide the samples, a mini-batch may extend into the next epoch. If they
    are shuffled, every epoch draws a new order from torch's global generator.
    """
    epochs = -(-steps * size // samples)
    orders = [torch.randperm(samples) if shuffled else torch.arange(samples) for _ in range(epochs)]
    return list(torch.cat(orders).split(size)[:steps])


def gradients(
    model: torch.nn.Module,
    parameters: Tensors,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    protocol: Protocol,
    gradient: LocalGradient | None = None,
) -> Tensors:
    """Compute the gradient of the mean loss over one batch, or its substitute.

    It is zero for unused parameters. Arguments as for `LocalGradient.__call__`; the parameters
    require gradients.
    """
    compute = gradient or partial(_loss_and_gradients, protocol)
    return compute(model, parameters, inputs, labels, protocol.loss)[1]


@dataclass(frozen=True)
class Descent:
    """Course of a client's local training, and mean losses before each step, Shape (T).

    Parameters of the training are flat, so that a step takes few operations.
    """

    training: LocalTraining
    losses: torch.Tensor
    flat: FlatParameters

    @property
    def parameters(self) -> Tensors:
        """Parameters after the steps."""
        return self.flat.whole(self.training.parameters)

    @property
    def mean_gradient(self) -> Tensors:
        """Mean direction of the steps, of plain gradient descent the mean gradient.

        It is exact, whereas the difference of the parameters is rounded.
        """
        return self.flat.whole(self.training.mean_direction)


LocalDescent = Callable[["torch.nn.Module", "torch.Tensor", "torch.Tensor"], Descent]
"""Function from a model, inputs (N, *shape) and labels (N) to the result of a client's steps."""


def descend(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    batches: Sequence[torch.Tensor],
    protocol: Protocol,
    gradient: LocalGradient | None = None,
    before: LocalTraining | None = None,
) -> Descent:
    """Take one step per mini-batch, without changing the model's own parameters.

    The stochastic layers of a model in evaluation mode draw random numbers, too (see
    `gleak.models.stochastic`), but batch normalisation is as in the model. A model in training mode
    normalises by the batch, and the steps update its running statistics (buffers).

    Args:
        model: at the broadcast parameters.
        inputs: Shape (N, *shape).
        labels: Shape (N).
        batches: positions of each step's samples, at least one step; see `mini_batches`.
        protocol: loss, optimiser and learning rates.
        gradient: substitute for the gradient, if the defence has one.
        before: training whose state of the optimiser is kept; None: it starts with zeros.
    """
    protocol = replace(protocol, local_steps=len(batches))
    trained: Tensors = {**trained_parameters(model)}
    flat = FlatParameters.of(trained)
    start = before.start if before else flat.flattened(trained)
    training = LocalTraining.of(protocol, start)
    if before:
        training = before.again()
    moving = {name: value.clone() for name, value in start.items()}
    training = replace(training, parameters=moving)
    attached: Tensors = {
        name: torch.nn.Parameter(value) for name, value in flat.whole(moving).items()
    }
    losses = []
    with replaced_parameters(model, attached):
        compute = gradient or partial(_loss_and_gradients, protocol, own=True)
        for batch in batches:
            mean_loss, steps = compute(model, attached, inputs[batch], labels[batch], protocol.loss)
            with torch.no_grad():
                training = training.moved(flat.flattened(steps))
            losses.append(mean_loss)
    return Descent(training, torch.stack(losses), flat)


def mixed_precision(protocol: Protocol, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which the clients' networks run."""
    if protocol.autocast is None:
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, protocol.autocast))


def _loss_and_gradients(
    protocol: Protocol,
    model: torch.nn.Module,
    parameters: Tensors,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Loss,
    own: bool = False,
) -> tuple[torch.Tensor, Tensors]:
    """Compute the mean loss and its gradient, in chunks if samples do not interact.

    Parameters may be the model's own, and the batch a copy that the model may change.
    """

    def run(samples: torch.Tensor) -> torch.Tensor:
        if own:
            return model(samples)
        return torch.func.functional_call(model, parameters, (samples.clone(),))

    mean, sums = inputs.new_zeros(()), list[torch.Tensor]()
    for chunk in batch_slices(model, inputs):
        with (
            mixed_precision(protocol, inputs.device),
            stochastic_training_mode(model, inputs[chunk]),
            penalties(model) as added,
        ):
            logits = run(inputs[chunk])
        loss_of_chunk = _mean_loss(protocol, loss, logits.to(inputs.dtype), labels[chunk], added)
        if len(logits) < len(labels):
            loss_of_chunk = len(logits) / len(labels) * loss_of_chunk
        found = torch.autograd.grad(loss_of_chunk, [*parameters.values()], materialize_grads=True)
        mean = mean + loss_of_chunk.detach()
        sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else [*found]
    return mean, dict(zip(parameters, sums, strict=True))


def _mean_loss(
    protocol: Protocol,
    loss: Loss,
    logits: torch.Tensor,
    labels: torch.Tensor,
    penalties: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Compute the mean loss of a batch with its penalties, Shape (N) each; Shape ()."""
    if loss == "cross_entropy" and not penalties:
        smoothing = protocol.label_smoothing or 0.0
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    targets = torch.nn.functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    targets = smoothed(targets, protocol.label_smoothing)
    return sum(penalties, sample_losses(loss, logits, targets)).mean()
