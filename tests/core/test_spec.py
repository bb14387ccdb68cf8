from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from gleak.core.errors import SpecError
from gleak.core.spec import (
    VALUE,
    Spec,
    allowed_values,
    build_spec,
    changed,
    field_text,
    format_spec,
    format_value,
    parameter,
    split_spec,
)


class Inner(Spec):
    kind: ClassVar[str] = "start"
    name: ClassVar[str] = "inner"

    tiles: int = parameter(2, "tiles", ge=1)


class Middle(Spec):
    kind: ClassVar[str] = "start"
    name: ClassVar[str] = "middle"

    inner: Inner = parameter(Inner(), "a start")


class Outer(Spec):
    kind: ClassVar[str] = "attack"
    name: ClassVar[str] = "outer"

    rate: float = parameter(0.1, "a rate", gt=0, le=1, unit="1", source="a paper")
    steps: int | None = parameter(300, "steps, or as many as it takes")
    width: Literal[4, 8, "wide"] = parameter(4, "a choice")
    signed: bool = parameter(False, "a switch")
    label: str = parameter("x", "a word")
    start: Inner | Middle = parameter(Inner(), "a start")


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE)
def test_a_number_reads_back_exactly_from_its_shortest_text(value: float) -> None:
    text = format_value(value)
    assert float(text) == value
    assert len(text) <= len(repr(value))
    assert VALUE.fullmatch(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.05"),
        (1e-4, "1e-4"),
        (1.25e-7, "1.25e-7"),
        (1.0, "1"),
        (1e5, "1e5"),
        (24000.0, "24000"),
        (-0.0, "0"),
        (True, "true"),
        (None, "none"),
        (128, "128"),
    ],
)
def test_values_are_written_as_a_person_would(value: object, text: str) -> None:
    assert format_value(value) == text


def test_a_spec_is_its_name_and_what_differs_in_the_order_declared() -> None:
    assert str(Outer()) == "outer"
    spec = Outer(signed=True, steps=None, start=Inner(tiles=4))
    assert str(spec) == "outer+steps=none+signed=true+start=inner~tiles=4"


def test_resolved_names_every_field_and_parts_every_spec() -> None:
    spec = Outer(start=Middle())
    assert spec.resolved()["start"] == {"name": "middle", "inner": {"name": "inner", "tiles": 2}}
    assert spec.resolved()["rate"] == 0.1
    assert spec.components() == [spec, Middle(), Inner()]


def test_texts_are_read_as_the_constants_they_stand_for() -> None:
    fields = {"steps": "none", "width": "8", "signed": "true", "rate": "1e-3", "label": "none"}
    expected = Outer(steps=None, width=8, signed=True, rate=1e-3, label="none")
    assert build_spec(Outer, fields) == expected
    assert build_spec(Outer, {"width": "wide"}) == Outer(width="wide")


def test_all_faults_of_a_spec_stand_in_one_error_with_the_nearest_field() -> None:
    with pytest.raises(SpecError) as caught:
        build_spec(Outer, {"ratee": "1", "rate": "2", "steps": "many", "width": "5"})
    message = str(caught.value)
    assert message.startswith("attack 'outer': ")
    assert "unknown field 'ratee'; did you mean 'rate'?" in message
    assert "field 'rate' = '2'" in message and "less than or equal to 1" in message
    assert "field 'steps' = 'many'" in message
    assert "field 'width' = '5'" in message and "'wide'" in message


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a+b", "'b' is not of the form field=value"),
        ("a+b=", "'b=' is not of the form field=value"),
        ("a+=b", "'=b' is not of the form field=value"),
        ("a+", "'' is not of the form field=value"),
        ("a+b=1+b=2", "field 'b' is given twice"),
        ("a b", "may contain only letters, digits"),
        ("a+b=1,2", "'1,2' may contain only letters, digits"),
        ("a+b=../c", "may contain only"),
        ("a~b=1", "may contain only"),
        ("a+b=c~", "may contain only"),
        ("", "may contain only"),
    ],
)
def test_malformed_strings_are_refused(text: str, fault: str) -> None:
    with pytest.raises(SpecError) as caught:
        split_spec(text)
    assert fault in str(caught.value)


def test_specs_invalid_in_paths_are_not_written() -> None:
    with pytest.raises(SpecError, match="nested too deep"):
        format_spec(Outer(start=Middle(inner=Inner(tiles=3))))
    assert str(Outer(start=Middle())) == "outer+start=middle"
    with pytest.raises(SpecError, match=r"'label' = 'a b' may contain only"):
        str(Outer(label="a b"))


def test_allowed_values_are_readable() -> None:
    told = {name: allowed_values(field) for name, field in Outer.model_fields.items()}
    assert told["rate"] == "float > 0 <= 1"
    assert told["steps"] == "int | none"
    assert told["width"] == "4 | 8 | wide"
    assert told["start"] == "inner | middle"

    class Start(Spec):
        kind: ClassVar[str] = "start"

    class Limited(Spec):
        share: Annotated[float, Field(ge=0)] | None = parameter(None, "optional")
        start: Start | None = parameter(None, "a start, if any")

    assert allowed_values(Limited.model_fields["share"]) == "float | none"
    assert allowed_values(Limited.model_fields["start"]) == "any start | none"


def test_a_setting_is_a_spec_without_its_effort_and_that_of_its_parts() -> None:
    class Trained(Inner):
        budget_fields: ClassVar[frozenset[str]] = frozenset({"steps"})

        steps: int = parameter(10, "steps")

    class Attack(Spec):
        kind: ClassVar[str] = "attack"
        name: ClassVar[str] = "attack"
        budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations"})

        iterations: int = parameter(5, "iterations")
        inner: Trained | None = parameter(None, "a part")

    spec = Attack(iterations=7, inner=Trained(tiles=3, steps=20))
    assert spec.setting() == Attack(inner=Trained(tiles=3))
    assert Attack(iterations=7).setting() == Attack()


def test_a_field_is_written_as_in_the_whole_spec() -> None:
    spec = Outer(rate=1.0, steps=None, start=Middle(inner=Inner()))
    for part in str(spec).split("+")[1:]:
        key, _, text = part.partition("=")
        assert field_text(spec, key) == text
    assert field_text(spec, "signed") == "false"


def test_a_changed_spec_differs_in_these_fields_alone() -> None:
    spec = Outer(rate=0.5, start=Inner(tiles=3))
    other = changed(spec, {"width": "8", "steps": "none"})
    assert (other.width, other.steps) == (8, None)
    assert changed(other, {"width": 4, "steps": 300}) == spec
    with pytest.raises(SpecError, match="unknown field 'rat'; did you mean 'rate'"):
        changed(spec, {"rat": 0.5})
    with pytest.raises(SpecError, match="'outer': field 'rate' = 2"):
        changed(spec, {"rate": 2})
