"""Damage is found whatever bit it is in, and nothing else is taken for damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gleak.artifacts.integrity import digest_values
from gleak.artifacts.private import Private
from gleak.artifacts.reading import content_digest
from gleak.artifacts.update import Update
from gleak.core.errors import DamagedError
from tests.artifacts.test_round_trips import assert_same

FLIPS = 200


@pytest.fixture
def large(private: Private) -> Private:
    images = np.random.default_rng(0).random((3, 2, 3, 16, 16), dtype=np.float32)
    return replace(private, inputs=np.round(images, 1))


@pytest.mark.parametrize("kind", ["large", "update"])
def test_a_flipped_bit_is_found_or_changes_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    artifact: Private | Update = request.getfixturevalue(kind)
    artifact.write(tmp_path / "whole.h5")
    whole, path = (tmp_path / "whole.h5").read_bytes(), tmp_path / "damaged.h5"
    expected, found = type(artifact).read(tmp_path / "whole.h5"), 0
    places = range(0, len(whole), max(1, len(whole) // FLIPS))
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert_same(type(artifact).read(path), expected)
        except DamagedError:
            found += 1
    assert found > len(places) / 4


def test_a_part_is_checked_without_the_rest(large: Private, tmp_path: Path) -> None:
    path = tmp_path / "private.h5"
    random = np.random.default_rng(1).random((3, 2, 3, 512, 512), dtype=np.float32)
    replace(large, inputs=random).write(path)
    with h5py.File(path) as file:
        chunk = file["inputs"].id.get_chunk_info(file["inputs"].id.get_num_chunks() - 1)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(damaged)
    assert np.array_equal(Private.read(path, victims=slice(0, 1)).inputs, random[:1])
    for victims in (slice(2, 3), None):
        with pytest.raises(DamagedError, match=r"private\.h5"):
            Private.read(path, victims=victims)


def test_a_digest_is_of_the_content_alone(private: Private, tmp_path: Path) -> None:
    other = replace(private, labels=private.labels[::-1])
    for name, artifact in {"a": private, "b": private, "c": other}.items():
        artifact.write(tmp_path / f"{name}.h5")
    first, again, third = (content_digest(tmp_path / f"{name}.h5") for name in "abc")
    assert first == again != third


@given(npst.arrays(st.sampled_from([np.float32, np.int64, np.bool_]), npst.array_shapes()))
def test_arrays_of_other_type_shape_or_content_have_other_digests(values: np.ndarray) -> None:
    digest = digest_values(values)
    assert digest == digest_values(np.asfortranarray(values)) == digest_values(values.copy())
    other = values.copy()
    other.flat[0] = not other.flat[0]
    assert digest != digest_values(other)
    assert digest != digest_values(values[None])
    assert digest != digest_values(values.view(np.dtype(f"V{values.itemsize}")))


def test_texts_are_distinguished_at_their_ends() -> None:
    one, two = (np.array(texts, dtype=object) for texts in (["ab", "c"], ["a", "bc"]))
    assert digest_values(one) != digest_values(two)
    assert digest_values(one) == digest_values(one.astype("S")) == digest_values(one.astype("U"))
