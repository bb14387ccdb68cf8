"""Samples from the active neurons of a dense first layer that a sign update shows."""

from __future__ import annotations

import numpy as np
import pytest

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

PATTERN = parse("attack", "activation_pattern")


@pytest.mark.parametrize("model", ["fc2", "fc2+normalise=imagenet"])
def test_signs_show_more_of_an_image_than_a_guess(make_photo_case: Make, model: str) -> None:
    seen, truth = make_photo_case(PATTERN, "fedsgd+victims=2", model, "signsgd")
    PATTERN.check_observation(seen)
    found = PATTERN.reconstruct(seen)
    found.validate()
    grey = psnr(truth.inputs, np.full_like(truth.inputs, 0.5))
    assert (psnr(truth.inputs, found.inputs) > grey + 1).all()
    assert found.labels.tolist() == truth.labels.tolist()


def test_signs_of_a_batch_show_more_than_singular_vectors(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(
        PATTERN, "fedsgd+batch_size=4+victims=1", "fc2+hidden=128", "signsgd"
    )
    PATTERN.check_observation(seen)
    found = PATTERN.reconstruct(seen)
    found.validate()
    others = parse("attack", "singular_vectors").reconstruct(seen)
    gain = psnr(truth.inputs, found.inputs) - psnr(truth.inputs, others.inputs)
    assert gain.mean() > 2
    np.testing.assert_array_equal(np.sort(found.labels), np.sort(truth.labels))


@pytest.mark.parametrize(
    ("client", "model", "defense", "reason"),
    [
        ("fedsgd", "fc2", "none", "other updates than signs"),
        ("fedsgd", "fc2", "quantize", "other updates than signs"),
        ("fedsgd+batch_size=2", "fc2", "quantize", "other updates than signs"),
        ("fedsgd+batch_size=2+loss=nll_raw", "fc2", "signsgd", "needs the loss cross_entropy"),
        ("fedsgd+batch_size=2", "planted+model=lenet", "signsgd", "needs one sample, or a network"),
        ("fedsgd", "mlp+activation=sigmoid", "signsgd", "needs a ReLU"),
        ("fedavg+local_steps=2", "fc2", "signsgd", "one step"),
    ],
)
def test_other_updates_are_left_to_other_attacks(
    make_photo_case: Make, client: str, model: str, defense: str, reason: str
) -> None:
    seen, _ = make_photo_case(PATTERN, client, model, defense)
    with pytest.raises(IncompatibleError, match=reason):
        PATTERN.check_observation(seen)
