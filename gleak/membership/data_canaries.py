"""Canaries that are samples of the data's distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from gleak.artifacts.audit_trials import AuditTrials
from gleak.clients.base import ClientSpec, check_batch
from gleak.core.errors import IncompatibleError, error_context
from gleak.core.registry import register
from gleak.core.spec import changed
from gleak.defenses.base import DefenseSpec
from gleak.membership.canaries import RUNS, CanarySpec, Sent, Subject, sent_updates
from gleak.models.parameters import independent_copy
from gleak.runtime.seeding import derived_seed, stream

Batches = tuple[np.ndarray, np.ndarray]
"""Samples of each run's client, (V, N, *shape), and their labels, (V, N)."""


class SampleCanarySpec(CanarySpec):
    """Base of audits by canaries that take the place of a sample in a client's batch.

    The neighbours are the batch with and without the canary. Every run has a batch and a canary of
    its own; a bound that holds for every pair of neighbours holds for runs of different pairs. The
    test knows the batch, the canary, and with them what would be sent without noise in either case:
    it projects what was sent on the difference of the two, which is the likelihood ratio of
    Gaussian noise. Two samples are seldom as far apart as the worst case, so the bound says what is
    lost about such samples, and lies below the accountant's. Where no step takes the canary
    (``drop_last``), the run is no trial.
    """

    takes_samples: ClassVar[bool] = True

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        super().check_defense(client, defense)
        if client.rounds > 1:
            raise IncompatibleError(
                f"audit {self}: {client} is observed for several rounds, and what is broadcast "
                "later depends on the canary; choose fedsgd or fedavg, or gradient_canaries"
            )

    def canary_labels(
        self, labels: np.ndarray, classes: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the labels with which canaries of these true labels take part; Shape (V)."""
        return labels

    def test(self, subject: Subject, seed: int) -> AuditTrials:
        present, absent = self._neighbours(subject, seed)
        included = stream(seed, "coins").random(self.trials) < 0.5
        samples, labels = (
            np.where(included.reshape(-1, *[1] * (one.ndim - 1)), one, other)
            for one, other in zip(present, absent, strict=True)
        )
        noiseless, scores, taken, recorded = subject.defense.noiseless, [], [], []
        send = _sender(subject, derived_seed(seed, "runs"))
        for start in range(0, self.trials, RUNS):
            rows = slice(start, start + RUNS)
            with_it, without = (
                send(noiseless, batches, rows).updates for batches in (present, absent)
            )
            sent = send(subject.defense, (samples, labels), rows)
            middle, change = (with_it + without) / 2, with_it - without
            scores.append(((sent.updates - middle) * change).sum(axis=(1, 2)))
            taken.append(sent.uses(subject.client.batch_size, 1)[:, :, 0].any(axis=1))
            recorded.append(sent.noise_multipliers)
        used = np.concatenate(taken)
        return AuditTrials(
            score=np.concatenate(scores)[used],
            present=included[used],
            noise_multipliers=recorded[0],
        )

    def _neighbours(self, subject: Subject, seed: int) -> tuple[Batches, Batches]:
        """Draw a batch for each run, and the same with a canary in place of its first sample."""
        from gleak.simulation.simulate import draw_batches

        dataset = subject.dataset
        assert dataset is not None
        client = changed(subject.client, {"victims": self.trials, "repeats": 1})
        labels = dataset.labels(client.split)
        check_batch(client, len(labels) - 1, len(np.unique(labels)), dataset.spec)
        with error_context(dataset.spec):
            indices = draw_batches(client, labels, seed)
        random = stream(seed, "canary samples")
        others = [random.choice(np.setdiff1d(np.arange(len(labels)), row)) for row in indices]
        canaries = np.array(others)
        samples, own = dataset.samples(client.split, indices), labels[indices]
        changed_samples, changed_labels = samples.copy(), own.copy()
        changed_samples[:, 0] = dataset.samples(client.split, canaries[:, None])[:, 0]
        classes = int(labels.max()) + 1
        changed_labels[:, 0] = self.canary_labels(labels[canaries], classes, random)
        return (changed_samples, changed_labels), (samples, own)


def _sender(subject: Subject, seed: int) -> Callable[[DefenseSpec, Batches, slice], Sent]:
    """Return the function that runs some clients, each with the same random numbers every time."""
    assert subject.network is not None and subject.dataset is not None
    network = subject.network
    subject.client.check_network(network, subject.dataset.shape)
    subject.defense.check_network(network, subject.dataset.shape)

    def send(defense: DefenseSpec, batches: Batches, rows: slice) -> Sent:
        client = changed(subject.client, {"first": rows.start})
        run = client.run(independent_copy(network))
        inputs, labels = (values[rows] for values in batches)
        return sent_updates(client, defense, run, inputs, labels, seed)

    return send


@register("data_canaries")
class DataCanaries(SampleCanarySpec):
    """Samples of the data's distribution, in place of others: what is lost about a usual record."""

    source = "Jagielski et al. 2020; Nasr et al. 2021"
