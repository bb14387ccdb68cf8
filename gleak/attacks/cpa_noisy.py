"""The cocktail party attack in noise: images and output gradients in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.private import UNKNOWN
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.base import MID_GREY
from gleak.attacks.cpa_edges import CPAEdges
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation


@register("cpa_noisy")
class CPANoisy(CPAEdges):
    """CPA on edges for gradients in noise, such as those of `dp` and `gaussian`.

    A batch of N images explains N singular values of the first layer's gradient; the others give
    the variance of the noise, so the attacker need not know the defence. It is used twice.

    - Noise hides the high frequencies of the images, which differences amplify. The mixtures are
      therefore smoothed as far as the noise requires (see
      `gleak.attacks.unmixing.noisy_mixtures.smooth`) before edges are separated.
    - Images that are known approximately tell nearly what the network sends for them: at each
      neuron whether it is active, and with which weight for which label. This prior, the observed
      gradients and the images give the derivatives at the layer's outputs; these, the observed
      gradients and a prior of natural images give better images
      (`gleak.attacks.unmixing.image_prior`). Both steps are repeated in turn, and each takes into
      account how uncertain the other's result is. The labels of the batch follow from the
      classifier's gradient less the probabilities that the network predicts for the images, and
      each image gets the one that suits its derivatives.

    Noise is taken to be independent and of the same variance in all values of the layer. The result
    has the labels that fit the images; samples that were not found have none.
    """

    source = "ours, after CPA section III; signal and noise by Baik and Silverstein 2006"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"turns"})
    takes_local_steps: ClassVar[bool] = False
    takes_batch_statistics: ClassVar[bool] = False

    turns: int = parameter(8, "improvements of the separated images", source="ours", ge=0)

    @override
    def _check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Raise `IncompatibleError` if there are no more neurons than samples."""
        if samples >= neurons:
            raise IncompatibleError(
                f"attack {self} measures the noise in a first dense layer with more neurons than "
                f"samples: {samples} and {neurons} ({where}); use a smaller batch_size, a wider "
                "layer, or cpa_edges"
            )

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(
            losses=("likelihood of edges", "likelihood of gradients"),
            terms=("prior of natural images",),
            optimizers=("fixed point", "quasi-Newton", "least squares in turn"),
            labels=LABELS["counts"],
        )

    @override
    def rehearse(self, observation: Observation) -> None:
        """Take one turn, for one victim of all."""
        from gleak.attacks.noisy_unmixing import unmix_victim

        small = self.model_copy(update={"turns": 1})
        unmix_victim(small, observation.of_victim(0), observation.batch_size)

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:

        from gleak.attacks.noisy_unmixing import unmix_victims

        counts, most = self.count(observation, self.mixture(observation))
        found = unmix_victims(self, observation, counts)
        shape = (observation.victims, most, *observation.input_shape)
        inputs = torch.full(shape, MID_GREY, dtype=torch.float32)
        labels = torch.full(inputs.shape[:2], UNKNOWN)
        for victim, each in enumerate(found):
            inputs[victim, : len(each.labels)] = each.samples.unflatten(1, observation.input_shape)
            labels[victim, : len(each.labels)] = each.labels
        return Reconstruction(
            inputs=inputs.float().numpy(),
            labels=labels.numpy(),
            converged=torch.tensor(counts).ge(observation.batch_size).numpy(),
            objective=torch.tensor([each.misfit for each in found]).numpy(),
            paired=True,
        )
