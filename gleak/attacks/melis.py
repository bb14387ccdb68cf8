"""Property and membership inference with auxiliary samples of the attacker."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, AttackSummary
from gleak.attacks.matching.pieces import rows
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.differentiation import sample_gradients
from gleak.models.parameters import dtype_of
from gleak.runtime.seeding import stream

BATCHES = 128
AT_ONCE = 8
ITERATIONS = 1000
TINY = 1e-30
WITHOUT = "auxiliary samples are training samples, and there are none; use another dataset"


@register("melis")
class Melis(AttackSpec):
    """Labels by classifiers of gradients, samples by similarity of gradients to auxiliary ones.

    CPL compares with Melis et al. in two sentences ("membership-attack", "partial property
    inference on a carefully selected subset of data") and scores it as a reconstruction. Our
    interpretation: the subset is the auxiliary set, which contains no sample of a victim. The
    properties are the classes, with one binary classifier each, trained on gradients of auxiliary
    batches as large as the client's. The N most probable classes are the labels, starting again
    from the first if N exceeds the number of classes, so repeated labels in a batch of fewer
    samples than classes are missed. The reconstruction consists of the N auxiliary samples most
    likely to be members, by the cosine of their gradient with the observed one, samples of the
    inferred classes first.

    The objective is one minus the cosine of their mean gradient with the observed one.

    All gradients are taken at the broadcast parameters. Only their inner products are used; those
    of a batch follow from its samples', because its gradient is the mean of theirs.
    """

    source = "Melis et al. 2019, section IV; [29] in CPL section 4.2 and Figure 10"
    takes_batch_statistics: ClassVar[bool] = False

    @property
    def grants(self) -> frozenset[str]:
        """The auxiliary samples, which describe the population and no single victim."""
        return frozenset({"auxiliary_inputs", "auxiliary_labels"})

    def summary(self) -> AttackSummary:
        return AttackSummary(
            losses=("cosine",),
            optimizers=("selection of auxiliary samples",),
            labels="by classifiers of gradients",
        )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if dataset.sizes is not None and not dataset.sizes["train"]:
            raise IncompatibleError(f"attack {self} on {dataset}: {WITHOUT}")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        inputs, labels = (observation.granted[name][0] for name in sorted(self.grants))
        if not len(inputs):
            raise IncompatibleError(f"attack {self} on {observation.spec}: {WITHOUT}")
        auxiliary, samples = labels.cpu().numpy(), observation.batch_size
        products = inner_products(observation, inputs, labels)
        classes, odds = class_log_odds(products, auxiliary, samples, observation.seed)
        inferred = classes[_best(odds, samples)]
        victims = np.arange(len(auxiliary), len(products))
        similar = cosines(products, victims[:, None])[:, : len(auxiliary)]
        likely = (auxiliary[:, None] == inferred[:, None]).any(axis=2)
        members = _best(similar + 2 * likely, samples)
        reached = cosines(products, members)[np.arange(len(members)), victims]
        return Reconstruction(
            inputs=inputs.float().cpu().numpy()[members],
            labels=inferred,
            converged=products.diagonal()[victims] > 0,
            objective=1 - reached,
        )


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of each row's highest scores, best first, repeated if too few."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return order[:, np.arange(count) % scores.shape[1]]


def inner_products(
    observation: Observation, inputs: torch.Tensor, labels: torch.Tensor
) -> np.ndarray:
    """Compute the inner products of the gradients of M samples and of V observed gradients.

    Shape (M + V, M + V), the samples first.
    """
    model, observed = observation.model, mean_gradients(observation)
    parameters = {name: model.get_parameter(name).detach() for name in observation.update}
    samples = inputs.to(dtype_of(model))
    _, of_samples = sample_gradients(
        model, parameters, samples, labels, observation.protocol.loss, AT_ONCE
    )
    products = []
    for name, gradients in of_samples.items():
        joined = rows(torch.cat([gradients, observed[name]]))
        products.append((joined @ joined.mT).double())
    return torch.stack(products).sum(0).cpu().numpy()


def cosines(products: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Compute the cosine of each batch's mean gradient with every gradient; 0 for those of zero.

    Args:
        products: inner products of G gradients; Shape (G, G).
        members: indices of the gradients in each batch; Shape (B, N), of the cosines (B, G).
    """
    within = products[members[:, :, None], members[:, None, :]].mean(axis=(1, 2))
    squares = within[:, None] * products.diagonal()
    return np.asarray(products[members].mean(axis=1) / np.sqrt(np.maximum(squares, TINY**2)))


def class_log_odds(
    products: np.ndarray, labels: np.ndarray, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the log-odds that each victim's batch contains a class.

    For each class among the auxiliary samples a logistic regression is trained to distinguish
    auxiliary batches with and without it, half of each. Its features of a batch are the cosines of
    the batch's gradient with those of the auxiliary samples.

    Args:
        products: see `inner_products`.
        labels: of the auxiliary samples; Shape (M).
        samples: N, the size of the victims' batches.
        seed: of the attack, from which auxiliary batches are drawn.

    Returns:
        The K classes and the log-odds of each; Shape (K) and (V, K).
    """
    from sklearn import linear_model, pipeline, preprocessing

    classes, count = np.unique(labels), len(labels)
    victims = cosines(products, np.arange(count, len(products))[:, None])[:, :count]
    if len(classes) == 1:
        return classes, np.zeros((len(victims), 1))
    odds = []
    for label in classes:
        random, half = stream(seed, "auxiliary batches", int(label)), (BATCHES // 2, samples)
        without = random.choice(np.flatnonzero(labels != label), half)
        containing = random.choice(count, half)
        containing[:, 0] = random.choice(np.flatnonzero(labels == label), len(containing))
        batches = np.concatenate([containing, without])
        contains = np.arange(BATCHES) < len(containing)
        regression = linear_model.LogisticRegression(max_iter=ITERATIONS)
        classifier = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
        classifier.fit(cosines(products, batches)[:, :count], contains)
        odds.append(classifier.decision_function(victims))
    return classes, np.stack(odds, axis=1)
