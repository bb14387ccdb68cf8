from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.inspect import describe_file, save_image
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.store import CHUNK_BYTES
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError


def test_a_description_has_attributes_and_a_line_for_every_dataset(
    update: Update, tmp_path: Path
) -> None:
    update.write(tmp_path / "update.h5")
    text = describe_file(tmp_path / "update.h5")
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert lines["format"].split() == ["format", "gleak/update"]
    assert lines["spec"].split() == ["spec", "digits/lenet"]
    weight = lines["/update/features.0.weight"]
    assert "victim 3 x round 2 x out 6 x in 3 x kh 5 x kw 5" in weight
    assert "float32" in weight and "gzip" in weight and "dense" in weight
    values = update.update["features.0.weight"].decode()
    expected = [values.min(), values.mean(), values.max(), values.std()]
    np.testing.assert_allclose([float(n) for n in weight.split()[-4:]], expected, rtol=1e-3)
    sparse = lines["/update/classifier.weight/indices"]
    assert "flat position" in sparse and "sparse" in sparse
    right = lines["/update/features.1.weight/right"]
    assert "victim 3 x round 2 x rank 2 x column 54" in right and "factored" in right
    assert lines["key"].index("unit") == weight.index(" weight ") + 1


def test_text_and_empty_arrays_are_described_without_numbers(tmp_path: Path) -> None:
    table(tmp_path / "dataset.h5")
    lines = describe_file(tmp_path / "dataset.h5").splitlines()
    names = next(line for line in lines if line.startswith("/class_names"))
    assert names.split()[:4] == ["/class_names", "text", "class", "2"]
    assert names.rstrip().endswith("kB")


def test_values_that_are_nan_do_not_count(tmp_path: Path) -> None:
    values, path = np.array([[np.nan, 2, np.nan, 4]]), tmp_path / "reconstruction.h5"
    found = Reconstruction(
        inputs=np.zeros((1, 1, 2)), labels=np.zeros((1, 1), int), converged=np.zeros(1, bool)
    )
    replace(found, candidate_criterion=values).write(path)
    lines = describe_file(path).splitlines()
    criterion = next(line for line in lines if line.startswith("/candidate_criterion"))
    assert criterion.split()[-4:] == ["2", "3", "4", "1"]


def test_large_arrays_are_read_in_small_parts(
    private: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = np.random.default_rng(0).random((3, 2, 3, 256, 256), dtype=np.float32)
    replace(private, inputs=inputs).write(tmp_path / "private.h5")
    largest = 0
    original = h5py.Dataset.__getitem__

    def counting(dataset: h5py.Dataset, part: object) -> np.ndarray:
        nonlocal largest
        values = original(dataset, part)
        largest = max(largest, np.asarray(values).nbytes)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    text = describe_file(tmp_path / "private.h5")
    assert 0 < largest <= CHUNK_BYTES < inputs.nbytes
    line = next(line for line in text.splitlines() if line.startswith("/inputs"))
    expected = [inputs.min(), inputs.mean(), inputs.max(), inputs.std()]
    assert [float(n) for n in line.split()[-4:]] == pytest.approx(expected, rel=1e-3)


def test_a_file_that_is_no_artifact_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ArtifactError, match=r"notes\.txt: not a complete HDF5 file"):
        describe_file(tmp_path / "notes.txt")


def table(path: Path) -> Path:
    inputs, labels = np.zeros((2, 5), np.float32), np.zeros(2, int)
    Dataset(
        modality="tabular",
        train_inputs=inputs,
        train_labels=labels,
        test_inputs=inputs,
        test_labels=labels,
        class_names=np.array(["no", "yes"]),
    ).write(path)
    return path


def pictures(path: Path, images: np.ndarray) -> Path:
    labels = np.zeros(len(images), int)
    Dataset(
        train_inputs=images[:1],
        train_labels=labels[:1],
        test_inputs=images,
        test_labels=labels,
        class_names=np.array(["one"]),
    ).write(path)
    return path


def test_a_test_sample_is_saved_as_stored_and_grey_stays_grey(tmp_path: Path) -> None:
    images = np.arange(3 * 8 * 6, dtype=np.uint8).reshape(3, 1, 8, 6)
    path = pictures(tmp_path / "dataset.h5", images)
    output = save_image(path, 2, tmp_path / "out" / "two.png")
    assert output == tmp_path / "out" / "two.png"
    assert output.stat().st_mode & 0o777 == 0o600
    with Image.open(output) as picture:
        pixels, mode = np.asarray(picture), picture.mode
    assert mode == "L"
    assert pixels.shape == (8 * 22, 6 * 22)
    np.testing.assert_array_equal(pixels[::22, ::22], images[2, 0])
    np.testing.assert_array_equal(pixels[21::22, 21::22], images[2, 0])


def test_large_images_are_not_enlarged(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (1, 3, 128, 130), dtype=np.uint8)
    output = save_image(pictures(tmp_path / "dataset.h5", images), 0, tmp_path / "large.png")
    with Image.open(output) as picture:
        np.testing.assert_array_equal(np.asarray(picture), images[0].transpose(1, 2, 0))


def test_samples_of_several_victims_are_counted_through(private: Private, tmp_path: Path) -> None:
    inputs = private.inputs.copy()
    inputs[1, 1] = 1.5
    replace(private, inputs=inputs).write(tmp_path / "private.h5")
    pixels = [
        np.asarray(Image.open(save_image(tmp_path / "private.h5", image, tmp_path / "x.png")))
        for image in range(6)
    ]
    assert [bool((image == 255).all()) for image in pixels] == [False] * 3 + [True] + [False] * 2
    first = np.round(inputs[0, 0] * 255).transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels[0][::32, ::32], first)


def test_images_that_are_not_there_are_reported(
    private: Private, update: Update, tmp_path: Path
) -> None:
    private.write(tmp_path / "private.h5")
    update.write(tmp_path / "update.h5")
    table(tmp_path / "table.h5")
    pictures(tmp_path / "odd.h5", np.zeros((1, 5, 8, 8), np.uint8))
    for name, image, fault in (
        ("private", -1, "no image -1; valid: 0 to 5"),
        ("private", 6, "no image 6; valid: 0 to 5"),
        ("update", 0, "gleak/update has no images; formats with"),
        ("table", 0, "contains tabular data, not images"),
        ("odd", 0, r"/test_inputs has shape \(1, 5, 8, 8\), not images"),
    ):
        with pytest.raises(ArtifactError, match=rf"{name}\.h5: {fault}"):
            save_image(tmp_path / f"{name}.h5", image, tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
