"""Dense layers that give as many values as a sample has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Finding
from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.audits.base import Broadcast, Layer

FEWEST_BIASES = 5
MOST = 0.75


@register("audit_size")
class AuditSize(AuditSpec):
    """Largest number of outputs of a dense layer over the values of a sample.

    A layer that reads samples off needs many outputs, and one that gives the sample back, so that
    the network behind can go on, as many as it has values. So layers with no more outputs than
    inputs are 0, and so are those a convolutional network ends with: they are given features, and
    VGG-16's 4,096 honest neurons are more than the values of a small image. Layers are wider than
    rows of tables as a rule, so of tables it says nothing.
    """

    source = (
        "MKOR section 2: checking the size of the FC layer; Fowl et al., Robbing the Fed (2022)"
    )

    limit: float = parameter(
        0.5, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`.

        Raises:
            MetricUnavailable: the samples are rows of a table.
        """
        if broadcast.model.modality != "image":
            raise MetricUnavailable("dense layers are wider than a table's rows as a rule")
        values = math.prod(map(int, broadcast.model.input_shape))
        head = _classifier(broadcast.layers)
        findings = []
        for layer in broadcast.layers:
            if layer.dense:
                outputs, inputs = layer.weights.shape
                share = outputs / values if outputs > inputs and layer.name not in head else 0.0
                text = f"{inputs} inputs, {outputs} outputs; a sample has {values} values"
                findings.append(Finding(layer.name, share, text))
        return findings


def _classifier(layers: list[Layer]) -> set[str]:
    """Names of the dense layers behind the last convolution; none where there is no convolution."""
    convolutions = [at for at, layer in enumerate(layers) if not layer.dense]
    first = convolutions[-1] + 1 if convolutions else len(layers)
    return {layer.name for layer in layers[first:]}


@register("audit_bias")
class AuditBias(AuditSpec):
    """Largest distance of the classifier's biases from their median, in units of their spread.

    The spread is the distance that three biases of four keep, or the norm of the longest row of
    weights where that is more: a bias that shifts a logit further than features can. Those of
    hidden layers are not judged: where weight decay shrinks the weights, a few biases are left. The
    classifier is the last dense layer with an output for each class; parameters alone do not tell
    in which order layers run. Weights that no sample reaches do not count, unless none is reached.
    Fewer than 5 classes say nothing.
    """

    limit: float = parameter(6.0, "above which it alarms", source="ours: above honest models", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`.

        Raises:
            MetricUnavailable: no layer is a classifier with biases, or it has few classes.
        """
        layers, classes = broadcast.layers, broadcast.model.classes
        heads = [each for each in layers if each.dense and len(each.weights) == classes]
        biased = [(each, each.biases) for each in heads if each.biases is not None]
        if not biased:
            raise MetricUnavailable(f"no dense layer with {classes} outputs has a bias")
        if classes < FEWEST_BIASES:
            raise MetricUnavailable(f"it needs {FEWEST_BIASES} classes or more")
        return [_examine_bias(*biased[-1])]


def _examine_bias(layer: Layer, biases: NDArray) -> Finding:
    distances = np.abs(biases - np.median(biases))
    weights = layer.passed if layer.passed.size else layer.weights
    longest = float(np.linalg.norm(weights, axis=1).max())
    spread = max(float(np.quantile(distances, MOST)), longest)
    at = int(distances.argmax())
    statistic = float(distances[at]) / spread if spread else 0.0
    return Finding(layer.name, statistic, f"bias {at} is {biases[at]:.3g}, the spread {spread:.3g}")
