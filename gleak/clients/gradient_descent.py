"""Mini-batch gradient descent on a client's samples, in simulations and in federated training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gleak.artifacts.protocol import Loss, Protocol
from gleak.core.lazy import torch
from gleak.models.batching import batch_slices
from gleak.models.differentiation import penalties, sample_losses
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
    loss: Loss,
    gradient: LocalGradient | None = None,
) -> Tensors:
    """Compute the gradient of the mean loss over one batch, or its substitute.

    It is zero for unused parameters. Arguments as for `LocalGradient.__call__`; the parameters
    require gradients.
    """
    return (gradient or _loss_and_gradients)(model, parameters, inputs, labels, loss)[1]


@dataclass(frozen=True)
class Descent:
    """Parameters after some steps, their mean gradient, and mean losses before each, Shape (T).

    The mean gradient is exact, whereas the difference of the parameters is rounded.
    """

    parameters: Tensors
    mean_gradient: Tensors
    losses: torch.Tensor


LocalDescent = Callable[["torch.nn.Module", "torch.Tensor", "torch.Tensor"], Descent]
"""Function from a model, inputs (N, *shape) and labels (N) to the result of a client's steps."""


def descend(
    model: torch.nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    batches: Sequence[torch.Tensor],
    protocol: Protocol,
    gradient: LocalGradient | None = None,
) -> Descent:
    """Take one step per mini-batch, without changing the model's own parameters.

    The stochastic layers of a model in evaluation mode draw random numbers, too (see
    `gleak.models.stochastic`), but batch normalisation is as in the model. A model in training mode
    normalises by the batch, and the steps update its running statistics (buffers).

    Batches are the positions of each step's samples, at least one step; see `mini_batches`. The
    protocol gives learning rate and loss, a defence a substitute for the gradient.
    """
    compute = gradient or _loss_and_gradients
    parameters = {name: value.detach().clone() for name, value in trained_parameters(model).items()}
    sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
    losses = []
    for batch in batches:
        attached = {name: value.requires_grad_() for name, value in parameters.items()}
        mean_loss, steps = compute(model, attached, inputs[batch], labels[batch], protocol.loss)
        parameters = {
            name: attached[name].detach() - protocol.local_lr * steps[name] for name in attached
        }
        sums = {name: sums[name] + steps[name] for name in sums}
        losses.append(mean_loss)
    mean_gradient = {name: value / len(batches) for name, value in sums.items()}
    return Descent(parameters, mean_gradient, torch.stack(losses))


def _loss_and_gradients(
    model: torch.nn.Module,
    parameters: Tensors,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Loss,
) -> tuple[torch.Tensor, Tensors]:
    """Compute the mean loss and its gradient, in chunks if samples do not interact."""
    mean = inputs.new_zeros(())
    sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for chunk in batch_slices(model, inputs):
        with stochastic_training_mode(model, inputs[chunk]), penalties(model) as added:
            logits = torch.func.functional_call(model, parameters, (inputs[chunk].clone(),))
        targets = torch.nn.functional.one_hot(labels[chunk], logits.shape[1]).to(logits.dtype)
        share = len(labels[chunk]) / len(labels)
        chunk_loss = share * sum(added, sample_losses(loss, logits, targets)).mean()
        mean += chunk_loss.detach()
        gradients = torch.autograd.grad(chunk_loss, [*parameters.values()], materialize_grads=True)
        for total, value in zip(sums.values(), gradients, strict=True):
            total += value
    return mean, sums
