"""Properties that specs state before reading must match the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from gleak.core.registry import load, parse
from gleak.data.base import DatasetSpec

NOWHERE = Path("/nonexistent")


BUNDLED = [name for name, cls in load("dataset").items() if cls().sizes is not None]


CHANGED = ["digits+size=8", "faces+size=25", "photos+size=225+crops=1", "photos+crops=3"]


@pytest.mark.parametrize("text", [*BUNDLED, *CHANGED])
def test_bundled_datasets_hold_what_their_specs_claim(text: str) -> None:
    spec = parse("dataset", text)
    dataset = spec.load(NOWHERE, seed=0)
    dataset.validate()
    assert dataset.shape == spec.shape
    assert dataset.classes == spec.classes
    assert {s: len(dataset.labels(s)) for s in ("train", "test")} == spec.sizes
    assert dataset.modality == spec.modality
    for split in ("train", "test"):
        assert set(dataset.labels(split)) == set(range(dataset.classes))
        samples = dataset.samples(split)
        assert samples.min() >= 0 and samples.max() <= 1 and samples.std() > 0.05


@pytest.mark.parametrize("cls", load("dataset").values(), ids=lambda cls: cls.name)
def test_every_dataset_names_its_source(cls: type[DatasetSpec]) -> None:
    assert cls.source
    assert len(cls().shape) == (3 if cls.modality == "image" else 1)
