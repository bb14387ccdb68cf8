"""Property and membership inference with samples of the attacker's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.summary import AttackSummary
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.observation import Observation

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec

WITHOUT = "without training samples there are no auxiliary ones, and this attack knows no others"


@register("melis")
class Melis(AttackSpec):
    """Classes of a batch by classifiers of gradients, its content by the most similar own samples.

    CPL compares with Melis et al. in two sentences ("membership-attack", "partial property
    inference on a carefully selected subset of data") and scores it as a reconstruction. Our
    reading: the subset is the auxiliary set, none of whose samples is a victim's. The properties
    are the classes, one binary classifier each, trained on gradients of auxiliary batches as large
    as the client's; the N most probable ones are the labels, again from the first if N is more
    than there are classes. So a label that repeats among fewer samples than classes is missed. As
    content stand the N auxiliary samples most likely to be members, by the cosine of their
    gradient with the observed one, those of the inferred classes first.

    The objective is one minus the cosine of their mean gradient with the observed one.
    """

    source = "Melis et al. 2019, section IV; [29] in CPL section 4.2 and Figure 10"

    @property
    def grants(self) -> frozenset[str]:
        """The auxiliary samples: knowledge of the population, none of the victim."""
        return frozenset({"auxiliary_inputs", "auxiliary_labels"})

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(
            losses=("cosine",),
            optimizers=("choice among own samples",),
            labels="by classifiers of gradients",
        )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse datasets known to have no training samples.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if dataset.sizes is not None and not dataset.sizes["train"]:
            raise IncompatibleError(f"attack {self} on {dataset}: {WITHOUT}")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: no auxiliary samples.
        """
        from gleak.attacks.property_inference import class_log_odds, cosines, inner_products

        inputs, labels = (observation.granted[name][0] for name in sorted(self.grants))
        if not len(inputs):
            raise IncompatibleError(f"attack {self} on {observation.spec}: {WITHOUT}")
        own, samples = labels.cpu().numpy(), observation.batch_size
        products = inner_products(observation, inputs, labels)
        classes, odds = class_log_odds(products, own, samples, observation.seed)
        found = classes[_best(odds, samples)]
        victims = np.arange(len(own), len(products))
        similar = cosines(products, victims[:, None])[:, : len(own)]
        inferred = (own[:, None] == found[:, None]).any(axis=2)
        members = _best(similar + 2 * inferred, samples)
        reached = cosines(products, members)[np.arange(len(members)), victims]
        return Reconstruction(
            inputs=inputs.cpu().numpy()[members],
            labels=found,
            converged=products.diagonal()[victims] > 0,
            objective=1 - reached,
        )


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Positions of the highest scores of each row, best first, again from the best if too few."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return order[:, np.arange(count) % scores.shape[1]]
