from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from gleak.cli.catalog import describe, list_registered
from gleak.core import registry
from gleak.core.errors import SpecError
from gleak.core.registry import PACKAGES, load, parse, register
from gleak.core.spec import Spec, parameter
from gleak.studies.targets import check_target

KINDS_AND_NAMES = [(kind, name) for kind in PACKAGES for name in load(kind)]


class Distance(Spec):
    kind: ClassVar[str] = "distance"


@pytest.fixture
def twin() -> Iterator[type[Spec]]:
    """A distance that shares its name with an attack."""
    known = dict(registry._REGISTERED["distance"])

    @register("cpl")
    class Twin(Distance):
        """Somebody else."""

        weight: float = parameter(0.5, "of the one", unit="kg", source="Table 9", ge=0)
        other: float = parameter(2.0, "of the other")

    yield Twin
    registry._REGISTERED["distance"] = known


def row_of(text: str, first: str) -> list[str]:
    """Return the cells of the first table row that begins with a word; prose has one cell."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines())
    return next(row for row in rows if row[0] == first)


def listed(text: str) -> list[tuple[str, str, str]]:
    """Kind, family and name of every line of a list."""
    found, kind, family = [], "", ""
    for line in filter(None, text.splitlines()):
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            kind = line
        elif depth == 2:
            family = line.strip()
        else:
            found.append((kind, family, line.split()[0]))
    return found


def test_everything_registered_is_listed_once():
    found = [(kind, name) for kind, _, name in listed(list_registered())]
    assert len(found) == len(KINDS_AND_NAMES)
    assert set(found) == set(KINDS_AND_NAMES)


def test_classes_of_a_module_are_a_family_with_its_docstring_as_heading():
    attacks = listed(list_registered("attack"))
    assert {kind for kind, _, _ in attacks} == {"attack"}
    families = {name: family for _, family, name in attacks}
    heading = "Deep leakage from gradients and the attacks derived from it"
    assert families["dlg"] == families["cpl"] == heading != families["rog"]


def test_a_line_says_what_the_first_line_of_the_docstring_says(twin: type[Spec]):
    assert row_of(list_registered("distance"), "cpl") == ["cpl", "Somebody else."]


def test_the_spec_is_described_in_its_canonical_form():
    text = describe("cpl+start=dark+restarts=2")
    assert "\ncanonical: cpl+restarts=2+start=dark\n" in text
    assert "/none/cpl+restarts=2+start=dark/scores.csv\n" in text
    assert "canonical" not in describe("cpl")
    assert "\nequations: Eq. 2, 6 to 8" in describe("agic")
    assert "CPL Algorithm 1, line 12 (alpha)" in describe("cpl")


@pytest.mark.parametrize(
    "kind", ["dataset", "model", "training", "crafting", "client", "defense", "attack"]
)
def test_every_class_of_a_level_has_an_example_that_is_a_target(kind: str):
    for name in load(kind):
        found = re.search(r"^example: snakemake (\S+)$", describe(name), re.MULTILINE)
        assert found or name == "custom", name
        if found:
            check_target(found[1], Path("results"), {}, ())


@pytest.mark.parametrize(("kind", "name"), KINDS_AND_NAMES)
def test_everything_registered_is_described(kind: str, name: str):
    text = describe(name)
    cls = load(kind)[name]
    assert f"{kind} {name}\n" in text
    assert cls.source in text
    for key, field in cls.model_fields.items():
        assert row_of(text, key)[0] == key
        assert (field.description or "") in text


def test_a_field_is_described_in_full(twin: type[Spec]):
    text = describe("cpl")
    assert "attack cpl\n" in text
    assert "distance cpl\n" in text
    cells = ["weight", "0.5", "float >= 0", "kg", "of the one", "Table 9"]
    assert row_of(text, "weight") == cells
    assert row_of(text, "other") == ["other", "2", "float", "of the other"]
    assert row_of(describe("table"), "grid")[:2] == ["grid", "required"]


def test_the_values_of_a_spec_stand_beside_the_defaults():
    text = describe("cpl+restarts=2+start=patterned~tiles=4")
    spec = parse("attack", "cpl")
    assert row_of(text, "field")[:3] == ["field", "value", "default"]
    assert row_of(text, "restarts")[:3] == ["restarts", "2", str(spec.restarts)]
    assert row_of(text, "start")[:3] == ["start", "patterned~tiles=4", "patterned"]
    assert row_of(text, "patience")[1] == row_of(text, "patience")[2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cpll", "unknown name 'cpll'; did you mean 'cpl'?"),
        ("cpl+restart=2", "unknown field 'restart'; did you mean 'restarts'?"),
        ("cpl+restarts=-2", "restarts"),
        ("cpl+restarts", "not of the form field=value"),
    ],
)
def test_what_cannot_be_described(text: str, fault: str):
    with pytest.raises(SpecError, match=re.escape(fault)):
        describe(text)
