from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from gleak.assessment.label_guess import label_guess
from gleak.clients.fedavg import FedSGD


def test_of_one_label_the_most_frequent_is_named() -> None:
    assert label_guess(np.array([0, 1, 1, 2]), FedSGD()) == pytest.approx(0.5)


@pytest.mark.parametrize("batch_size", [2, 5])
def test_no_other_guess_names_more(batch_size: int) -> None:
    """The oracle: every guess, on drawn batches."""
    population = np.repeat([0, 1, 2], [5, 3, 2])
    drawn = np.random.default_rng(0).choice(population, size=(20_000, batch_size))
    counts = np.stack([np.bincount(batch, minlength=3) for batch in drawn])
    shares = [
        np.minimum(counts, np.bincount(guess, minlength=3)).sum(1).mean() / batch_size
        for guess in combinations_with_replacement(range(3), batch_size)
    ]
    assert label_guess(population, FedSGD(batch_size=batch_size)) == pytest.approx(
        max(shares), abs=0.01
    )


def test_many_labels_of_few_classes_are_mostly_named_without_any_update() -> None:
    assert label_guess(np.arange(10), FedSGD(batch_size=100)) > 0.8


@pytest.mark.parametrize(
    ("client", "named"),
    [
        (FedSGD(batch_size=10, labels="unique"), 1.0),
        (FedSGD(batch_size=4, labels="unique"), 0.4),
        (FedSGD(batch_size=4, labels="unique", classes=5), 0.4),
        (FedSGD(batch_size=1, classes=2), 0.1),
        (FedSGD(batch_size=1000, classes=1), 0.1),
    ],
)
def test_the_guess_knows_how_clients_draw_labels(client: FedSGD, named: float) -> None:
    assert label_guess(np.arange(10), client) == pytest.approx(named)
