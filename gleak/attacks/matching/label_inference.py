"""Labels inferred from the gradient of the last dense layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gleak.attacks.matching.label_counts import ClassifierGradients, count_labels
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.layer_search import Classifier, find_classifier
from gleak.models.parameters import trained_parameters

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation


REMEDY = "use an attack that is granted the labels (labels=known)"
READING_WEIGHTS = ("rows", "counts")
"""Rules that read the gradient of the classifier's weight."""
SPARSE = 0.05
"""Share of zeros above which the classifier's inputs are sparse, as after a ReLU."""


def classifier_of(observation: Observation) -> Classifier:
    """Return the layer that labels are inferred from (see `find_classifier`).

    Raises:
        IncompatibleError: the model has no such layer.
    """
    return _classifier(observation.model, observation.input_shape, observation.classes)


def _classifier(network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> Classifier:
    try:
        return find_classifier(network, shape, classes)
    except IncompatibleError as error:
        raise IncompatibleError(f"labels cannot be inferred: {error}; {REMEDY}") from None


def check_rule(network: torch.nn.Module, shape: tuple[int, ...], classes: int, rule: str) -> None:
    """Check that a rule can infer labels from the updates of a network.

    Args:
        network: in evaluation mode; not modified.
        shape: of a sample.
        classes: number of outputs.
        rule: one of `RULES`.

    Raises:
        IncompatibleError: names what the network lacks, and the remedy.
    """
    classifier, trained = _classifier(network, shape, classes), trained_parameters(network)
    if not trained.keys() & {*parameters_of_labels(classifier)}:
        raise _frozen(classifier)
    if rule in READING_WEIGHTS:
        weight_gradient(classifier, {**trained}, rule)


def parameters_of_labels(classifier: Classifier) -> list[str]:
    """Return the names of the parameters that labels can be inferred from: bias, then weight.

    Raises:
        IncompatibleError: the layer has neither as a parameter.
    """
    names = [name for name in (classifier.bias, classifier.weight) if name is not None]
    if not names:
        raise IncompatibleError(
            f"labels cannot be inferred: layer {classifier.name!r} has no bias, and computes its "
            f"weight from {' and '.join(classifier.parameters)}; {REMEDY}"
        )
    return names


def classifier_gradient(classifier: Classifier, update: dict[str, torch.Tensor]) -> torch.Tensor:
    """Compute one number per class: the classifier's bias gradient, or its weight's row sums.

    With cross-entropy the bias gradient of class i is the mean over samples of p_i - [label = i].
    A row of the weight gradient is that number times the layer's inputs, which a sigmoid or a ReLU
    keeps positive, so the sum has its sign.

    Args:
        classifier: of the model.
        update: gradients of the trained parameters, Shape (V, *shape).

    Returns:
        Shape (V, classes).

    Raises:
        IncompatibleError: no gradient of the layer was sent.
    """
    for name in parameters_of_labels(classifier):
        if name in update:
            return update[name] if name == classifier.bias else update[name].flatten(2).sum(2)
    raise _frozen(classifier)


def lowest_of_rows(classifier: Classifier, update: dict[str, torch.Tensor]) -> torch.Tensor:
    """Compute the minimum of each row of the classifier's weight gradient (GradInversion, Eq. 4).

    After an activation that is never negative, only rows of labels in the batch contain entries
    well below zero. Other samples add to a row's sum, but less to its minimum.

    Returns:
        Shape (V, classes).

    Raises:
        IncompatibleError: see `weight_gradient`.
    """
    return weight_gradient(classifier, update, "rows").flatten(2).amin(2)


def weight_gradient(
    classifier: Classifier, update: dict[str, torch.Tensor], rule: str
) -> torch.Tensor:
    """Return the gradient of the classifier's weight.

    Args:
        classifier: of the model.
        update: gradients of the trained parameters, Shape (V, *shape).
        rule: name of the rule that needs it, for the error.

    Returns:
        Shape (V, classes, ...).

    Raises:
        IncompatibleError: the layer computes its weight from other parameters, or was not trained.
    """
    if classifier.weight is None:
        raise IncompatibleError(
            f"labels={rule} reads the gradient of the classifier's weight, and layer "
            f"{classifier.name!r} computes its weight from other parameters or shares it (it has "
            f"{' and '.join(classifier.parameters)}); use labels=argmin or labels=known"
        )
    if classifier.weight not in update:
        raise _frozen(classifier)
    return update[classifier.weight]


def _frozen(classifier: Classifier) -> IncompatibleError:
    return IncompatibleError(
        f"labels cannot be inferred: no gradient of the classifier, layer {classifier.name!r}, was "
        f"sent, since the layer is frozen; {REMEDY}"
    )


def infer_by_sign(scores: torch.Tensor, samples: int) -> torch.Tensor:
    """Infer the labels of the most negative rows, whose sign differs (iDLG, Eq. 3 and 4).

    Labels are distinct. Shape (V, samples).

    Raises:
        IncompatibleError: more samples than classes.
    """
    if samples > scores.shape[1]:
        raise IncompatibleError(
            f"labels=sign and labels=rows infer distinct labels, so {scores.shape[1]} classes are "
            f"too few for a batch of {samples}; use an attack that takes labels=auto or "
            "labels=known"
        )
    return scores.argsort(1)[:, :samples]


def infer_by_argmin(scores: torch.Tensor, samples: int) -> torch.Tensor:
    """Infer the label of the smallest entry, sample by sample (CPL Algorithm 1, line 9).

    The paper's rule is for one sample. For a batch it is repeated: one sample's share of the
    negative entries is subtracted from the label's entry before the next label is inferred, so
    labels may repeat. For a bias gradient that share is near 1/N. Shape (V, samples).
    """
    share = scores.clamp(max=0).sum(1, keepdim=True) / samples
    left, labels = scores.clone(), []
    for _ in range(samples):
        label = left.argmin(1, keepdim=True)
        left.scatter_add_(1, label, -share)
        labels.append(label)
    return torch.cat(labels, 1)


@dataclass(frozen=True)
class Evidence:
    """Observations that labels are inferred from.

    Args:
        observation: of the victims.
        classifier: of the model.
        update: gradients of the trained parameters, Shape (V, *shape).
    """

    observation: Observation
    classifier: Classifier
    update: dict[str, torch.Tensor]

    @property
    def samples(self) -> int:
        """Number of labels to infer for each victim."""
        return self.observation.batch_size

    @property
    def sums(self) -> torch.Tensor:
        """One number per class, see `classifier_gradient`."""
        return classifier_gradient(self.classifier, self.update)

    def can_be_counted(self) -> bool:
        """Return True if all inputs of `infer_by_counts` are available."""
        bias, weight = self.classifier.bias, self.classifier.weight
        sent = bias in self.update and weight in self.update
        return (
            sent
            and self.classifier.gives_logits
            and self.observation.protocol.loss == "cross_entropy"
        )


def infer_by_counts(evidence: Evidence) -> torch.Tensor:
    """Infer as many labels of each class as explain the classifier's gradients; Shape (V, samples).

    Labels may repeat, and the network may be trained; see `gleak.attacks.matching.label_counts`.

    Raises:
        IncompatibleError: the classifier lacks a weight parameter, a bias or their gradients, its
            outputs are not the logits, or the loss is not cross-entropy.
    """
    classifier = evidence.classifier
    weight = weight_gradient(classifier, evidence.update, "counts")
    if not evidence.can_be_counted():
        raise IncompatibleError(
            "labels=counts needs cross-entropy (here: "
            f"{evidence.observation.protocol.loss}), and a classifier with a bias whose outputs "
            f"are the logits, which layer {classifier.name!r} does not provide; use labels=argmin "
            "or labels=known"
        )
    features = classifier.features
    layer = evidence.observation.model.get_parameter(classifier.weight or "")
    offset = evidence.observation.model.get_parameter(classifier.bias or "")
    labels = []
    for row, entries in zip(weight, evidence.sums, strict=True):
        gradients = ClassifierGradients(
            weight=row.cpu().double(),
            bias=entries.cpu().double(),
            layer_weight=layer.detach().cpu().double(),
            layer_bias=offset.detach().cpu().double(),
            one_sign=bool((features >= 0).all()),
            sparse=bool((features == 0).double().mean() > SPARSE),
        )
        counts = torch.from_numpy(count_labels(gradients, evidence.samples))
        labels.append(torch.arange(len(counts)).repeat_interleave(counts))
    return torch.stack(labels).to(weight.device)


def infer_automatically(evidence: Evidence) -> torch.Tensor:
    """Infer labels by the most accurate rule for the available gradients (docs/results/labels.md).

    For one sample the minimum is exact, and for any number with the loss ``nll_raw``. Labels of
    several samples are counted; where the classifier does not allow it, `infer_by_argmin` is used.
    """
    if evidence.samples > 1 and evidence.can_be_counted():
        return infer_by_counts(evidence)
    return infer_by_argmin(evidence.sums, evidence.samples)


RULES: dict[str, Callable[[Evidence], torch.Tensor]] = {
    "sign": lambda known: infer_by_sign(known.sums, known.samples),
    "rows": lambda known: infer_by_sign(
        lowest_of_rows(known.classifier, known.update), known.samples
    ),
    "argmin": lambda known: infer_by_argmin(known.sums, known.samples),
    "counts": infer_by_counts,
    "auto": infer_automatically,
}


def inferred_labels(
    rule: str, observation: Observation, gradients: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Infer the labels of every victim's samples, in ascending order; Shape (V, N).

    Args:
        rule: one of `RULES`.
        observation: of the victims.
        gradients: of the parameters, Shape (V, *shape).

    Raises:
        IncompatibleError: the model has no classifier, or the rule cannot infer so many labels.
    """
    evidence = Evidence(observation, classifier_of(observation), gradients)
    return RULES[rule](evidence).sort(1).values
