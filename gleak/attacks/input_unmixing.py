"""Base of the attacks that unmix the samples themselves, where the first layer is dense."""

from __future__ import annotations

from typing import ClassVar, Literal

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.dense_first import MID_GREY, DenseFirstAttack
from gleak.attacks.unmixing import UnmixingAttack
from gleak.core.spec import parameter
from gleak.observation import Observation


class InputUnmixing(DenseFirstAttack, UnmixingAttack):
    """An attack on networks that begin with a dense layer; labels by CPL's rule, in their order.

    Unmixing leaves the sign and scale of each sample open. Both are read off the bias's gradient,
    never off the truth; ``mirrored`` holds the samples under the other sign, for metrics that let
    an oracle choose. Samples that could not be told apart are mid-grey, and their victim has not
    converged.
    """

    instead: ClassVar[str] = "use cpa_fi, or a model such as fc2"

    scale: Literal["bias", "range"] = parameter(
        "bias",
        "of the samples: the bias's, drawn together into [0, 1]; range: each fills [0, 1]",
        source="ours; range: CPA reference",
    )

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: the network does not begin with a dense layer that has a bias.
        """
        from gleak.attacks.first_layer import dense_layer_of_samples
        from gleak.matching.label_inference import (
            classifier_gradient,
            classifier_of,
            infer_by_argmin,
        )
        from gleak.matching.problem import mean_gradients
        from gleak.unmixing.mixtures import by_bias, by_range

        dense_layer_of_samples(observation.model, observation.input_shape)
        found = self.separate(observation)
        settle = by_bias if self.scale == "bias" else by_range
        told = found.values.isfinite().all(2)
        inputs, mirrored = (
            samples.where(told[..., None], MID_GREY).unflatten(2, observation.input_shape)
            for samples in settle(found.values, found.factors)
        )
        scores = classifier_gradient(classifier_of(observation), mean_gradients(observation))
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            mirrored=mirrored.float().cpu().numpy(),
            labels=infer_by_argmin(scores, told.shape[1]).cpu().numpy(),
            converged=(told.sum(1) >= observation.batch_size).cpu().numpy(),
            iterations=found.iterations.cpu().numpy(),
            objective=found.objective.cpu().numpy(),
        )
