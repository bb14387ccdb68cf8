from __future__ import annotations

from pathlib import Path

import pytest

from gleak.artifacts.inspect import describe_file
from gleak.artifacts.private import Private
from gleak.artifacts.reading import content_digest
from gleak.artifacts.store import Refused, refusal_in, refusing
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError, IncompatibleError, RefusedError

REASON = "attack a does not serve model b; use c"


def refuse(*outputs: Path, reason: str = REASON) -> None:
    with refusing(*outputs):
        raise IncompatibleError(reason)


def test_a_job_that_refuses_says_so_in_place_of_all_it_makes(
    private: Private, tmp_path: Path
) -> None:
    outputs = [tmp_path / "private.h5", tmp_path / "granted" / "labels.h5"]
    private.write(outputs[0])
    refuse(*outputs, reason="attack a does not\nserve model b; use c")
    assert [refusal_in(path) for path in outputs] == [REASON, REASON]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert REASON in describe_file(outputs[0])
    assert len(content_digest(outputs[0])) == 16


def test_reading_it_refuses_the_next_job_for_the_same_reason(tmp_path: Path) -> None:
    first, second = tmp_path / "update.h5", tmp_path / "reconstruction.h5"
    refuse(first)
    with pytest.raises(RefusedError, match=f"^{REASON}$"):
        Update.read(first)
    with refusing(second):
        Update.read(first)
    assert second.read_bytes() == first.read_bytes()


def test_a_damaged_refusal_is_no_refusal(tmp_path: Path) -> None:
    refuse(tmp_path / "update.h5")
    content = (tmp_path / "update.h5").read_bytes()
    (tmp_path / "update.h5").write_bytes(content.replace(b"model b", b"model c"))
    with pytest.raises(ArtifactError, match="not match its digest"):
        Update.read(tmp_path / "update.h5")
    assert refusal_in(tmp_path / "update.h5") is None


def test_other_errors_whole_artifacts_and_missing_files_are_no_refusals(
    private: Private, tmp_path: Path
) -> None:
    for error in (ArtifactError, MemoryError):
        with pytest.raises(error), refusing(tmp_path / "update.h5"):
            raise error("damaged")
    assert not (tmp_path / "update.h5").exists()
    private.write(tmp_path / "private.h5")
    assert refusal_in(tmp_path / "private.h5") is None
    assert refusal_in(tmp_path / "nothing.h5") is None
    with pytest.raises(ArtifactError, match="contains gleak/private"):
        Refused.read(tmp_path / "private.h5")
