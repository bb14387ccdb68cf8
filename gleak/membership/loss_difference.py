"""Losses of the candidates before and after the round."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.membership.base import Candidates, MembershipSpec
from gleak.models.batching import memory_slices
from gleak.models.differentiation import sample_losses
from gleak.models.parameters import Tensors


@register("loss_difference")
class LossDifference(MembershipSpec):
    """Loss of a candidate at the broadcast parameters minus that after the client's round.

    Training on a sample lowers its loss more than that of others. Over rounds the differences are
    added.
    """

    source: ClassVar[str] = "Nasr et al. 2019; after Yeom et al. 2018"

    def sample_gradients(self, client: ClientSpec) -> float:
        return 2 / 3 * super().sample_gradients(client)

    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        samples = candidates.inputs, candidates.labels
        before = losses(observed, {}, *samples)
        after = [
            losses(observed, parameters_after(observed, victim), *samples)
            for victim in range(observed.victims)
        ]
        return candidates.of_each(before[:, None] - torch.stack(after, dim=1))


def parameters_after(observed: Observation, victim: int) -> Tensors:
    """Return the parameters of a victim's network after its local steps, by name.

    They are exact, but for what the defence changed.
    """
    protocol = observed.trained or observed.protocol
    rate = protocol.local_lr * sum(protocol.factors) / protocol.update_scale
    return {
        name: observed.model.get_parameter(name).detach() - rate * value[victim, 0].nan_to_num()
        for name, value in (observed.received or observed.update).items()
    }


def logits_of(observed: Observation, parameters: Tensors, inputs: torch.Tensor) -> torch.Tensor:
    """Compute the logits of samples with parameters in place of the broadcast ones; (M, C)."""
    with torch.no_grad():
        return torch.cat(
            [
                torch.func.functional_call(observed.model, parameters, (inputs[part].clone(),))
                for part in memory_slices(len(inputs), inputs.shape[1:])
            ]
        )


def losses(
    observed: Observation, parameters: Tensors, inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Compute the loss of each sample, with some parameters in place of the broadcast ones; (M)."""
    logits = logits_of(observed, parameters, inputs)
    targets = torch.nn.functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return sample_losses(observed.protocol.loss, logits, targets).double()
