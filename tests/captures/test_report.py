from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.captures.importing import Capture
from gleak.captures.report import captured_cell, describe_capture
from gleak.core.errors import IncompatibleError, SpecError
from gleak.experiments.cell import LEVELS, Cell

FIELDS = {"victims": 2, "batch_size": "4", "local_lr": "0.1", "sends": "weights"}


def described(disagreement: float | None, **config: str) -> str:
    cell = captured_cell("hand", "digits", "lenet", **FIELDS)
    return describe_capture(cell, Capture(Path("data/hand"), disagreement), Path("out"), config)


@pytest.mark.parametrize(
    ("disagreement", "file"), [(1e-6, "scores.csv"), (None, "reconstruction.h5")]
)
def test_what_it_says_to_ask_for_is_a_cell(disagreement: float | None, file: str) -> None:
    *_, command = described(disagreement).splitlines()
    words = command.split()
    assert words[0] == "snakemake"
    root, artifacts, *levels, last = words[1].split("/")
    assert (root, artifacts, last) == ("out", "artifacts", file)
    cell = Cell.from_path(dict(zip(LEVELS, levels, strict=True)))
    assert str(cell.client) == "captured+victims=2+batch_size=4+local_lr=0.1+capture=hand"


def test_a_configuration_given_otherwise_is_given_on() -> None:
    assert described(None, data_dir="mine").endswith("h5 --config data_dir=mine")


@pytest.mark.parametrize(("disagreement", "doubted"), [(1e-6, False), (0.4, True)])
def test_an_update_that_the_truth_does_not_give_is_doubted(
    disagreement: float, doubted: bool
) -> None:
    assert ("check batch size" in described(disagreement)) == doubted


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"local_lr": None}, SpecError, "--local-lr is missing"),
        ({"local_steps": "x"}, SpecError, "'local_steps' = 'x'"),
        ({"batch_size": "3", "mini_batch": "2"}, SpecError, "whole number of epochs"),
        ({"name": "x" * 150}, SpecError, "characters long"),
        ({"dataset": "digts"}, SpecError, "did you mean 'digits'"),
        ({"dataset": "breast_cancer"}, IncompatibleError, "takes image data"),
    ],
)
def test_what_cannot_be_a_cell_is_refused(
    changes: dict[str, str], error: type[Exception], message: str
) -> None:
    given = {"name": "hand", "dataset": "digits", "model": "lenet", **FIELDS, **changes}
    with pytest.raises(error, match=message):
        captured_cell(**{key: value for key, value in given.items() if value is not None})


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.floats(1e-8, 1e3), st.booleans())
def test_whatever_the_protocol_its_cell_is_read_back_from_its_path(
    victims: int, size: int, steps: int, lr: float, weights: bool
) -> None:
    fields = {"victims": victims, "batch_size": size, "local_steps": steps, "local_lr": lr}
    sends = "weights" if weights else "gradient"
    cell = captured_cell("hand", "digits", "lenet", sends=sends, **fields)
    read = Cell.from_path(dict(zip(LEVELS, str(cell).split("/"), strict=True)))
    assert read == cell
    assert read.client.content == ("difference" if weights else "gradient")
    assert {name: getattr(read.client, name) for name in fields} == fields


def test_gradients_need_no_learning_rate() -> None:
    fields = {**FIELDS, "sends": "gradient"}
    del fields["local_lr"]
    assert captured_cell("hand", "digits", "lenet", **fields).client.content == "gradient"
