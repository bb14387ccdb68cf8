from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.knowledge.loading import load_knowledge
from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.reconstruction.feature_similarity import Jaccard, shares
from gleak.metrics.score import score
from gleak.metrics.score_table import read_scores

Make = Callable[..., Comparison]
TAGS = st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True)


@given(TAGS, TAGS)
def test_it_is_the_share_of_the_union_that_is_common(one: list[int], other: list[int]) -> None:
    expected = len({*one} & {*other}) / len({*one} | {*other})
    assert shares(np.array([one]), np.array([other])) == pytest.approx(expected)


def test_images_are_compared_by_what_the_tagger_sees(make_comparison: Make) -> None:
    """The stand-in sees the three brightest places: one, two or three of them are kept."""
    truth = np.zeros((1, 3, 1, 2, 3))
    truth[..., 0, :] = 1
    estimate = truth.copy()
    for sample, moved in ((1, 1), (2, 2)):
        estimate[0, sample, 0, 0, :moved] = 0
        estimate[0, sample, 0, 1, :moved] = 1
    found = Jaccard().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(found, [[3 / 3, 2 / 4, 1 / 5]])


def test_without_a_tagger_nothing_is_said(make_comparison: Make) -> None:
    images = np.zeros((1, 1, 1, 2, 3))
    comparison = replace(make_comparison(images, images), evaluators={})
    assert not Jaccard().applies(comparison)
    with pytest.raises(MetricUnavailable, match="names no tagger"):
        Jaccard().measure(comparison)


@pytest.mark.usefixtures("no_weights")
def test_scores_are_by_the_file_of_the_tagger(
    images, learned: Callable[[str], Path], tmp_path: Path, columns, make_reconstruction
) -> None:
    tagger = learned("tagger")
    inputs = images.samples("test", slice(6)).reshape(2, 3, *images.shape)
    labels = np.zeros((2, 3), int)
    private = Private(inputs=inputs, labels=labels, indices=labels)
    found = make_reconstruction(inputs=1 - inputs, labels=labels)
    private.write(tmp_path / "private.h5")
    found.write(tmp_path / "reconstruction.h5")
    words = (tmp_path / "private.h5", tmp_path / "scores.csv", columns)
    score(*words, tmp_path / "reconstruction.h5", [Jaccard()])
    assert not len(read_scores([tmp_path / "scores.csv"]))
    table = score(*words, tmp_path / "reconstruction.h5", [Jaccard()], evaluators=[tagger])
    _, network = load_knowledge(tagger, images.shape)
    assert set(table["metric"]) == {"jaccard"}
    assert set(table["value"]) <= {0.0, 0.2, 0.5, 1.0}
    assert network.tags(torch.rand(2, *images.shape)).shape == (2, 3)


def test_a_tagger_that_knows_a_victim_is_refused(
    images, learned: Callable[[str], Path], tmp_path: Path, columns
) -> None:
    inputs = images.samples("train", slice(6)).reshape(2, 3, *images.shape)
    labels = np.zeros((2, 3), int)
    Private(inputs=inputs, labels=labels, indices=labels).write(tmp_path / "private.h5")
    words = (tmp_path / "private.h5", tmp_path / "scores.csv", columns, None)
    with pytest.raises(
        IncompatibleError, match=r"knowledge\.h5: trained on tiny, which contains 6"
    ):
        score(*words, evaluators=[learned("tagger")])
