"""Baselines without any update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.metrics.reconstruction.assignment import allowed_pairs
from tests.attacks.cases import Make


@pytest.mark.parametrize("name", ["blind", "random_noise", "same_class"])
def test_the_update_makes_no_difference(make_case: Make, name: str) -> None:
    spec = parse("attack", name)
    seen, _ = make_case(spec, client="fedsgd+batch_size=3+victims=2")
    zeros = {key: torch.zeros_like(value) for key, value in seen.update.items()}
    found, other = (spec.reconstruct(each) for each in (seen, replace(seen, update=zeros)))
    assert np.array_equal(found.inputs, other.inputs)
    assert np.array_equal(found.labels, other.labels)


def test_noise_is_that_of_a_normal_distribution_cut_to_the_unit_range(make_case: Make) -> None:
    spec = parse("attack", "random_noise")
    seen, _ = make_case(spec, client="fedsgd+batch_size=8+victims=4")
    found = spec.reconstruct(seen).inputs
    assert np.mean(found == 0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(found == 1) == pytest.approx(0.159, abs=0.02)
    assert len(np.unique(found.reshape(32, -1), axis=0)) == 32


def test_images_of_the_same_class_are_compared_within_it(make_case: Make) -> None:
    spec = parse("attack", "same_class")
    seen, truth = make_case(spec, client="fedsgd+batch_size=4+victims=3")
    found = spec.reconstruct(seen)
    assert np.array_equal(np.sort(truth.labels), found.labels)
    allowed = allowed_pairs(truth.labels, found)
    assert np.array_equal(allowed, truth.labels[:, :, None] == found.labels[:, None])
    assert not (found.inputs[:, :, None] == truth.inputs[:, None]).all((3, 4, 5)).any()


def test_a_class_without_training_samples_is_refused(make_case: Make) -> None:
    spec = parse("attack", "same_class")
    seen, _ = make_case(spec)
    none = {**seen.granted, "class_sample": seen.granted["class_sample"][:, :0]}
    with pytest.raises(IncompatibleError, match=r"attack same_class: .* is empty"):
        spec.reconstruct(replace(seen, granted=none))


def test_floors_of_a_metric_have_its_tagger_and_take_images_only() -> None:
    for name in ("random_noise", "same_class"):
        spec = parse("attack", f"{name}+tagger=tagger~steps=5")
        assert [str(one) for one in spec.evaluators] == ["tagger+steps=5"]
        assert not spec.knowledge
        assert spec.modalities == {"image"}
