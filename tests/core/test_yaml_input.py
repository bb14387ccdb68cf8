from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from gleak.core.errors import SpecError
from gleak.core.settings import SCALES
from gleak.core.yaml_input import at_scale, load_mapping, read_model


class Size(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: int | None = None
    height: int | None = None


class Sizes(Size):
    quick: Size | None = None

    @model_validator(mode="after")
    def _check(self) -> Sizes:
        if self.width == self.height == 0:
            raise ValueError("there is nothing to see")
        return self


def test_a_scale_takes_the_place_of_what_it_names():
    file = Sizes(width=3, height=4, quick=Size(width=1))
    found = {scale: at_scale(file, Size, scale) for scale in SCALES}
    assert found["quick"] == Size(width=1, height=4)
    assert found["small"] == found["paper"] == Size(width=3, height=4)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"wdith": 1}, "unknown key 'wdith'; did you mean 'width'"),
        ({"quick": {"wdith": 1}}, "unknown key 'quick.wdith'; did you mean 'width'"),
        ({"width": "a", "hight": 2}, "width = 'a': .*integer.*; unknown key 'hight'"),
        ({"width": 0, "height": 0}, "there is nothing to see"),
    ],
)
def test_all_faults_stand_in_one_error(written: dict[str, object], fault: str):
    with pytest.raises(SpecError, match=f"^a place: {fault}"):
        read_model(Sizes, written, "a place")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a: [", "not YAML"),
        (b"\xff\xfe\xff", "not YAML"),
        (b"- a", "the list of sizes must be a mapping: width, height"),
        (None, "cannot read the list of sizes"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, content: bytes | None, fault: str):
    path = tmp_path / "sizes.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=f"sizes.yaml: {fault}"):
        load_mapping(path, "list of sizes", "width, height")
