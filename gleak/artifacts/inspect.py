"""Human-readable views of an artifact: its tree as text, its samples as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from tabulate import tabulate

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


def describe_file(path: Path | str) -> str:
    """Return root attributes and a table of all datasets; values are read in chunks.

    Raises:
        ArtifactError: missing, truncated or foreign file.
    """
    with open_checked(path) as file:
        values = {key: attribute_of(file, key) for key in file.attrs}
        width = max(map(len, values))
        attributes = [f"  {key:<{width}}  {value}".rstrip() for key, value in values.items()]
        rows = [HEADER, *map(_describe_dataset, _datasets(file))]
    sides = ["left"] * LEFT_ALIGNED + ["right"] * (len(HEADER) - LEFT_ALIGNED)
    table = tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=sides)
    return "\n".join([str(path), *attributes, "", table])


def _datasets(group: h5py.Group) -> Iterator[h5py.Dataset]:
    for name in group:
        item = member(group, name, h5py.Group, h5py.Dataset)
        if isinstance(item, h5py.Group):
            yield from _datasets(item)
        else:
            check_storage(item)
            yield item


def _describe_dataset(dataset: h5py.Dataset) -> tuple[str, ...]:
    text = is_text(dataset.dtype)
    encoding = attribute_of(dataset, "encoding") or attribute_of(dataset.parent, "encoding")
    names = str(attribute_of(dataset, "dims") or "").split()
    if len(names) != dataset.ndim:
        names = [f"dim{axis}" for axis in range(dataset.ndim)]
    sizes = zip(names, dataset.shape, strict=True)
    stored = dataset.id.get_storage_size()
    packing = f" {dataset.compression} {dataset.nbytes / max(stored, 1):.1f}:1"
    return (
        dataset.name,
        "text" if text else str(dataset.dtype),
        " x ".join(f"{name} {size}" for name, size in sizes),
        str(attribute_of(dataset, "units") or ""),
        str(encoding or ""),
        f"{stored / 1000:.1f} kB{packing if dataset.compression else ''}",
        *([] if text else _statistics(dataset)),
    )


def _statistics(dataset: h5py.Dataset) -> list[str]:
    """Return min, mean, max and std of all but NaN; sums of squares merge (Chan et al. 1979)."""
    parts = (
        (dataset[part] for part in dataset.iter_chunks())
        if dataset.chunks
        else ([load_array(dataset.parent, dataset.name.rpartition("/")[2])])
    )
    count, mean, squares, smallest, largest = 0, 0.0, 0.0, np.inf, -np.inf
    for part in parts:
        values = np.asarray(part, np.float64)
        values = values[~np.isnan(values)]
        if values.size:
            gap, total = float(values.mean()) - mean, count + values.size
            squares += values.var() * values.size + gap**2 * count * (values.size / total)
            mean += gap * values.size / total
            count = total
            smallest, largest = np.fmin(smallest, values.min()), np.fmax(largest, values.max())
    if not count:
        return []
    return [f"{value:.4g}" for value in (smallest, mean, largest, (squares / count) ** 0.5)]


def save_image(path: Path | str, image: int, output: Path | str) -> Path:
    """Save one stored sample as a PNG; small ones are enlarged without smoothing.

    Args:
        path: ``dataset.h5`` (its test split), ``private.h5`` or ``reconstruction.h5``.
        image: index of the sample; samples of all victims are numbered consecutively.
        output: the PNG, whose path is returned.

    Raises:
        ArtifactError: no images in the file, no such image, or the output cannot be written.
    """
    with open_checked(path) as file:
        where, kind = file.filename, str(attribute_of(file, "format"))
        modality = attribute_of(file, "modality")
        if kind not in INPUTS:
            formats = ", ".join(INPUTS)
            raise ArtifactError(f"{where}: {kind} has no images; formats with images: {formats}")
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
        sample = np.asarray(inputs[tuple(map(int, np.unravel_index(image, leading)))])
    output = Path(output)
    with atomic(output, private=True) as temporary:
        enlarged(picture(sample)).save(temporary, format="PNG")
    return output
