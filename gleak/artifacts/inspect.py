"""Human-readable views of an artifact: its tree as text, its samples as pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from gleak.artifacts.atomic import atomic
from gleak.artifacts.integrity import attribute_of, is_text
from gleak.artifacts.pictures import enlarged, picture
from gleak.artifacts.reading import check_storage, load_array, member, open_checked
from gleak.core.errors import ArtifactError, DamagedError

HEADER = ("key", "type", "shape", "unit", "encoding", "on disk", "min", "mean", "max", "std")
LEFT_ALIGNED = 6
INPUTS = {
    "gleak/dataset": "test_inputs",
    "gleak/private": "inputs",
    "gleak/reconstruction": "inputs",
}


@dataclass
class Statistics:
    """Running minimum, maximum, mean and standard deviation."""

    count: int = 0
    smallest: float = np.inf
    largest: float = -np.inf
    mean: float = 0.0
    squares: float = 0.0

    def add(self, part: np.ndarray) -> None:
        """Include further values; sums of squared deviations merge as in Chan et al. (1979)."""
        values = part.astype(np.float64, copy=False).ravel()
        if not values.size:
            return
        count, mean = self.count + values.size, float(values.mean())
        gap = mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + gap**2 * self.count * (
            values.size / count
        )
        self.mean += gap * values.size / count
        self.count = count
        self.smallest = float(np.fmin(self.smallest, values.min()))
        self.largest = float(np.fmax(self.largest, values.max()))

    def texts(self) -> list[str]:
        """Return min, mean, max and std as text; empty if no value was added."""
        if not self.count:
            return []
        deviation = (self.squares / self.count) ** 0.5
        return [f"{value:.4g}" for value in (self.smallest, self.mean, self.largest, deviation)]


def describe_file(path: Path | str) -> str:
    """Return root attributes and a table of all datasets; values are read in chunks.

    Raises:
        ArtifactError: missing, truncated or foreign file.
    """
    with open_checked(path) as file:
        datasets: list[h5py.Dataset] = []
        _collect(file, datasets)
        found = {key: attribute_of(file, key) for key in file.attrs}
        width = max(map(len, found))
        attributes = [f"  {key:<{width}}  {value}".rstrip() for key, value in found.items()]
        table = _align([HEADER, *(_describe_dataset(dataset) for dataset in datasets)])
    return "\n".join([str(path), *attributes, "", *table])


def _collect(group: h5py.Group, datasets: list[h5py.Dataset]) -> None:
    for name in group:
        item = member(group, name, h5py.Group, h5py.Dataset)
        if isinstance(item, h5py.Group):
            _collect(item, datasets)
        else:
            check_storage(item)
            datasets.append(item)


def _describe_dataset(dataset: h5py.Dataset) -> tuple[str, ...]:
    text = is_text(dataset.dtype)
    encoding = attribute_of(dataset, "encoding") or attribute_of(dataset.parent, "encoding")
    return (
        dataset.name,
        "text" if text else str(dataset.dtype),
        _describe_shape(dataset),
        str(attribute_of(dataset, "units") or ""),
        str(encoding or ""),
        _describe_storage(dataset),
        *([] if text else _statistics(dataset).texts()),
    )


def _describe_shape(dataset: h5py.Dataset) -> str:
    names = str(attribute_of(dataset, "dims") or "").split()
    if len(names) != dataset.ndim:
        names = [f"dim{axis}" for axis in range(dataset.ndim)]
    return " x ".join(f"{name} {size}" for name, size in zip(names, dataset.shape, strict=True))


def _describe_storage(dataset: h5py.Dataset) -> str:
    stored = dataset.id.get_storage_size()
    size = f"{stored / 1000:.1f} kB"
    if not dataset.compression:
        return size
    return f"{size} {dataset.compression} {dataset.nbytes / max(stored, 1):.1f}:1"


def _statistics(dataset: h5py.Dataset) -> Statistics:
    statistics = Statistics()
    if not dataset.chunks:
        statistics.add(load_array(dataset.parent, dataset.name.rpartition("/")[2]))
        return statistics
    for part in dataset.iter_chunks():
        statistics.add(np.asarray(dataset[part]))
    return statistics


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    """Pad columns to equal width, text left-aligned and numbers right-aligned."""
    full = [[*row, *[""] * (len(HEADER) - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    sides = ["<" if column < LEFT_ALIGNED else ">" for column in range(len(HEADER))]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in full
    ]


def save_image(path: Path | str, image: int, output: Path | str) -> Path:
    """Save one stored sample as a PNG; small ones are enlarged without smoothing.

    Args:
        path: ``dataset.h5`` (its test split), ``private.h5`` or ``reconstruction.h5``.
        image: index of the sample; samples of all victims are numbered consecutively.
        output: the PNG.

    Returns:
        ``output`` as a path.

    Raises:
        ArtifactError: no images in the file, no such image, or the output cannot be written.
    """
    with open_checked(path) as file:
        sample = _read_image(file, image)
    output = Path(output)
    image_file = enlarged(picture(sample))
    with atomic(output, private=True) as temporary:
        image_file.save(temporary, format="PNG")
    return output


def _read_image(file: h5py.File, image: int) -> np.ndarray:
    """Read one image; Shape (C, H, W)."""
    where, kind = file.filename, str(attribute_of(file, "format"))
    modality = attribute_of(file, "modality")
    if kind not in INPUTS:
        raise ArtifactError(
            f"{where}: {kind} has no images; formats with images: {', '.join(INPUTS)}"
        )
    if modality != "image":
        raise ArtifactError(f"{where}: contains {modality} data, not images")
    inputs = member(file, INPUTS[kind], h5py.Dataset)
    check_storage(inputs)
    leading, channels = inputs.shape[:-3], inputs.shape[-3:-2]
    if channels not in ((1,), (3,)):
        raise DamagedError(where, f"{inputs.name} has shape {inputs.shape}, not images")
    count = int(np.prod(leading))
    if not 0 <= image < count:
        raise ArtifactError(f"{where}: no image {image}; valid: 0 to {count - 1}")
    return np.asarray(inputs[tuple(map(int, np.unravel_index(image, leading)))])
