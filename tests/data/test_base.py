"""Images as arrays, and splits of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gleak.core.errors import DataError
from gleak.data.base import first_per_class, quantize, read_pixels, stratified, to_pixels


def test_the_centre_is_cut_out_along_the_longer_side() -> None:
    stripes = np.zeros((4, 8, 3), dtype=np.uint8)
    stripes[:, 2:6] = (10, 20, 30)
    pixels = to_pixels(Image.fromarray(stripes), (3, 4, 4))
    assert np.array_equal(pixels, np.broadcast_to([[[10]], [[20]], [[30]]], (3, 4, 4)))


def test_shrinking_averages_over_what_is_covered() -> None:
    checkers = np.indices((32, 32)).sum(axis=0) % 2 * np.uint8(200)
    pixels = to_pixels(Image.fromarray(checkers.astype(np.uint8)), (1, 8, 8))
    assert np.abs(pixels.astype(int) - 100).max() <= 15


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1", "LA"])
def test_every_8_bit_mode_becomes_the_channels_wanted(mode: str, channels: int) -> None:
    pixels = to_pixels(Image.new("L", (6, 6), 255).convert(mode), (channels, 4, 4))
    assert pixels.shape == (channels, 4, 4) and pixels.dtype == np.uint8
    assert (pixels == 255).all()


def test_intensities_are_rounded_to_the_nearest_level() -> None:
    levels = np.arange(256).reshape(1, 16, 16)
    assert np.array_equal(quantize((levels + 0.4) / 255, (1, 16, 16))[0], levels)
    assert quantize(np.ones((2, 5, 5, 3)), (3, 4, 4)).shape == (2, 3, 4, 4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("suffix", ["png", "pgm", "tif", "big_endian.tif"])
def test_greys_of_16_bits_are_scaled(tmp_path: Path, suffix: str, channels: int) -> None:
    path = tmp_path / f"deep.{suffix}"
    levels = np.array([[0, 257], [40000, 65535]], dtype=">u2" if "big" in suffix else "<u2")
    Image.fromarray(levels).save(path)
    pixels = read_pixels(path, (channels, 2, 2))
    assert np.array_equal(pixels, np.broadcast_to([[0, 1], [156, 255]], (channels, 2, 2)))


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pictures_without_a_largest_value_are_refused_rather_than_cut_off(
    tmp_path: Path, kind: type
) -> None:
    path = tmp_path / "deep.tif"
    Image.fromarray(np.full((4, 4), 40000, dtype=kind)).save(path)
    with pytest.raises(DataError, match=r"deep\.tif.*8 bits"):
        read_pixels(path, (1, 4, 4))


@pytest.mark.parametrize("content", [b"", b"not an image", "truncated"])
def test_broken_files_are_named(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "broken.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:500] if isinstance(content, str) else content)
    with pytest.raises(DataError, match=r"broken\.png: cannot be read as an image"):
        read_pixels(path, (3, 8, 8))


LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(np.array)


@given(labels=LABELS, limit=st.integers(1, 6))
def test_the_first_of_each_class_are_kept_in_order(labels: np.ndarray, limit: int) -> None:
    kept, seen = [], dict.fromkeys(range(5), 0)
    for index, label in enumerate(labels):
        if seen[label] < limit:
            kept.append(index)
        seen[label] += 1
    assert list(first_per_class(labels, limit)) == kept


@given(per_class=st.integers(1, 10), classes=st.integers(2, 5))
def test_a_stratified_split_keeps_a_quarter_of_each_class(per_class: int, classes: int) -> None:
    labels = np.tile(np.arange(classes), 4 * per_class)
    inputs = np.arange(len(labels))
    train, test = stratified(inputs, labels)
    assert sorted([*train[0], *test[0]]) == list(inputs)
    assert np.array_equal(labels[test[0]], test[1])
    assert list(np.bincount(test[1])) == [per_class] * classes
