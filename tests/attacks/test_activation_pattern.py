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


@pytest.mark.parametrize(
    ("client", "model", "defense", "reason"),
    [
        ("fedsgd", "fc2", "none", "other updates than signs"),
        ("fedsgd", "fc2", "quantize", "other updates than signs"),
        ("fedsgd+batch_size=2", "fc2", "signsgd", "needs one sample"),
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
