from __future__ import annotations

import pytest

from gleak.core.errors import SpecError
from gleak.experiments.axes import (
    check_axis,
    field_values,
    has_field,
    label_alone,
    label_axis,
    label_place,
    place,
)
from gleak.experiments.axis_labels import AxisLabels


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        ("defense", "gaussian", "gaussian"),
        ("defense.name", "gaussian+std=1e-4", "gaussian"),
        ("defense.std", "gaussian+std=1e-4", 1e-4),
        ("defense.std", "gaussian", 1e-2),
        ("defense.std", "none", -1.0),
        ("attack.restarts", "cpl+restarts=3", 3.0),
        ("attack.restarts", "truth", -1.0),
        ("attack.start", "cpl", "patterned"),
        ("client.labels", "fedsgd+labels=unique", "unique"),
    ],
)
def test_places(axis: str, value: str, expected: float | str):
    assert place(axis, value, missing=-1.0) == expected


def test_specs_without_a_field_are_told_apart_from_those_with_it():
    assert has_field("defense.std", "laplace")
    assert not has_field("defense.std", "none")
    assert not has_field("attack.restarts", "truth")
    assert has_field("attack.name", "truth")


@pytest.mark.parametrize(
    ("axis", "fault"),
    [
        ("defence", "unknown axis 'defence'; did you mean 'defense'"),
        ("defense.sdt", "no defense of the grid has 'sdt'; did you mean 'std'"),
        ("dataset.std", "no dataset of the grid has 'std'"),
    ],
)
def test_unknown_axes_are_refused(names: AxisLabels, axis: str, fault: str):
    with pytest.raises(SpecError, match=fault):
        check_axis(axis, names)


def test_labels_of_places(names: AxisLabels):
    row = {"defense": "gaussian", "dataset": "photos"}
    assert label_place("dataset", names, row) == "photos (for CIFAR-10)"
    assert label_place("defense.name", names, row) == "Gaussian"
    assert label_place("defense.std", names, row) == "0.01"
    assert label_axis("defense.std", names) == "std"


def test_a_number_that_stands_alone_is_named(names: AxisLabels):
    row = {"defense": "gaussian", "dataset": "photos"}
    assert label_alone("defense.std", names, row) == "std 0.01"
    assert label_alone("defense.name", names, row) == "Gaussian"
    assert label_alone("dataset", names, row) == "photos (for CIFAR-10)"


def test_field_values_are_written_as_on_axes():
    assert {"patterned+tiles=4", "argmin", "300"} <= field_values(
        "attack", "cpl+start=patterned~tiles=4"
    )
    assert field_values("attack", "truth") == set()
