from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.data.base import DatasetSpec
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
MELIS = parse("attack", "melis")


def with_auxiliary(seen: Observation, inputs: np.ndarray, labels: np.ndarray) -> Observation:
    """The same victims before an attacker with these samples of his own."""
    found = {"auxiliary_inputs": inputs, "auxiliary_labels": labels}
    granted = {
        name: torch.from_numpy(values)[None].expand(seen.victims, *values.shape)
        for name, values in found.items()
    }
    return replace(seen, granted=granted)


@pytest.mark.parametrize("modality", ["image", "tabular"])
def test_what_is_reported_are_auxiliary_samples(make_case: Make, modality: str) -> None:
    seen, _ = make_case(MELIS, modality, client="fedsgd+batch_size=3+victims=4")
    own = seen.granted["auxiliary_inputs"][0].numpy()
    found = MELIS.reconstruct(seen)
    gaps = np.abs(found.inputs[:, :, None] - own).reshape(4, 3, len(own), -1).max(3)
    assert (gaps.min(2) == 0).all()
    assert len({tuple(gap.argmin(1)) for gap in gaps}) > 1
    assert all(len(set(gap.argmin(1))) == 3 for gap in gaps)


def test_a_member_of_the_auxiliary_set_is_recognised(make_case: Make) -> None:
    seen, truth = make_case(MELIS, client="fedsgd+victims=8")
    own, labels = (seen.granted[name][0].numpy() for name in sorted(MELIS.grants))
    inputs = np.concatenate([own[:20], truth.inputs[:, 0], own[20:]])
    held = np.concatenate([labels[:20], truth.labels[:, 0], labels[20:]])
    found = MELIS.reconstruct(with_auxiliary(seen, inputs, held))
    assert np.array_equal(found.labels, truth.labels)
    assert np.array_equal(found.inputs, truth.inputs)
    np.testing.assert_allclose(found.objective, 0, atol=1e-5)
    assert found.converged.all()


@pytest.mark.parametrize(("samples", "least"), [(1, 0.9), (2, 0.75)])
def test_labels_are_mostly_right(make_case: Make, samples: int, least: float) -> None:
    client = f"fedsgd+labels=unique+batch_size={samples}+victims=12"
    seen, truth = make_case(MELIS, client=client)
    found = np.sort(MELIS.reconstruct(seen).labels, axis=1)
    assert (found == np.sort(truth.labels, axis=1)).mean() >= least


def test_no_label_repeats_until_all_classes_are_there(make_case: Make) -> None:
    seen, _ = make_case(MELIS, client="fedsgd+batch_size=6+victims=2")
    found = MELIS.reconstruct(seen).labels
    for labels in found:
        assert sorted(labels[:4]) == [0, 1, 2, 3]
        assert labels[4:].tolist() == labels[:2].tolist()


def test_content_is_of_the_inferred_classes_as_far_as_there_is_any(make_case: Make) -> None:
    seen, _ = make_case(MELIS, client="fedsgd+batch_size=2+victims=5+labels=unique")
    own, labels = (seen.granted[name][0].numpy() for name in sorted(MELIS.grants))
    found = MELIS.reconstruct(seen)
    for inputs, inferred in zip(found.inputs, found.labels, strict=True):
        at = [int(np.flatnonzero((own == one).all((1, 2, 3)))[0]) for one in inputs]
        assert set(labels[at]) <= set(inferred)


def test_a_gradient_of_zero_has_not_converged(make_case: Make) -> None:
    seen, _ = make_case(MELIS)
    update = {name: value.clone() for name, value in seen.update.items()}
    for value in update.values():
        value[1] = 0
    found = MELIS.reconstruct(replace(seen, update=update))
    assert found.converged.tolist() == [True, False, True]
    assert found.objective[1] == 1


def test_without_auxiliary_samples_it_does_not_fit(
    make_case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, truth = make_case(MELIS)
    none = with_auxiliary(seen, truth.inputs[:0, 0], truth.labels[:0, 0])
    with pytest.raises(
        IncompatibleError, match="auxiliary samples are training samples, and there are none"
    ):
        MELIS.reconstruct(none)
    digits: DatasetSpec = parse("dataset", "digits")
    specs = (parse("model", "lenet"), parse("client", "fedsgd"))
    MELIS.check(digits, *specs)
    monkeypatch.setattr(type(digits), "sizes", {"train": 0, "test": 450})
    with pytest.raises(IncompatibleError, match="melis on digits: auxiliary samples"):
        MELIS.check(digits, *specs)
