from __future__ import annotations

import pytest

from gleak.core.errors import SpecError
from gleak.studies.axes import Axis, Place, check_axis, field_values
from gleak.studies.axis_labels import AxisLabels, read_spec

ROW = {"defense": "gaussian", "dataset": "photos"}


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        ("defense", "gaussian", read_spec("defense", "gaussian")),
        ("defense.name", "gaussian+std=1e-4", "gaussian"),
        ("defense.std", "gaussian+std=1e-4", 1e-4),
        ("defense.std", "gaussian", 1e-2),
        ("defense.std", "none", -1.0),
        ("attack.restarts", "cpl+restarts=3", 3.0),
        ("attack.restarts", "truth", -1.0),
        ("attack.start", "cpl", read_spec("start", "patterned")),
        ("client.labels", "fedsgd+labels=unique", "unique"),
    ],
)
def test_places(axis: str, value: str, expected: Place):
    read = Axis.read(axis)
    assert read.place(read_spec(read.level, value), missing=-1.0) == expected


def test_specs_without_a_field_are_told_apart_from_those_with_it():
    assert Axis.read("defense.std").has_field(read_spec("defense", "laplace"))
    assert not Axis.read("defense.std").has_field(read_spec("defense", "none"))
    assert not Axis.read("attack.restarts").has_field(read_spec("attack", "truth"))
    assert Axis.read("attack.name").has_field(read_spec("attack", "truth"))


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
    row = {level: read_spec(level, text) for level, text in ROW.items()}
    assert Axis.read("dataset").label(names, row["dataset"]) == "photos (for CIFAR-10)"
    assert Axis.read("defense.name").label(names, row["defense"]) == "Gaussian"
    assert Axis.read("defense.std").label(names, row["defense"]) == "0.01"
    assert Axis.read("defense.std").title(names) == "std"


def test_a_number_that_stands_alone_is_named(names: AxisLabels):
    row = {level: read_spec(level, text) for level, text in ROW.items()}
    assert Axis.read("defense.std").label_alone(names, row["defense"]) == "std 0.01"
    assert Axis.read("defense.name").label_alone(names, row["defense"]) == "Gaussian"
    assert Axis.read("dataset").label_alone(names, row["dataset"]) == "photos (for CIFAR-10)"


def test_field_values_are_written_as_on_axes():
    assert {"patterned+tiles=4", "argmin", "300"} <= field_values(
        "attack", "cpl+start=patterned~tiles=4"
    )
    assert field_values("attack", "truth") == set()
