"""Number of samples of each class in a batch, from the gradients of the classifier.

With cross-entropy the classifier's gradients are W = sum_i (p_i - e_i) x_i^T / N and
b = sum_i (p_i - e_i) / N, where x_i are the inputs of the classifier, p_i its probabilities and
e_i the one-hot labels. If all n_j inputs of class j were equal, x_j, then W = A^T diag(n) X / N
and b = A^T n / N, with a row p_j - e_j of A for each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleak.core.lazy import torch

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


@dataclass(frozen=True)
class ClassifierGradients:
    """The classifier of a network and its gradients in one victim's update, in double precision.

    Args:
        weight: gradient of its weight; Shape (classes, F).
        bias: gradient of its bias; Shape (classes).
        layer_weight: as broadcast; Shape (classes, F).
        layer_bias: as broadcast; Shape (classes).
        one_sign: True if its inputs are never negative.
        sparse: True if many of its inputs are zero.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    layer_weight: torch.Tensor
    layer_bias: torch.Tensor
    one_sign: bool
    sparse: bool

    def probabilities(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute probabilities from inputs; Shape (K, F) to (K, classes)."""
        return (inputs @ self.layer_weight.T + self.layer_bias).softmax(1)

    def possible(self, inputs: torch.Tensor) -> torch.Tensor:
        """Clip estimated inputs to possible values; Shape (K, F)."""
        return inputs.nan_to_num(nan=0.0).clamp(0.0 if self.one_sign else -LARGEST, LARGEST)


def count_labels(gradients: ClassifierGradients, samples: int) -> np.ndarray:
    """Estimate the number of samples of each class in a batch.

    The inputs of each class are first estimated by the row of W divided by the entry of b, and
    their probabilities give A; the counts are the integers that fit N b = A^T n best. Samples of
    other classes contribute to a row. So inputs are then estimated again, as the least-norm
    solution of N W = A^T diag(n) X, and counts with them, until the counts explain b or for
    `ITERATIONS` repetitions.

    True inputs and counts are a fixed point if samples of a class are equal. Samples of which the
    network is certain hardly change b: their counts are assumed to be even.

    Args:
        gradients: of the classifier.
        samples: N.

    Returns:
        Shape (classes), with the sum N.

    Source:
        Ma et al. 2023, "Instance-wise batch label restoration via gradients in federated
        learning"; classes by the sign of their entries as Wainakh et al. 2022 and Yin et al. 2021;
        the repetition is ours.
    """
    certain = _certain_classes(gradients, samples)
    candidates = certain if gradients.one_sign and gradients.sparse else np.ones_like(certain)
    counts = certain.astype(int)
    if counts.sum() < samples:
        chosen = np.flatnonzero(candidates if candidates.any() else ~candidates)
        counts[chosen] = _count_among(gradients, samples, chosen, counts[chosen])
    return counts


def _certain_classes(gradients: ClassifierGradients, samples: int) -> np.ndarray:
    """Mark the classes that are certainly in the batch, at most N of them; Shape (classes).

    Only a label of the batch makes an entry of b negative, and, where inputs are not negative, one
    of W.
    """
    values = gradients.weight.amin(1) if gradients.one_sign else gradients.bias
    largest = (gradients.weight if gradients.one_sign else gradients.bias).abs().max()
    least_bias = -ROUNDING * gradients.bias.abs().max()
    certain = ((values < -ROUNDING * largest) | (gradients.bias < least_bias)).numpy()
    if certain.sum() > samples:
        lowest = values.argsort()[:samples].numpy()
        certain = np.isin(np.arange(len(certain)), lowest)
    return certain


def _count_among(
    gradients: ClassifierGradients, samples: int, chosen: np.ndarray, least: np.ndarray
) -> np.ndarray:
    """Estimate the counts of some classes if all others are absent; Shape (K).

    Args:
        gradients: of the classifier.
        samples: N.
        chosen: these classes; Shape (K).
        least: lower bounds of their counts; Shape (K).
    """
    one_hot = torch.eye(len(gradients.bias), dtype=torch.double)[chosen]
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
    """Find integers n with a given sum that make |A^T n - t|^2 small.

    Units are added one by one where the cost is least, then moved between classes while that
    lowers the cost. `EVENNESS` decides between solutions of equal cost.

    Args:
        slopes: A; Shape (K, classes).
        target: t; Shape (classes).
        samples: the sum.
        least: lower bound of each number; Shape (K).

    Returns:
        Shape (K).
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
