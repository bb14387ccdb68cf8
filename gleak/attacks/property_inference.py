"""What an update shares with the gradients of an attacker's own samples.

All gradients are taken at the broadcast parameters. They enter by their inner products alone, of
which a batch's follow from its samples': the gradient of a batch is the mean of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from gleak.matching.problem import mean_gradients
from gleak.models.differentiation import sample_gradients
from gleak.models.parameters import dtype_of
from gleak.runtime.seeding import stream

if TYPE_CHECKING:
    from gleak.observation import Observation

BATCHES = 128
AT_ONCE = 8
ITERATIONS = 1000
TINY = 1e-30


def inner_products(observation: Observation, inputs: Tensor, labels: Tensor) -> np.ndarray:
    """Of the gradients of M samples, each on its own, and of those observed from V victims.

    Args:
        observation: the update and the model.
        inputs: Shape (M, *shape).
        labels: Shape (M).

    Returns:
        Shape (M + V, M + V), the samples first.
    """
    observed = mean_gradients(observation)
    products = []
    for name, gradients in _sample_gradients(observation, inputs, labels).items():
        every = torch.cat([gradients, observed[name]]).flatten(1)
        products.append((every @ every.mT).double())
    return torch.stack(products).sum(0).cpu().numpy()


def _sample_gradients(
    observation: Observation, inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Gradient of every sample's loss, for each parameter; Shape (M, *shape)."""
    model = observation.model
    held = {name: model.get_parameter(name).detach() for name in observation.update}
    samples = inputs.to(dtype_of(model))
    _, found = sample_gradients(model, held, samples, labels, observation.loss, AT_ONCE)
    return found


def cosines(products: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Of the mean gradient of each batch with every gradient.

    Args:
        products: inner products of G gradients; Shape (G, G).
        members: which of them a batch holds; Shape (B, N).

    Returns:
        Shape (B, G); zero where a gradient is.
    """
    within = products[members[:, :, None], members[:, None, :]].mean(axis=(1, 2))
    squares = within[:, None] * products.diagonal()
    return np.asarray(products[members].mean(axis=1) / np.sqrt(np.maximum(squares, TINY**2)))


def class_log_odds(
    products: np.ndarray, labels: np.ndarray, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """How likely each victim's batch holds a class, by what auxiliary batches with it look like.

    For each class among the auxiliary samples a logistic regression learns to tell auxiliary
    batches that hold it from batches that do not. What it sees of a batch are the cosines of its
    gradient with those of the auxiliary samples.

    Args:
        products: see `inner_products`.
        labels: of the auxiliary samples; Shape (M).
        samples: N, the size of the victims' batches.
        seed: of the attack's own randomness, which draws the auxiliary batches.

    Returns:
        The K classes, and the log-odds of each; Shape (K) and (V, K).
    """
    classes, count = np.unique(labels), len(labels)
    victims = cosines(products, np.arange(count, len(products))[:, None])[:, :count]
    if len(classes) == 1:
        return classes, np.zeros((len(victims), 1))
    odds = []
    for label in classes:
        random = stream(seed, "auxiliary batches", int(label))
        batches, held = _draw_batches(labels == label, samples, random)
        judge = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
        judge.fit(cosines(products, batches)[:, :count], held)
        odds.append(judge.decision_function(victims))
    return classes, np.stack(odds, axis=1)


def _draw_batches(
    chosen: np.ndarray, samples: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Positions in auxiliary batches and whether each batch holds a chosen one; half of them do."""
    half = (BATCHES // 2, samples)
    without = random.choice(np.flatnonzero(~chosen), half)
    holding = random.choice(len(chosen), half)
    holding[:, 0] = random.choice(np.flatnonzero(chosen), len(holding))
    return np.concatenate([holding, without]), np.arange(BATCHES) < len(holding)
