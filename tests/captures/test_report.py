from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.captures.importing import Capture
from gleak.captures.report import captured_cell, describe_capture
from gleak.captures.truth import Comparison
from gleak.core.errors import IncompatibleError, SpecError
from gleak.studies.cell import LEVELS, Cell

FIELDS = {"victims": 2, "batch_size": "4", "local_lr": "0.1", "sends": "weights"}


AGREED = Comparison((1e-6, 1e-7), 1)


def described(comparison: Comparison | None, **config: str) -> str:
    cell = captured_cell("hand", "digits", "lenet", **FIELDS)
    return describe_capture(cell, Capture(Path("data/hand"), comparison), Path("out"), config)


@pytest.mark.parametrize(
    ("comparison", "file"), [(AGREED, "scores.csv"), (None, "reconstruction.h5")]
)
def test_what_it_says_to_ask_for_is_a_cell(comparison: Comparison | None, file: str) -> None:
    *_, command = described(comparison).splitlines()
    words = command.split()
    assert words[0] == "snakemake"
    root, artifacts, *levels, last = words[1].split("/")
    assert (root, artifacts, last) == ("out", "artifacts", file)
    cell = Cell.from_path(dict(zip(LEVELS, levels, strict=True)))
    assert str(cell.client) == "captured+victims=2+batch_size=4+local_lr=0.1+capture=hand"


def test_a_configuration_given_otherwise_is_given_on() -> None:
    assert described(None, data_dir="mine").endswith("h5 --config data_dir=mine")
    spaced = described(None, data_dir="my data; ls")
    assert spaced.endswith("h5 --config 'data_dir=my data; ls'")
    both = described(None, data_dir="mine", captures_dir="sent")
    assert both.endswith("h5 --config data_dir=mine captures_dir=sent")


@pytest.mark.parametrize(
    ("comparison", "warning"),
    [
        (
            Comparison((0.5, 1e-6), 0.8),
            "1 of 2 updates differ .* by up to 50% of their norm: .*check batch size.*"
            r"best factor: 0\.8\)",
        ),
        (
            Comparison((9, 9), 10, 1.0),
            "2 of 2 updates.* by up to 900%.*they agree with --local-lr 1 ",
        ),
        (Comparison((2, 2), -1), ".*opposite direction; check that --before and --after"),
    ],
)
def test_an_update_that_the_truth_does_not_give_is_a_warning(
    comparison: Comparison, warning: str
) -> None:
    _, line, *_ = described(comparison).splitlines()
    assert re.match(f"warning: {warning}", line)
    assert "warning" not in described(AGREED)


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
    assert read.client.protocol.content == ("difference" if weights else "gradient")
    assert {name: getattr(read.client, name) for name in fields} == fields


def test_gradients_need_no_learning_rate() -> None:
    fields = {**FIELDS, "sends": "gradient"}
    del fields["local_lr"]
    assert captured_cell("hand", "digits", "lenet", **fields).client.protocol.content == "gradient"
