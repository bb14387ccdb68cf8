from __future__ import annotations

import numpy as np
import torch

from gleak.matching.finishing import equalized, finished, stretched

SAMPLES = torch.tensor([[[[-1.0, 0.5], [2.0, 4.0]]], [[[0.1, 0.2], [0.3, torch.nan]]]])[:, None]


def test_samples_are_cut_to_valid_intensities() -> None:
    found = finished(SAMPLES, "cut")
    np.testing.assert_allclose(found[0, 0, 0], [[0, 0.5], [1, 1]])
    np.testing.assert_allclose(found[1, 0, 0], [[0.1, 0.2], [0.3, 0]])


def test_each_sample_is_stretched_by_its_own_largest_magnitude() -> None:
    found = finished(SAMPLES, "stretched")
    np.testing.assert_allclose(found[0, 0, 0], [[0, 0.125], [0.5, 1]])
    np.testing.assert_allclose(found[1, 0, 0], [[1 / 3, 2 / 3], [1, 0]], rtol=1e-6)


def test_nothing_stays_nothing() -> None:
    np.testing.assert_array_equal(stretched(np.zeros((1, 2, 2))), 0)


def test_equalised_values_keep_their_order_and_fill_the_range() -> None:
    sample = np.random.default_rng(0).random((3, 16, 16)) ** 4
    equal = equalized(sample)
    order = np.argsort(sample, axis=None)
    assert (np.diff(equal.flatten()[order]) >= 0).all()
    shares, _ = np.histogram(equal, bins=4, range=(0, 1))
    np.testing.assert_allclose(shares / sample.size, 0.25, atol=0.05)
