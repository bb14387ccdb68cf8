from __future__ import annotations

from pathlib import Path
from shutil import copytree
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import fetch_lfw_people

from gleak.core.errors import DataError
from gleak.data.base import stratified
from gleak.data.download import WINDOW, Cifar10, Cifar100, Lfw, Mnist, TorchvisionDataset
from gleak.runtime.torchvision_ops import ensure_operators


@pytest.fixture
def mnist_files(tmp_path: Path) -> tuple[Path, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Data folder with MNIST as downloaded by torchvision: a few images of noise."""
    raw = tmp_path / "torchvision" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        labels = np.tile(np.arange(10, dtype=np.uint8)[::-1], 2)
        images = generator.integers(0, 256, (20, 28, 28), dtype=np.uint8)
        write_idx(raw / f"{prefix}-images-idx3-ubyte", images)
        write_idx(raw / f"{prefix}-labels-idx1-ubyte", labels)
        splits[split] = (images, labels)
    return tmp_path, splits


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write the format of the original MNIST files."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">i4").tobytes()
    path.write_bytes(header + values.tobytes())


def test_without_a_folder_the_download_is_read(mnist_files) -> None:
    data_dir, splits = mnist_files
    dataset = Mnist().load(data_dir, seed=0)
    assert np.array_equal(dataset.train_inputs[:, 0], splits["train"][0])
    assert np.array_equal(dataset.test_inputs[:, 0], splits["test"][0])
    assert np.array_equal(dataset.train_labels, splits["train"][1])
    assert list(dataset.class_names) == [str(digit) for digit in range(10)]


def test_a_limit_holds_for_the_download(mnist_files) -> None:
    data_dir, splits = mnist_files
    dataset = Mnist(limit=1).load(data_dir, seed=0)
    assert np.array_equal(dataset.train_inputs[:, 0], splits["train"][0][:10])


def test_a_folder_goes_before_the_download(mnist_files, write_image) -> None:
    data_dir, _ = mnist_files
    for digit in range(10):
        write_image(data_dir / "mnist" / "train" / str(digit) / "a.png", 20 * digit)
    dataset = Mnist().load(data_dir, seed=0)
    assert list(dataset.train_inputs[:, 0, 0, 0]) == [20 * digit for digit in range(10)]
    assert dataset.shape == (1, 28, 28)


@pytest.mark.parametrize("fault", [URLError("no network"), RuntimeError("file is corrupted")])
def test_a_failed_download_says_where_to_put_a_folder(
    tmp_path: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Mnist, home: Path, *, download: bool) -> None:
        assert download
        raise fault

    monkeypatch.setattr(TorchvisionDataset, "read", fail)
    with pytest.raises(DataError) as error:
        Mnist().fetch(tmp_path)
    message = str(error.value)
    assert str(fault) in message and f"{tmp_path}/torchvision" in message
    assert f"{tmp_path}/mnist/train/<class>/" in message and "data_dir" in message


def test_nothing_is_downloaded_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchvisionDataset, "read", None)
    for look in (Mnist().check_data, lambda folder: Mnist().load(folder, seed=0)):
        with pytest.raises(DataError, match=r"neither .*/mnist nor a download .*download=true"):
            look(tmp_path)
    Mnist().check_data(tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_download_is_not_completed_unless_asked(
    mnist_files, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir, _ = mnist_files
    (data_dir / "torchvision/MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"cannot be read .*download=true"):
        Mnist().load(data_dir, seed=0)


@pytest.mark.parametrize("spec", [Cifar10(), Cifar100()])
def test_folders_of_downloads_are_those_of_torchvision(spec: TorchvisionDataset) -> None:
    ensure_operators()
    from torchvision import datasets

    assert getattr(datasets, spec.archive).base_folder == spec.unpacked


def test_nothing_is_downloaded_into_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchvisionDataset, "read", None)
    nowhere = tmp_path / "nowhere"
    for look in (Mnist().check_data, lambda folder: Mnist().load(folder, seed=0), Mnist().fetch):
        with pytest.raises(DataError, match=f"data_dir = {nowhere}: no such folder.*mkdir -p"):
            look(nowhere)
    assert not nowhere.exists()
    (tmp_path / "mnist").mkdir()
    with pytest.raises(DataError, match=r"neither .*mnist/train nor"):
        Mnist().check_data(tmp_path, download=True)


PEOPLE = {"Ada_Lovelace": 4, "Emmy_Noether": 8, "Rarely_Seen": 3}


@pytest.fixture
def lfw_files(tmp_path: Path) -> Path:
    """Data folder with LFW as downloaded by scikit-learn: grey faces on white walls."""
    home = tmp_path / "scikit-learn" / "lfw_home"
    home.mkdir(parents=True)
    for name in ("pairs.txt", "pairsDevTrain.txt", "pairsDevTest.txt"):
        (home / name).touch()
    for person, (name, count) in enumerate(PEOPLE.items()):
        folder = home / "lfw_funneled" / name
        folder.mkdir(parents=True)
        for number in range(count):
            picture = np.full((250, 250, 3), 255, dtype=np.uint8)
            picture[61:189, 61:189] = 20 + 60 * person
            Image.fromarray(picture).save(folder / f"{name}_{number:04}.png")
    return tmp_path


@pytest.mark.parametrize("size", [8, 31, 32, 128, 200])
def test_frequent_people_are_cropped_and_split_three_to_one(lfw_files: Path, size: int) -> None:
    dataset = Lfw(min_images=4, size=size).load(lfw_files, seed=0)
    assert list(dataset.class_names) == ["Ada Lovelace", "Emmy Noether"]
    assert list(np.bincount(dataset.train_labels)) == [3, 6]
    assert list(np.bincount(dataset.test_labels)) == [1, 2]
    assert dataset.shape == (3, size, size)
    expected = 20 + 60 * dataset.train_labels[:, None, None, None]
    assert np.array_equal(dataset.train_inputs, np.broadcast_to(expected, (9, 3, size, size)))


def test_faces_are_those_of_scikit_learn_without_its_cache(
    lfw_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache is of pickles, and is written beside the data, which may be read-only."""
    draws = np.random.default_rng(0)
    for file in sorted(lfw_files.rglob("*.png")):
        Image.fromarray(draws.integers(0, 256, (250, 250, 3), dtype=np.uint8)).save(file)
    copy = tmp_path / "copy"
    copytree(lfw_files / "scikit-learn", copy)
    expected = fetch_lfw_people(
        data_home=str(copy), color=True, min_faces_per_person=4, slice_=(WINDOW, WINDOW),
        resize=16.5 / 128, download_if_missing=False,
    )  # fmt: skip
    monkeypatch.setattr("sklearn.datasets.fetch_lfw_people", None)
    before = sorted((lfw_files / "scikit-learn").rglob("*"))
    dataset = Lfw(min_images=4, size=16).load(lfw_files, seed=0)
    assert sorted((lfw_files / "scikit-learn").rglob("*")) == before
    pixels = np.rint(expected.images * 255).astype(np.uint8).transpose(0, 3, 1, 2)
    train, test = stratified(pixels, expected.target)
    assert list(dataset.class_names) == list(expected.target_names)
    for found, wanted in (
        ((dataset.train_inputs, dataset.train_labels), train),
        ((dataset.test_inputs, dataset.test_labels), test),
    ):
        assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))


def test_scikit_learn_downloads_to_an_empty_folder(
    lfw_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in its cache before is not unpickled."""
    home = lfw_files / "scikit-learn"
    faces = home.rename(lfw_files / "published") / "lfw_home"

    def fetch(data_home: str, **_: object) -> None:
        assert not list(Path(data_home).iterdir())
        copytree(faces, Path(data_home) / "lfw_home")

    monkeypatch.setattr("sklearn.datasets.fetch_lfw_people", fetch)
    spec = Lfw(min_images=4, size=8)
    spec.fetch(lfw_files)
    assert len(spec.load(lfw_files, seed=0).train_labels) == 9
    assert {path.name for path in home.iterdir()} == {"lfw_home", ".lfw.lock"}


def test_a_number_of_images_that_nobody_has_is_refused(lfw_files: Path) -> None:
    with pytest.raises(DataError, match=r"min_images=9.*nobody has that many images in .*funneled"):
        Lfw(min_images=9).load(lfw_files, seed=0)
