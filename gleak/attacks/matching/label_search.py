"""Labels by the objective itself: all classes of one sample, and changes of a batch's labels."""

from __future__ import annotations

from dataclasses import replace

from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.label_inference import (
    classifier_gradient,
    classifier_of,
    inferred_labels,
    label_scores,
)
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

TRIED = 10
"""Changes of labels that are evaluated at once, those of the steepest slopes."""
LABELLED = 2**13
"""Largest number of sample gradients by which the labels of one victim are improved.

All samples of a batch take part in each evaluation, so fewer labels of a larger one are changed.
"""
VALUES = 2**26
"""Values of gradients that are computed at once, for several hypotheses."""
UNBALANCED = 0.1
"""Largest sum of a sample's classifier gradient, relative to its least entry, if it is whole."""


def labels_by_rule(observation: Observation) -> tuple[torch.Tensor, torch.Tensor]:
    """Infer labels by the most accurate rule, and say of which victims they are certain.

    Those of one sample are if all values of the classifier's gradient were sent, of which one alone
    is negative, and they add up to nothing: a sample's probabilities minus its label do.

    Returns:
        Labels, Shape (V, N), zeros if there is no rule; and a mask, Shape (V).
    """
    observed = mean_gradients(observation)
    unsure = torch.zeros(observation.victims, dtype=torch.bool)
    try:
        labels = inferred_labels("auto", observation, observed)
        classifier = classifier_of(observation)
        scores = label_scores(observation, classifier, observed)
    except IncompatibleError:
        return torch.zeros(observation.victims, observation.batch_size).long(), unsure
    whole = observed.keys() - {*observation.sent, *observation.cells, *observation.bases}
    if observation.batch_size > 1 or classifier.bias not in whole:
        return labels, unsure
    sums = classifier_gradient(classifier, observed).sum(1)
    balanced = sums.abs() <= UNBALANCED * scores.amin(1).abs()
    return labels, ((scores < 0).sum(1) == 1) & balanced


def with_labels(problem: GradientMatching, labels: torch.Tensor) -> GradientMatching:
    """Return the problem with other labels of its victims, Shape (V, N)."""
    one_hot = torch.nn.functional.one_hot(labels.to(problem.device), problem.classes)
    return replace(problem, targets=one_hot.to(problem.like))


def hypotheses_at_once(problem: GradientMatching) -> int:
    """Return the number of hypotheses for which gradients, or copies of an update, are held."""
    return max(1, VALUES // sum(value[0].numel() for value in problem.observed.values()))


def objective_of(
    problem: GradientMatching, points: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Compute the objective of each victim with H hypotheses about its labels, infinite for NaN.

    Points have Shape (V, P), labels Shape (V, H, N); Shape (V, H).
    """
    victims, count = labels.shape[:2]
    rows = torch.arange(victims, device=problem.device).repeat_interleave(count)
    flat = labels.flatten(0, 1).to(problem.device)
    parts = torch.arange(len(rows), device=problem.device).split(hypotheses_at_once(problem))
    found = [
        with_labels(problem.keep(rows[part]), flat[part]).objective(points[rows[part]])
        for part in parts
    ]
    return torch.cat(found).nan_to_num(nan=torch.inf).view(victims, count)


def likely_labels(
    problem: GradientMatching, points: torch.Tensor, labels: torch.Tensor, count: int
) -> torch.Tensor:
    """Return the labels and up to H - 1 changes of them, by the objective at these points.

    One sample may have any label; of a batch, one label is changed, or two are exchanged. All
    classes of one sample are evaluated, and of the changes of a batch the first `TRIED`, ranked by
    the derivative of the objective.

    Args:
        problem: of V victims.
        points: Shape (V, P).
        labels: Shape (V, N).
        count: H.

    Returns:
        Shape (V, H, N), from the least objective on; the given labels where there are fewer.
    """
    labels = labels.cpu()
    slopes = with_labels(problem, labels).label_slopes(points).cpu()
    tried = problem.classes if labels.shape[1] == 1 else max(count, TRIED)
    hypotheses = [
        torch.stack([*changed_labels(*pair, tried - 1), pair[0]])
        for pair in zip(labels, slopes, strict=True)
    ]
    most = max(map(len, hypotheses))
    every = torch.stack(
        [torch.cat([one, one[-1:].expand(most - len(one), -1)]) for one in hypotheses]
    )
    order = objective_of(problem, points, every).argsort(dim=1, stable=True)[:, :count].cpu()
    return every.take_along_dim(order[..., None], 1)


def changed_labels(labels: torch.Tensor, slopes: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Return labels with one changed or two exchanged, from the largest expected decrease on.

    Labels have Shape (N), derivatives of the objective by them Shape (N, classes). At most
    ``count`` are returned.
    """
    samples, classes = slopes.shape
    gains = slopes - slopes.gather(1, labels[:, None])
    exchanged = gains[:, labels]
    exchanged = exchanged + exchanged.mT
    earlier = torch.ones_like(exchanged, dtype=torch.bool).tril(-1)
    possible = torch.cat(
        [
            labels[:, None] != torch.arange(classes),
            earlier & (labels[:, None] != labels),
        ],
        1,
    )
    ranked = torch.cat([gains, exchanged], 1).flatten()
    order = ranked.masked_fill(~possible.flatten(), torch.inf).argsort(stable=True)
    changed = []
    for place in order[: min(count, int(possible.sum()))].tolist():
        sample, change = divmod(place, classes + samples)
        one = labels.clone()
        if change < classes:
            one[sample] = change
        else:
            other = change - classes
            one[[sample, other]] = labels[[other, sample]]
        changed.append(one)
    return changed


def label_changes(samples: int) -> int:
    """Return how often the labels of a batch are changed; never if it is so large."""
    return min(samples, LABELLED // (samples * (TRIED + 2)))


def improved_labels(
    problem: GradientMatching, points: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Change labels while that lowers the objective at these points.

    At most once for each sample, and `label_changes` times. Points have Shape (V, P), labels Shape
    (V, N), as the result.
    """
    for _ in range(label_changes(labels.shape[1])):
        best = likely_labels(problem, points, labels, 1)[:, 0]
        if best.equal(labels.cpu()):
            break
        labels = best
    return labels
