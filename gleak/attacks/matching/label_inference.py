"""Labels inferred from the gradient of the last dense layer.

Labels are counted as follows. With cross-entropy the classifier's gradients are
W = sum_i (p_i - e_i) x_i^T / N and b = sum_i (p_i - e_i) / N, where x_i are the inputs of the
classifier, p_i its probabilities and e_i the one-hot labels, smoothed if the clients smooth them.
If all n_j inputs of class j were equal, x_j, then W = A^T diag(n) X / N and b = A^T n / N, with a
row p_j - e_j of A for each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.differentiation import smoothed
from gleak.models.layer_search import Classifier, find_classifier, last_dense_input
from gleak.models.parameters import trained_parameters

REMEDY = "use an attack that is granted the labels (labels=known)"
RULES = ("sign", "rows", "argmin", "counts", "auto")
"""Rules by which labels are inferred; auto: the most accurate one for the available gradients
(docs/results/labels.md). For one sample the minimum is exact, and for any number with the loss
``nll_raw``. Labels of several samples are counted, where the classifier allows it.
"""
READING_WEIGHTS = ("rows", "counts")
"""Rules that read the gradient of the classifier's weight."""
SPARSE = 0.05
"""Share of zeros above which the classifier's inputs are sparse, as after a ReLU."""
ROUNDING = 1e-6
"""Share of the largest magnitude up to which an entry of a gradient counts as zero."""
ITERATIONS = 10
EXPLAINED = 0.2
"""Largest error of an entry of the bias gradient, in units of the largest slope, to stop at."""
EVENNESS = 0.01
"""Weight of the squared difference of counts from equal ones, in units of its square."""
LEAST_FACTOR = 0.1
"""Least factor of a solution, in units of the count; a smaller one is considered an error."""
TINY = 1e-12
LARGEST = 1e6
"""Bound of the classifier's inputs."""


def classifier_of(observation: Observation) -> Classifier:
    """Return the layer that labels are inferred from, or raise `IncompatibleError`."""
    return _classifier(observation.model, observation.input_shape, observation.classes)


def _classifier(network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> Classifier:
    try:
        return find_classifier(network, shape, classes)
    except IncompatibleError as error:
        raise IncompatibleError(f"labels cannot be inferred: {error}; {REMEDY}") from None


def check_rule(network: torch.nn.Module, shape: tuple[int, ...], classes: int, rule: str) -> None:
    """Raise `IncompatibleError` if a rule cannot infer labels from the updates of a network."""
    classifier, trained = _classifier(network, shape, classes), trained_parameters(network)
    if not trained.keys() & {*parameters_of_labels(classifier)}:
        raise _frozen(classifier)
    if rule in READING_WEIGHTS:
        weight_gradient(classifier, {**trained}, rule)


def parameters_of_labels(classifier: Classifier) -> list[str]:
    """Return the parameters that labels can be inferred from: bias, then weight.

    Raises:
        IncompatibleError: the layer has neither.
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

    Shape (V, *shape) of each parameter to (V, classes).

    Raises:
        IncompatibleError: no gradient of the layer was sent.
    """
    for name in parameters_of_labels(classifier):
        if name in update:
            return update[name] if name == classifier.bias else update[name].flatten(2).sum(2)
    raise _frozen(classifier)


def label_scores(
    observation: Observation, classifier: Classifier, update: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Compute `classifier_gradient` without what smoothing of labels adds to all biases alike.

    Only a label of the batch then makes an entry negative; Shape (V, classes).
    """
    scores, share = classifier_gradient(classifier, update), observation.protocol.label_smoothing
    if share is None or classifier.bias not in update:
        return scores
    return scores + share / observation.classes


def lowest_of_rows(classifier: Classifier, update: dict[str, torch.Tensor]) -> torch.Tensor:
    """Compute the minimum of each row of the weight gradient, Shape (V, classes).

    After an activation that is never negative, only rows of labels in the batch contain entries
    well below zero (GradInversion, Eq. 4). Other samples add to a row's sum, less to its minimum.
    """
    return weight_gradient(classifier, update, "rows").flatten(2).amin(2)


def weight_gradient(
    classifier: Classifier, update: dict[str, torch.Tensor], rule: str
) -> torch.Tensor:
    """Return the gradient of the classifier's weight, which a rule needs; Shape (V, classes, ...).

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
    """Infer distinct labels, of the rows that are most negative (iDLG, Eq. 3, 4); (V, samples)."""
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
class ClassifierGradients:
    """The classifier of a network and its gradients in one victim's update, in double precision.

    Args:
        weight, bias: their gradients; Shape (classes, F) and (classes).
        layer_weight, layer_bias: as broadcast.
        smoothing: share of labels that is spread over all classes.
        one_sign: True if its inputs are never negative.
        sparse: True if many of its inputs are zero.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    layer_weight: torch.Tensor
    layer_bias: torch.Tensor
    smoothing: float | None
    one_sign: bool
    sparse: bool

    @property
    def one_hot(self) -> torch.Tensor:
        """Label of each class as clients have it; Shape (classes, classes)."""
        return smoothed(torch.eye(len(self.bias), dtype=torch.double), self.smoothing)

    def probabilities(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute probabilities from inputs; Shape (K, F) to (K, classes)."""
        return (inputs @ self.layer_weight.T + self.layer_bias).softmax(1)

    def possible(self, inputs: torch.Tensor) -> torch.Tensor:
        """Clip estimated inputs to possible values; Shape (K, F)."""
        return inputs.nan_to_num(nan=0.0).clamp(0.0 if self.one_sign else -LARGEST, LARGEST)


def count_labels(gradients: ClassifierGradients, samples: int) -> np.ndarray:
    """Estimate the number of samples of each class in a batch of N; Shape (classes).

    The inputs of each class are first estimated by the row of W divided by the entry of b, and
    their probabilities give A; the counts are the integers that fit N b = A^T n best. Samples of
    other classes contribute to a row. So inputs are then estimated again, as the least-norm
    solution of N W = A^T diag(n) X, and counts with them, until the counts explain b or for
    `ITERATIONS` repetitions.

    True inputs and counts are a fixed point if samples of a class are equal. Samples of which the
    network is certain hardly change b: their counts are assumed to be even.

    Source:
        Ma et al. 2023, "Instance-wise batch label restoration via gradients in federated
        learning"; classes by the sign of their entries as Wainakh et al. 2022 and Yin et al. 2021;
        the repetition is ours.
    """
    # only a label of the batch makes an entry of b, or of W where inputs are not negative, negative
    bias = gradients.bias + (gradients.smoothing or 0.0) / len(gradients.bias)
    reads_weight = gradients.one_sign and not gradients.smoothing
    read = gradients.weight if reads_weight else bias[:, None]
    values, least_bias = read.amin(1), -ROUNDING * bias.abs().max()
    certain = ((values < -ROUNDING * read.abs().max()) | (bias < least_bias)).numpy()
    if certain.sum() > samples:
        certain = np.isin(np.arange(len(certain)), values.argsort()[:samples].numpy())
    candidates = certain if reads_weight and gradients.sparse else np.ones_like(certain)
    counts = certain.astype(int)
    if counts.sum() < samples:
        chosen = np.flatnonzero(candidates if candidates.any() else ~candidates)
        counts[chosen] = _count_among(gradients, samples, chosen, counts[chosen])
    return counts


def _count_among(
    gradients: ClassifierGradients, samples: int, chosen: np.ndarray, least: np.ndarray
) -> np.ndarray:
    """Estimate the counts, with lower bounds, of K chosen classes if all others are absent."""
    one_hot = gradients.one_hot[chosen]
    target = (samples * gradients.bias).numpy()
    inputs = gradients.possible((gradients.weight / gradients.bias[:, None])[chosen])
    for repetition in range(ITERATIONS + 1):
        slopes = gradients.probabilities(inputs) - one_hot
        largest = max(float(slopes.abs().max()), TINY)
        counts = integer_solution(slopes.numpy() / largest, target / largest, samples, least)
        unexplained = np.abs(slopes.numpy().T @ counts - target).max()
        if unexplained < EXPLAINED * largest or repetition == ITERATIONS:
            break
        present = counts > 0
        inputs[present] = _inputs(
            gradients, samples, slopes[present], torch.from_numpy(counts[present])
        )
    return counts


def _inputs(
    gradients: ClassifierGradients, samples: int, slopes: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """Estimate the inputs of the classes in the batch from slopes A and counts n; Shape (K, F).

    Where at most half of the classes are in the batch, the equations also determine the factor n of
    an input, as that of b, which is an input of 1: errors of A that both share cancel out.
    """
    given = samples * torch.cat([gradients.weight, gradients.bias[:, None]], 1)
    solution = torch.linalg.pinv(slopes.T) @ given
    sums, factors, expected = solution[:, :-1], solution[:, -1], counts.double()
    determined = (2 * len(slopes) <= slopes.shape[1]) & (factors.abs() > LEAST_FACTOR * expected)
    return gradients.possible(sums / torch.where(determined, factors, expected)[:, None])


def integer_solution(
    slopes: np.ndarray, target: np.ndarray, samples: int, least: np.ndarray
) -> np.ndarray:
    """Find integers n, Shape (K), of a given sum that make |A^T n - t|^2 small.

    Units are added one by one where the cost is least, then moved between classes while that
    lowers the cost. `EVENNESS` decides between solutions of equal cost. Slopes A have Shape (K,
    classes), the target t (classes), and least numbers (K).
    """
    count = len(slopes)
    curvature = slopes @ slopes.T + EVENNESS * np.eye(count)
    diagonal = np.diag(curvature)
    numbers = least.astype(int)
    slope = curvature @ numbers - slopes @ target - EVENNESS * samples / count
    for _ in range(samples - numbers.sum()):
        best = int(np.argmin(2 * slope + diagonal))
        numbers[best] += 1
        slope += curvature[best]
    for _ in range(4 * samples):
        givers = np.flatnonzero(numbers > least)
        both = diagonal[givers, None] + diagonal - 2 * curvature[givers]
        change = 2 * (slope - slope[givers, None]) + both
        if not len(givers) or change.min() > -1e-9:
            break
        giver, taker = np.unravel_index(np.argmin(change), change.shape)
        numbers[givers[giver]] -= 1
        numbers[taker] += 1
        slope += curvature[taker] - curvature[givers[giver]]
    return numbers


def infer_by_counts(
    observation: Observation, classifier: Classifier, update: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Infer as many labels of each class as explain the classifier's gradients; Shape (V, samples).

    Labels may repeat, and the network may be trained; see `count_labels`.
    """
    weight = weight_gradient(classifier, update, "counts")
    if not _can_be_counted(observation, classifier, update):
        raise IncompatibleError(
            f"labels=counts needs cross-entropy (here: {observation.protocol.loss}), and a "
            "classifier with a bias whose outputs are the logits, which layer "
            f"{classifier.name!r} does not provide; use labels=argmin or labels=known"
        )
    features = classifier.features
    layer, offset = (
        observation.model.get_parameter(name or "").detach().cpu().double()
        for name in (classifier.weight, classifier.bias)
    )
    labels = []
    for row, entries in zip(weight, classifier_gradient(classifier, update), strict=True):
        gradients = ClassifierGradients(
            weight=row.cpu().double(),
            bias=entries.cpu().double(),
            layer_weight=layer,
            layer_bias=offset,
            smoothing=observation.protocol.label_smoothing,
            one_sign=bool((features >= 0).all()),
            sparse=bool((features == 0).double().mean() > SPARSE),
        )
        counts = torch.from_numpy(count_labels(gradients, observation.batch_size))
        labels.append(torch.arange(len(counts)).repeat_interleave(counts))
    return torch.stack(labels).to(weight.device)


def _can_be_counted(
    observation: Observation, classifier: Classifier, update: dict[str, torch.Tensor]
) -> bool:
    sent = classifier.bias in update and classifier.weight in update
    return sent and classifier.gives_logits and observation.protocol.loss == "cross_entropy"


def inferred_labels(
    rule: str, observation: Observation, gradients: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Infer the labels of every victim's samples by one of `RULES`, in ascending order.

    From the gradients of the parameters, Shape (V, *shape) each; Shape (V, N).

    Raises:
        IncompatibleError: the model has no classifier, or the rule cannot infer so many labels.
    """
    classifier, samples = classifier_of(observation), observation.batch_size
    if rule == "auto":
        counted = samples > 1 and _can_be_counted(observation, classifier, gradients)
        rule = "counts" if counted else "argmin"
    if rule == "counts":
        labels = infer_by_counts(observation, classifier, gradients)
    elif rule == "rows":
        labels = infer_by_sign(lowest_of_rows(classifier, gradients), samples)
    else:
        infer = infer_by_sign if rule == "sign" else infer_by_argmin
        labels = infer(label_scores(observation, classifier, gradients), samples)
    return labels.sort(1).values


def labels_of_samples(
    observation: Observation, inputs: np.ndarray, known: np.ndarray
) -> torch.Tensor:
    """Infer the labels of given samples, in their order, from the classifier's gradient.

    The gradient of its weight is c / N sum_i (p_i - e_i) h_i^T over samples i, with the inputs h_i
    of the layer, the probabilities p_i and an unknown scale c. The factors of h_i are found by
    least squares, of each class from the values that were sent, and are zero for classes without
    any; the label is that for which p_i - e_i has the nearest direction.

    Args:
        observation: of V victims.
        inputs: the samples; Shape (V, N, *shape).
        known: labels that are returned, -1 as 0, if there is no such gradient; Shape (V, N).

    Returns:
        Shape (V, N).
    """
    network, observed = observation.model, mean_gradients(observation)
    labels = torch.from_numpy(known).clamp(min=0)
    try:
        names = classifier_of(observation).dense_parameters()
    except IncompatibleError:
        return labels
    weights, biases = (observed.get(name) for name in names)
    if weights is None or biases is None:
        return labels
    masks = [_mask_of(observation, name, observed[name]) for name in names]
    gradients = torch.cat([weights, biases[..., None]], 2).double().cpu()
    sent = torch.cat([masks[0], masks[1][..., None]], 2).double().cpu()
    found = []
    for gradient, mask, samples in zip(gradients, sent, torch.from_numpy(inputs), strict=True):
        with torch.no_grad():
            given = samples.to(weights)
            entry, logits = last_dense_input(network, given), network(given.clone())
        if entry is None:
            return labels
        features = torch.nn.functional.pad(entry.embeddings, (0, 1), value=1).double().cpu()
        factors = _factors(features, gradient, mask)
        one_hot = smoothed(torch.eye(observation.classes), observation.protocol.label_smoothing)
        expected = logits.softmax(1).double().cpu()[:, None] - one_hot
        found.append(torch.cosine_similarity(factors[:, None], expected, dim=2).argmax(1))
    return torch.stack(found)


def _mask_of(observation: Observation, name: str, gradient: torch.Tensor) -> torch.Tensor:
    """Return ones where values of a parameter were sent in the first round, else zeros."""
    sent = observation.sent.get(name)
    return torch.ones_like(gradient) if sent is None else sent[:, 0]


def _factors(features: torch.Tensor, gradient: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    """Fit the gradient of a dense layer by its inputs.

    Args:
        features: inputs of N samples, with a last one of 1 for the bias; Shape (N, F).
        gradient: Shape (outputs, F).
        sent: ones where values were sent, else zeros; Shape (outputs, F).

    Returns:
        Gradients at the outputs for each sample; Shape (N, outputs).
    """
    if sent.all():
        return torch.linalg.lstsq(features.T, gradient.T, driver="gelsd").solution
    rows = [
        torch.linalg.lstsq(mask[:, None] * features.T, (mask * row)[:, None], driver="gelsd")
        for mask, row in zip(sent, gradient, strict=True)
    ]
    return torch.cat([row.solution for row in rows], 1)
