"""The attack on the first layer of a perceptron."""

from __future__ import annotations

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.dense_first import MID_GREY, DenseFirstAttack
from gleak.attacks.summary import LABELS, AttackSummary
from gleak.core.registry import register
from gleak.observation import Observation


@register("aono")
class Aono(DenseFirstAttack):
    """Weight gradient over bias gradient of the first dense layer, labels by CPL's rule.

    Exact for one sample; of a batch only mixtures come out, cut to [0, 1] (see
    `gleak.attacks.first_layer.read_inputs`). CPL describes the attack in a sentence: it "only works
    on the first layer of a multi-layer perceptron" and gives data "proportional to the private
    training data". The factor is known here: it is the bias gradient. Of local training the mean
    gradient is read, in which samples and steps mix: one sample is exact still, whatever the steps.
    A value that was not sent counts as zero. Where the bias gradient is zero the sample is
    mid-grey, and the victim has not converged.
    """

    source = "Aono et al. 2017, section 3; [2] in CPL section 4.2 and Figure 10"

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(labels=LABELS["argmin"])

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: the network does not begin with a dense layer that has a bias.
        """
        from gleak.attacks.first_layer import dense_layer_of_samples, read_inputs
        from gleak.matching.label_inference import (
            classifier_gradient,
            classifier_of,
            infer_by_argmin,
        )
        from gleak.matching.problem import mean_gradients

        observed, samples = mean_gradients(observation), observation.batch_size
        layer = dense_layer_of_samples(observation.model, observation.input_shape)
        found = read_inputs(observed[f"{layer}.weight"], observed[f"{layer}.bias"], samples)
        told = found.isfinite()
        inputs = found.where(told, MID_GREY).clamp(0, 1).unflatten(2, observation.input_shape)
        scores = classifier_gradient(classifier_of(observation), observed)
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=infer_by_argmin(scores, samples).cpu().numpy(),
            converged=told.flatten(1).all(1).cpu().numpy(),
        )
