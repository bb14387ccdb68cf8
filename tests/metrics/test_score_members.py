from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.membership import Members, Membership
from gleak.artifacts.store import refusing
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.metrics.score_members import score_members
from gleak.metrics.score_table import REFUSED, read_scores

COLUMNS = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "none",
    "attack": "regression",
    "grants": "candidates",
}
MEMBER = np.array([[True, True, False, False, False], [False, True, True, False, False]])


def write(folder: Path, member: np.ndarray = MEMBER, spec: str = "a/cell") -> tuple[Path, Path]:
    """Write perfect evidence, and who took part."""
    files = folder / "members.h5", folder / "membership.h5"
    Members(spec="a/cell", member=member).write(files[0])
    Membership(spec=f"{spec}/regression", evidence=MEMBER * 1.0).write(files[1])
    return files


def test_the_table_has_a_row_for_each_victim_or_member(tmp_path: Path) -> None:
    table = score_members(*write(tmp_path), tmp_path / "scores.csv", COLUMNS)
    assert table.groupby("metric").size().to_dict() == {
        "auc": 2,
        "d_prime": 2,
        "p_value": 2,
        "tpr": 4,
    }
    assert (table[table["metric"] == "auc"]["value"] == 1).all()
    assert set(table["grants"]) == {"candidates"}
    assert read_scores([tmp_path / "scores.csv"]).shape == table.shape


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"spec": "another"}, "they belong to different experiments"),
        ({"member": MEMBER[:, :4]}, "they belong to different experiments"),
        ({"member": np.zeros_like(MEMBER)}, "there is nothing to tell apart"),
        ({"member": np.ones_like(MEMBER)}, "there is nothing to tell apart"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    written: dict[str, object], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=fault):
        score_members(*write(tmp_path, **written), tmp_path / "scores.csv", COLUMNS)


def test_a_refused_cell_has_its_reason(tmp_path: Path) -> None:
    files = write(tmp_path)
    with refusing(files[1]):
        raise IncompatibleError("does not fit")
    table = score_members(*files, tmp_path / "scores.csv", COLUMNS)
    assert table[["status", "reason"]].to_numpy().tolist() == [[REFUSED, "does not fit"]]
