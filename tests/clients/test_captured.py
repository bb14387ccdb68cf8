from __future__ import annotations

import pytest

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.studies.cell import LEVELS, Cell

CELL = "digits/lenet/captured+capture=a/honest/captured+capture=a/none/cpl"


def cell(**changes: str) -> Cell:
    return Cell.parse({**dict(zip(LEVELS, CELL.split("/"), strict=True)), **changes})


def test_a_captured_cell_is_one_that_fits() -> None:
    assert str(cell()) == CELL
    assert str(cell(client="fedavg", defense="topk")).startswith("digits/lenet/captured+capture=a")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"training": "untrained"}, r"training captured\+capture=a, not untrained"),
        ({"training": "captured+capture=b"}, r"training captured\+capture=a, not .*=b"),
        ({"crafting": "fishing"}, "crafting honest, not fishing"),
        ({"defense": "gaussian"}, "defense none, not gaussian"),
    ],
)
def test_captured_clients_had_what_they_had(changes: dict[str, str], wanted: str) -> None:
    with pytest.raises(IncompatibleError, match=rf"client captured\+capture=a requires {wanted}"):
        cell(**changes)


def test_they_are_judged_as_far_as_the_cell_goes() -> None:
    texts = cell().strings()
    upto_client = {level: texts[level] for level in LEVELS[:5]}
    assert Cell.parse(upto_client).end == "client"
    with pytest.raises(IncompatibleError, match="requires training"):
        Cell.parse({**upto_client, "training": "untrained"})


@pytest.mark.parametrize("fields", ["repeats=2+victims=4", "labels=unique", "classes=3"])
def test_fields_of_clients_that_draw_samples_are_refused(fields: str) -> None:
    with pytest.raises(SpecError, match=rf"client 'captured': field '{fields.partition('=')[0]}'"):
        parse("client", f"captured+{fields}")


def test_batches_may_be_larger_than_the_dataset() -> None:
    cell(client="captured+batch_size=5000+capture=a")


def test_they_send_the_difference_of_weights_unless_said_otherwise() -> None:
    contents = [
        parse("client", f"captured{sends}").protocol.content for sends in ("", "+sends=gradient")
    ]
    assert contents == ["difference", "gradient"]
