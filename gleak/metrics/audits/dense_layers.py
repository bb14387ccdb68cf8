"""Audits of dense layers: their size and their biases."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.base import MetricUnavailable

FEWEST_BIASES = 5
QUANTILE = 0.75


@register("audit_size")
class AuditSize(AuditSpec):
    """Largest number of outputs of a dense layer over the number of values of a sample.

    Layers that were put in front of a network to extract samples are a pair: one takes all values
    of a sample, and one, of fewer inputs than outputs, gives as many values back, so that the rest
    of the network still works. Counted are therefore, in networks with a dense layer that takes all
    values, dense layers with more outputs than inputs that are followed by a convolution, or have
    exactly as many outputs as a sample has values. Others score 0: layers at the end of a
    convolutional network, whose inputs are features (VGG-16's 4,096 honest neurons exceed the
    values of a small image), and wide layers of a perceptron (784 to 1,000, or 512 to 1,024).
    Layers are generally wider than rows of tables, so the audit does not apply to tables.
    """

    source = (
        "MKOR section 2: checking the size of the FC layer; Fowl et al., Robbing the Fed (2022)"
    )

    meaning: ClassVar[str] = (
        "A layer reads whole samples and another gives them back: such a pair is put in front "
        "of a network to copy samples into the update."
    )

    limit: float = parameter(
        0.5, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        if broadcast.model.modality != "image":
            raise MetricUnavailable("dense layers are generally wider than rows of tables")
        values, layers = math.prod(map(int, broadcast.model.input_shape)), broadcast.layers
        convolutions = [at for at, layer in enumerate(layers) if not layer.dense]
        first = convolutions[-1] + 1 if convolutions else len(layers)
        head = {layer.name for layer in layers[first:]}
        dense = [(layer.name, *layer.weights.shape) for layer in layers if layer.dense]
        taken = any(inputs == values and name not in head for name, _, inputs in dense)
        findings = []
        for name, outputs, inputs in dense:
            given_back = bool(convolutions) or outputs == values
            counts = taken and given_back and outputs > inputs and name not in head
            text = f"{inputs} inputs, {outputs} outputs; a sample has {values} values"
            findings.append(Finding(name, outputs / values if counts else 0.0, text))
        return findings


@register("audit_bias")
class AuditBias(AuditSpec):
    """Largest distance of the classifier's biases from their median, in units of their spread.

    The spread is the 75% quantile of the distances, or the largest norm of a row of weights if that
    is larger: the audit finds a bias that shifts a logit further than features can. Biases of
    hidden layers are not considered, since after weight decay of the weights only a few biases
    remain large. The classifier is the last dense layer with one output per class; parameters alone
    do not determine the order of layers. Weights that no sample reaches do not count, unless none
    is reached. At least 5 classes are needed.
    """

    meaning: ClassVar[str] = (
        "The biases of some classes outweigh whatever the features say: the update is then "
        "about the samples of few classes."
    )

    limit: float = parameter(
        6.0, "value above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        layers, classes = broadcast.layers, broadcast.model.classes
        heads = [layer for layer in layers if layer.dense and len(layer.weights) == classes]
        biased = [(layer, layer.biases) for layer in heads if layer.biases is not None]
        if not biased:
            raise MetricUnavailable(f"no dense layer with {classes} outputs has a bias")
        if classes < FEWEST_BIASES:
            raise MetricUnavailable(f"it needs {FEWEST_BIASES} classes or more")
        layer, biases = biased[-1]
        distances = np.abs(biases - np.median(biases))
        weights = layer.reached_weights if layer.reached_weights.size else layer.weights
        longest = float(np.linalg.norm(weights, axis=1).max())
        spread = max(float(np.quantile(distances, QUANTILE)), longest)
        at = int(distances.argmax())
        statistic = float(distances[at]) / spread if spread else 0.0
        text = f"bias {at} is {biases[at]:.3g}, the spread {spread:.3g}"
        return [Finding(layer.name, statistic, text)]
