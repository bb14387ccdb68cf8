from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from gleak.artifacts.encodings import Factored
from gleak.artifacts.integrity import set_attribute
from gleak.artifacts.update import Granted, Update
from gleak.core.errors import ArtifactError

Forge = Callable[[Path], AbstractContextManager[h5py.File]]


@pytest.fixture
def stored(update: Update, tmp_path: Path) -> Path:
    update.write(tmp_path / "update.h5")
    return tmp_path / "update.h5"


@pytest.mark.parametrize("shared", [False, True])
def test_a_share_of_the_victims_reads_its_own_and_all_that_is_shared(
    shared: bool, tmp_path: Path
) -> None:
    values = np.arange(6.0).reshape(3, 2)
    stored, expected = (values[:1], values[:1]) if shared else (values, values[1:])
    Granted(grant="labels", shared=shared, values=stored).write(tmp_path / "grant.h5")
    granted = Granted.read(tmp_path / "grant.h5", victims=slice(1, 3))
    assert granted.shared is shared
    assert np.array_equal(granted.values, expected)


def test_an_unknown_parameter_is_answered_with_the_nearest(stored: Path) -> None:
    with pytest.raises(ArtifactError, match=r"/update has no 'features\.0\.bios'; did you mean"):
        Update.read(stored, only=["features.0.bios"])


def test_parameters_of_unequal_victims_are_refused(update: Update, tmp_path: Path) -> None:
    thin = Factored(np.zeros((3, 1, 2, 1)), np.zeros((3, 1, 1, 6)), np.array([2, 6]))
    odd = replace(update, update={**update.update, "b": thin})
    with pytest.raises(ArtifactError, match=r"file\.h5: /update/b has .*\(3, 1\).*\(3, 2\)"):
        odd.write(tmp_path / "file.h5")
    with pytest.raises(ArtifactError, match="/update contains no parameter"):
        replace(update, update={}).validate()


@pytest.mark.parametrize(
    "key", ["features.0.bias", "classifier.weight/values", "features.1.weight/left"]
)
def test_values_must_be_finite(stored: Path, forged: Forge, key: str) -> None:
    with forged(stored) as file:
        dataset = file["update"][key]
        dataset[(0,) * dataset.ndim] = np.nan
    with pytest.raises(ArtifactError, match=rf"update\.h5: /update/{key} contains 1 values"):
        Update.read(stored)


def test_a_missing_part_is_named(stored: Path, forged: Forge) -> None:
    with forged(stored) as file:
        del file["update/classifier.weight/indices"]
    with pytest.raises(ArtifactError, match=r"/update/classifier\.weight/indices is missing"):
        Update.read(stored)
    with forged(stored) as file:
        del file["update"]
    with pytest.raises(ArtifactError, match=r"update\.h5: /update is missing"):
        Update.read(stored)


def test_an_unknown_encoding_is_named(stored: Path, forged: Forge) -> None:
    with forged(stored) as file:
        set_attribute(file["update/features.0.bias"], "encoding", "morse")
    with pytest.raises(ArtifactError, match="unknown encoding 'morse'"):
        Update.read(stored)
