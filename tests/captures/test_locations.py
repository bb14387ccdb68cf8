from __future__ import annotations

from pathlib import Path

import pytest

from gleak.captures.locations import MODEL, PRIVATE, UPDATE, Captures
from gleak.core.errors import DataError


@pytest.fixture
def captures(tmp_path: Path) -> Captures:
    """One that holds no truth, and what an import left that was killed."""
    for name in ("hand", ".hand.1.partial"):
        (tmp_path / "captures" / name).mkdir(parents=True)
    (tmp_path / "captures/hand/model.h5").touch()
    return Captures(tmp_path / "captures")


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        (
            "hant",
            MODEL,
            r"hant: no such capture; did you mean 'hand'\? valid: hand; create it with gleak",
        ),
        ("hand", PRIVATE, r"capture 'hand' has no true samples.*gleak import hand --truth"),
        ("hand", UPDATE, r"update\.h5 is missing; .*gleak import hand .*--replace"),
    ],
)
def test_what_is_not_there_is_said_with_what_to_do(
    captures: Captures, name: str, file: str, message: str
) -> None:
    assert captures.file("hand", MODEL) == captures.root / "hand/model.h5"
    with pytest.raises(DataError, match=message):
        captures.file(name, file)


def test_the_command_that_makes_the_folder_is_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"create it \(mkdir -p '{tmp_path}/my data'\)"):
        Captures(tmp_path / "my data" / "captures").check()
