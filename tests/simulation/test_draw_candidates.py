from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.membership import CandidateSamples, Members
from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.simulation.draw_candidates import draw_candidates

CLASSES = 4


def numbered(train: int = 40, test: int = 60) -> Dataset:
    """Rows whose one value tells their split and position."""
    values = [np.arange(train) / 1000, 0.5 + np.arange(test) / 1000]
    return Dataset(
        modality="tabular",
        train_inputs=values[0][:, None].astype(np.float32),
        train_labels=np.arange(train) % CLASSES,
        test_inputs=values[1][:, None].astype(np.float32),
        test_labels=np.arange(test) % CLASSES,
        class_names=np.array(list("abcd")),
    )


def draw(
    folder: Path,
    dataset: Dataset,
    indices: list[list[int]],
    rounds: list[list[list[int]]] | None = None,
    **options: object,
) -> tuple[CandidateSamples, np.ndarray]:
    """Draw candidates of victims that hold these samples of the test split."""
    positions = np.array(indices)
    private = Private(
        spec="a/cell",
        inputs=dataset.samples("test", positions),
        labels=dataset.labels("test")[positions],
        indices=positions,
        rounds=None if rounds is None else np.array(rounds),
        modality="tabular",
    )
    dataset.write(folder / "dataset.h5")
    private.write(folder / "private.h5")
    options = {"split": "test", "count": 30, "seed": 1, **options}
    draw_candidates(folder / "dataset.h5", folder / "private.h5", folder, **options)
    members = Members.read(folder / "members.h5")
    return CandidateSamples.read(folder / "granted" / "candidates.h5"), members.member


def test_candidates_are_the_members_and_others_of_the_split(tmp_path: Path) -> None:
    dataset, indices = numbered(), [[0, 1, 2], [3, 4, 5]]
    drawn, member = draw(tmp_path, dataset, indices)
    assert drawn.candidate.shape == member.shape == (2, 30)
    for positions, is_in, own in zip(drawn.candidate, member, indices, strict=True):
        values, labels = drawn.inputs[positions, 0], drawn.labels[positions]
        places = np.round((values - 0.5) * 1000).astype(int)
        assert sorted(places[is_in]) == own
        assert not {*places[~is_in]} & {0, 1, 2, 3, 4, 5}
        assert (labels == places % CLASSES).all()
        assert is_in[:3].sum() < 3, "members come first"


def test_samples_that_no_step_takes_are_no_candidates(tmp_path: Path) -> None:
    rounds = [[[0, 1, 0]], [[1, 1, 2]]]
    drawn, member = draw(tmp_path, numbered(), [[0, 1, 2], [3, 4, 5]], rounds)
    own = [[0, 1], [4, 5]]
    for victim, positions in enumerate(drawn.candidate):
        places = np.round((drawn.inputs[positions, 0] - 0.5) * 1000).astype(int)
        assert sorted(places[member[victim]]) == own[victim]
        assert not {*places[~member[victim]]} & {0, 1, 2, 3, 4, 5}


def test_references_are_of_the_train_split(tmp_path: Path) -> None:
    drawn, _ = draw(tmp_path, numbered(), [[0, 1]])
    assert len(drawn.reference_inputs) == 40
    assert drawn.reference_inputs.max() < 0.5


def test_samples_of_victims_are_others_only_if_there_are_too_few(tmp_path: Path) -> None:
    indices = np.arange(40).reshape(4, 10).tolist()
    drawn, member = draw(tmp_path, numbered(test=50), indices)
    for positions, is_in in zip(drawn.candidate, member, strict=True):
        places = np.round((drawn.inputs[positions[~is_in], 0] - 0.5) * 1000).astype(int)
        assert {*range(40, 50)} <= {*places}


def test_others_may_be_of_the_own_classes(tmp_path: Path) -> None:
    drawn, _ = draw(tmp_path, numbered(test=100), [[0, 4, 8], [1, 2, 5]], of_own_classes=True)
    assert {*drawn.labels[drawn.candidate[0]]} == {0}
    assert {*drawn.labels[drawn.candidate[1]]} == {1, 2}


def test_copies_of_a_member_are_no_others(tmp_path: Path) -> None:
    dataset = numbered()
    dataset.test_inputs[20:50] = dataset.test_inputs[0]
    drawn, member = draw(tmp_path, dataset, [[0, 1, 2]], count=60)
    assert len(member[0]) == 30
    values = drawn.inputs[drawn.candidate[0], 0]
    assert (values == dataset.test_inputs[0, 0]).sum() == 1


def test_too_few_candidates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError, match="are 18 candidates, fewer than 20"):
        draw(tmp_path, numbered(test=18), [[0, 1, 2]])


def test_a_draw_depends_on_the_seed_alone(tmp_path: Path) -> None:
    drawn = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        drawn.append(draw(folder, numbered(), [[0, 1, 2]], seed=seed)[0].inputs)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_copies_of_candidates_are_no_references(tmp_path: Path) -> None:
    dataset = numbered()
    dataset.train_inputs[:20] = dataset.test_inputs[:20]
    drawn, _ = draw(tmp_path, dataset, [[0, 1, 2]], count=len(dataset.test_labels))
    references = {one.tobytes() for one in drawn.reference_inputs}
    assert not references & {one.tobytes() for one in drawn.inputs}
