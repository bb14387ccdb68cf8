"""Singular vectors and class means of a dense first layer's gradient."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

SINGULAR, ONE = parse("attack", "singular_vectors"), parse("attack", "aono")


def test_one_sample_is_exact_without_a_defence(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(SINGULAR, "fedsgd+victims=2", "fc2")
    found = SINGULAR.reconstruct(seen)
    found.validate()
    np.testing.assert_allclose(found.inputs, truth.inputs, atol=1e-3)
    assert found.labels.tolist() == truth.labels.tolist()


@pytest.mark.parametrize("model", ["fc2", "fc2+normalise=imagenet"])
@pytest.mark.parametrize("defense", ["gaussian", "fedcdp", "low_rank"])
def test_one_sample_is_nearer_than_by_the_ratio_of_gradients(
    make_photo_case: Make, model: str, defense: str
) -> None:
    seen, truth = make_photo_case(SINGULAR, "fedsgd+victims=2", model, defense)
    plain = psnr(truth.inputs, ONE.reconstruct(seen).inputs)
    found = SINGULAR.reconstruct(seen)
    assert (psnr(truth.inputs, found.inputs) > plain + 2).all()


def test_noise_leaves_the_labels_of_a_batch_and_means_of_its_classes(make_photo_case: Make) -> None:
    client = "fedsgd+batch_size=4+victims=2"
    seen, truth = make_photo_case(SINGULAR, client, "fc2", "dp+sigma=3e-3")
    found = SINGULAR.reconstruct(seen)
    found.validate()
    for labels, true in zip(found.labels.tolist(), truth.labels.tolist(), strict=True):
        assert (Counter(labels) & Counter(true)).total() >= 3
    grey = psnr(truth.inputs, np.full_like(truth.inputs, 0.5))
    assert psnr(truth.inputs, found.inputs).mean() > grey.mean() + 1


def test_noise_cannot_be_measured_without_spare_neurons() -> None:
    network = parse("model", "mlp+hidden=8").build((3, 8, 8), 4)
    with pytest.raises(IncompatibleError, match="more neurons than samples: 8 and 8"):
        SINGULAR.check_network(network, (3, 8, 8), 4, parse("client", "fedsgd+batch_size=8"))


@pytest.mark.parametrize("defense, kept", [("fedcdp", True), ("dp", False), ("gaussian", False)])
def test_samples_that_fill_their_range_are_kept_where_each_parameter_is_clipped(
    make_photo_case: Make, defense: str, kept: bool
) -> None:
    seen, _ = make_photo_case(SINGULAR, "fedsgd", "fc2", defense)
    assert SINGULAR.keeps_samples(seen) is parse("attack", "cpa_noisy").keeps_samples(seen) is kept
