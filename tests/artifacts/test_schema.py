from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.schema import ArraySchema, array_fields, attribute_fields, check, dims_of
from gleak.core.errors import ArtifactError


def schema(dims: str, kind: str = "float") -> ArraySchema:
    return ArraySchema(tuple(dims.split()), "1", kind)


@pytest.mark.parametrize(
    ("dims", "rank", "named"),
    [
        ("victim sample", 2, "victim sample"),
        ("victim round weight...", 6, "victim round out in kh kw"),
        ("victim round weight...", 4, "victim round out in"),
        ("weight...", 0, ""),
        ("weight...", 5, "dim0 dim1 dim2 dim3 dim4"),
        ("victim sample feature...", 5, "victim sample channel height width"),
        ("victim sample feature...", 3, "victim sample feature"),
        ("victim ...", 3, "victim dim1 dim2"),
        ("... last", 3, "dim0 dim1 last"),
    ],
)
def test_dimensions_are_named_by_rank(dims: str, rank: int, named: str) -> None:
    assert dims_of(schema(dims), rank) == named.split()


def test_fields_are_distinguished() -> None:
    declared = [*attribute_fields(Reconstruction), *array_fields(Reconstruction)]
    assert sorted(declared) == sorted(field.name for field in fields(Reconstruction))
    assert attribute_fields(Reconstruction)["modality"] == "image"


@pytest.mark.parametrize(
    ("dims", "kind", "value", "fault"),
    [
        ("victim", "float", np.zeros((2, 2)), r"shape \(2, 2\), expected \(victim\)"),
        ("victim sample ...", "float", np.zeros(2), r"shape \(2,\), expected \(victim sample"),
        ("victim", "int", np.zeros(2), "has type float64, expected int values"),
        ("victim", "float", np.zeros(2, bool), "has type bool, expected float values"),
        ("victim", "float", np.array([1, np.nan, np.inf]), "2 values that are NaN or infinite"),
        ("victim", "text", np.array(["a", 1], object), "objects that are not text"),
        ("victim", "float", np.array(None), "has type object, expected float"),
    ],
)
def test_a_fault_is_reported_with_its_place(
    dims: str, kind: str, value: np.ndarray, fault: str
) -> None:
    with pytest.raises(ArtifactError, match=rf"^file\.h5: /key .*{fault}"):
        check("file.h5", {"/key": (schema(dims, kind), value)})


def test_equal_names_have_equal_sizes() -> None:
    images = schema("sample feature...")
    named = {"/a": (images, np.zeros((2, 3, 4, 4))), "/b": (images, np.zeros((2, 3, 4, 5)))}
    with pytest.raises(ArtifactError, match="/b has 5 along 'width', but /a has 4"):
        check("file.h5", named)


def test_parameters_of_one_group_differ_in_shape() -> None:
    weights = schema("weight...")
    check("file.h5", {"/a": (weights, np.zeros((2, 3))), "/b": (weights, np.zeros((4, 2)))})
