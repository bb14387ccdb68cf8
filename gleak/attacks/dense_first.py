"""Attacks on networks whose first layer is dense: base class and the attack by Aono et al."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.base import MID_GREY, AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


class DenseFirstAttack(AttackSpec):
    """Base class of attacks that recover samples from a dense layer whose inputs they are.

    ``instead`` is the advice of the error for networks that begin with a convolution.
    """

    instead: ClassVar[str] = "use mlp or fc2"

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if model.first_layer == "convolution":
            raise IncompatibleError(
                f"attack {self} needs a first layer that is dense, but model {model} begins with a "
                f"convolution; {self.instead}"
            )

    @override
    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the first and the last layer are dense."""
        from gleak.attacks.first_layer import dense_layer_of_samples
        from gleak.attacks.matching.label_inference import check_rule

        dense_layer_of_samples(network, shape)
        check_rule(network, shape, classes, "argmin")
        super().check_network(network, shape, classes, client)

    @override
    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the layer's weight and bias, and of the parameter of labels."""
        from gleak.attacks.first_layer import dense_layer_of_samples, label_parameters

        layer = dense_layer_of_samples(model, input_shape)
        return label_parameters(model, input_shape) | {f"{layer}.weight", f"{layer}.bias"}


@register("aono")
class Aono(DenseFirstAttack):
    """Ratio of weight and bias gradients of the first dense layer, with labels by CPL's rule.

    The result is exact for one sample. For a batch it is a mixture of the samples, clipped to
    [0, 1] (see `gleak.attacks.first_layer.read_inputs`). CPL describes the attack in a sentence: it
    "only works on the first layer of a multi-layer perceptron" and gives data "proportional to the
    private training data". The factor is known here: it is the bias gradient. For local training
    the mean gradient over steps is used, which mixes samples and steps; one sample is still exact
    for any number of steps. Values that were not sent count as zero. Where the bias gradient is
    zero, the sample is mid-grey and the victim has not converged.
    """

    source = "Aono et al. 2017, section 3; [2] in CPL section 4.2 and Figure 10"

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(labels=LABELS["argmin"])

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        from gleak.attacks.first_layer import read_inputs, scaled_layer
        from gleak.attacks.matching.label_inference import (
            classifier_gradient,
            classifier_of,
            infer_by_argmin,
        )
        from gleak.attacks.matching.problem import mean_gradients

        observed, samples = mean_gradients(observation), observation.batch_size
        layer, scaling = scaled_layer(observation.model, observation.input_shape)
        bias = observed[f"{layer}.bias"]
        weight = scaling.gradient_of_samples(observed[f"{layer}.weight"], bias)
        found = read_inputs(weight, bias, samples)
        recovered = found.isfinite()
        inputs = found.where(recovered, MID_GREY).clamp(0, 1).unflatten(2, observation.input_shape)
        scores = classifier_gradient(classifier_of(observation), observed)
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=infer_by_argmin(scores, samples).cpu().numpy(),
            converged=recovered.flatten(1).all(1).cpu().numpy(),
        )
