"""Every artifact reads back as it was written, whatever its declaration allows it to hold."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import (
    Clipped,
    Dense,
    Encoded,
    Factored,
    Quantized,
    Rounded,
    Signs,
    Sparse,
)
from gleak.artifacts.model import Knowledge, Model, Secret
from gleak.artifacts.private import Private
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.schema import ArraySchema, array_fields, attribute_fields
from gleak.artifacts.store import Artifact
from gleak.artifacts.update import Granted, Update
from gleak.runtime.checkpointing import Checkpoint

DECLARED = [Checkpoint, Dataset, Granted, Knowledge, Model, Private, Reconstruction, Secret]
TYPES = {
    "float": [np.float32, np.float64, np.float16],
    "int": [np.int64, np.int32, np.uint8],
    "bool": [np.bool_],
    "number": [np.float32, np.int64, np.uint8],
    "any": [np.float64, np.int64, np.bool_],
}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[a-z]{1,3}[0-9]?(\.[a-z]{1,3})?", fullmatch=True)
ATTRIBUTES = {
    "bool": st.booleans(),
    "str": TEXT,
    "int": st.integers(-(2**62), 2**62),
    "int | None": st.none() | st.integers(-(2**62), 2**62),
    "float": st.floats(allow_nan=False, allow_infinity=False),
}
relaxed = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def of_shape(kind: str, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    if kind == "text":
        return npst.arrays(object, shape, elements=TEXT)
    finite = {"allow_nan": False, "allow_infinity": False}
    return st.sampled_from(TYPES[kind]).flatmap(
        lambda dtype: npst.arrays(
            dtype,
            shape,
            elements=npst.from_dtype(
                np.dtype(dtype), **(finite if np.dtype(dtype).kind == "f" else {})
            ),
        )
    )


@st.composite
def shapes(draw: st.DrawFn, schema: ArraySchema, sizes: dict[str, int]) -> tuple[int, ...]:
    """A shape that fits a declaration; dimensions of one name share a size, samples a shape."""
    shape: list[int] = []
    for name in schema.dims:
        if name == "feature...":
            image = (sizes["channel"], sizes["height"], sizes["width"])
            shape.extend(image if sizes["rank"] == 3 else (sizes["feature"],))
        elif name.endswith("..."):
            shape.extend(draw(st.lists(st.integers(0, 3), max_size=4)))
        else:
            shape.append(sizes[name])
    return tuple(shape)


@st.composite
def artifacts(draw: st.DrawFn, cls: type[Artifact]) -> Artifact:
    declared = array_fields(cls)
    names = {name for schema in declared.values() for name in schema.dims}
    sizes = {name: draw(st.integers(0, 3)) for name in sorted(names)}
    sizes |= {name: draw(st.integers(1, 3)) for name in ("feature", "channel", "height", "width")}
    sizes["rank"] = draw(st.sampled_from([1, 3]))
    types = {field.name: str(field.type) for field in fields(cls)}
    found: dict[str, Any] = {name: draw(ATTRIBUTES[types[name]]) for name in attribute_fields(cls)}
    for name, schema in declared.items():
        one = shapes(schema, sizes).flatmap(lambda shape, kind=schema.kind: of_shape(kind, shape))
        value = st.dictionaries(NAMES, one, max_size=3) if schema.group else one
        found[name] = draw(st.none() | value if schema.optional else value)
    return cls(**found)


@st.composite
def encodings(draw: st.DrawFn, leading: tuple[int, int]) -> Encoded:
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    kind = draw(st.sampled_from([Dense, Sparse, Clipped, Factored, Quantized, Rounded, Signs]))
    if kind is Dense:
        return Dense(draw(of_shape("float", (*leading, *shape))))
    if kind is Factored:
        return draw(factored(leading, (2, *shape)))
    if kind is Signs:
        return Signs(draw(npst.arrays(np.int8, (*leading, *shape), elements=st.integers(-1, 1))))
    if issubclass(kind, Quantized):
        codes = draw(npst.arrays(np.int8, (*leading, *shape), elements=st.integers(-127, 127)))
        return kind(
            codes, draw(npst.arrays(np.float32, leading, elements=st.floats(0, 9, width=32)))
        )
    slots = draw(st.integers(0, 5))
    positions = st.integers(-1, int(np.prod(shape)) - 1)
    entries = {
        "indices": draw(npst.arrays(np.int64, (*leading, slots), elements=positions)),
        "values": draw(of_shape("float", (*leading, slots))),
        "shape": np.array(shape, np.int64),
    }
    if kind is Clipped:
        return Clipped(**entries, bounds=draw(of_shape("float", leading)))
    return Sparse(**entries)


@st.composite
def factored(draw: st.DrawFn, leading: tuple[int, int], shape: tuple[int, ...]) -> Factored:
    """Factors whose product is finite."""
    rank, elements = draw(st.integers(0, 3)), st.floats(-9, 9, width=16)
    dtypes = st.sampled_from(TYPES["float"])
    left, right = (shape[0], rank), (rank, int(np.prod(shape[1:])))
    return Factored(
        left=draw(npst.arrays(draw(dtypes), (*leading, *left), elements=elements)),
        right=draw(npst.arrays(draw(dtypes), (*leading, *right), elements=elements)),
        shape=np.array(shape, np.int64),
    )


@st.composite
def updates(draw: st.DrawFn) -> Update:
    leading = (draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    parameters = draw(st.dictionaries(NAMES, encodings(leading), min_size=1, max_size=3))
    return Update(
        spec=draw(TEXT),
        seed=draw(ATTRIBUTES["int | None"]),
        protocol=Protocol(
            content=draw(st.sampled_from(["gradient", "difference"])),
            batch_size=draw(st.integers(1, 512)),
            local_lr=draw(ATTRIBUTES["float"]),
            batch_norm=draw(st.sampled_from([None, "training"])),
        ),
        update=parameters,
    )


def assert_same(left: Any, right: Any) -> None:
    """Equal values, types and shapes; mappings in equal order."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif hasattr(left, "__dataclass_fields__"):
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name))
    else:
        assert left == right


@pytest.mark.parametrize("cls", DECLARED)
@relaxed
@given(data=st.data())
def test_declared_artifacts_read_back(
    cls: type[Artifact], data: st.DataObject, tmp_path: Path
) -> None:
    artifact = data.draw(artifacts(cls))
    artifact.write(tmp_path / "file.h5")
    assert_same(cls.read(tmp_path / "file.h5"), artifact)


@relaxed
@given(update=updates())
def test_updates_read_back_as_sent(update: Update, tmp_path: Path) -> None:
    update.write(tmp_path / "update.h5")
    assert_same(Update.read(tmp_path / "update.h5"), update)


@relaxed
@given(update=updates(), data=st.data())
def test_a_range_of_victims_is_what_slicing_gives(
    update: Update, data: st.DataObject, tmp_path: Path
) -> None:
    start = data.draw(st.integers(0, update.victims - 1))
    stop = data.draw(st.integers(start + 1, update.victims))
    update.write(tmp_path / "update.h5")
    part = Update.read(tmp_path / "update.h5", victims=slice(start, stop))
    assert part.victims == stop - start
    for name, encoded in update.update.items():
        np.testing.assert_array_equal(part.update[name].decode(), encoded.decode()[start:stop])


def test_text_of_any_numpy_kind_is_stored(tmp_path: Path) -> None:
    for names in (np.array(["a", "é"]), np.array([b"a", b"b"]), np.array(["a", ""], dtype="T")):
        dataset = Dataset(
            train_inputs=np.zeros((1, 2), np.float32),
            train_labels=np.zeros(1, int),
            test_inputs=np.zeros((1, 2), np.float32),
            test_labels=np.zeros(1, int),
            class_names=names,
        )
        dataset.write(tmp_path / "dataset.h5")
        expected = [n.decode() if isinstance(n, bytes) else str(n) for n in names]
        assert list(Dataset.read(tmp_path / "dataset.h5").class_names) == expected
