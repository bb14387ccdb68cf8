"""Candidates of an ensemble in reconstructions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.reconstruction import CANDIDATES, Candidate, Reconstruction, join_victims

SHAPE = (2, 1, 4, 4)
LISTED = [
    [
        Candidate(attack="aono", reason="a batch is mixed"),
        Candidate(
            attack="cpa_noisy",
            reason="a dense first layer",
            criterion=-40.5,
            evaluations=3,
            inputs=np.full(SHAPE, 0.25, dtype=np.float32),
            labels=np.array([3, -1]),
            chosen=True,
        ),
    ],
    [Candidate(attack="invertgrad+tv=0.1", reason="ValueError: no gradient\nof line two")],
]


def reconstruction(victims: int = 2) -> Reconstruction:
    return Reconstruction(
        inputs=np.zeros((victims, *SHAPE), dtype=np.float32),
        labels=np.zeros((victims, 2), dtype=int),
        converged=np.zeros(victims, dtype=bool),
    )


def assert_listed(found: Reconstruction, listed: list[list[Candidate]]) -> None:
    assert len(found.inputs) == len(listed)
    for victim, wanted in enumerate(listed):
        candidates = found.candidates(victim)
        assert len(candidates) == len(wanted)
        for ours, theirs in zip(candidates, wanted, strict=True):
            for name in Candidate.__dataclass_fields__:
                np.testing.assert_equal(getattr(ours, name), getattr(theirs, name))


def test_candidates_are_read_as_they_were_written(tmp_path: Path):
    path = tmp_path / "reconstruction.h5"
    reconstruction().with_candidates(LISTED).write(path)
    assert_listed(Reconstruction.read(path), LISTED)
    assert Reconstruction.read(path).inputs.shape == (2, *SHAPE)
    assert_listed(Reconstruction.read(path, victims=slice(1, 2)), LISTED[1:])


def test_samples_are_kept_of_candidates_that_propose_some_alone():
    bare = Candidate(attack="dlg", reason="not run")
    full = replace(bare, inputs=np.zeros(SHAPE, np.float32), labels=np.zeros(SHAPE[0], int))
    listed = [[bare] * 5 + [full], [full, bare, full]]
    found = reconstruction().with_candidates(listed)
    assert found.candidate_inputs is not None and found.candidate_inputs.shape == (2, 2, *SHAPE)
    assert_listed(found, listed)


def test_long_texts_of_some_victims_are_read_as_text(tmp_path: Path):
    """They are compressed in chunks, unlike short ones."""
    path, listed = tmp_path / "reconstruction.h5", [*LISTED]
    listed[1] = [replace(LISTED[1][0], reason="é" * 4096)]
    reconstruction().with_candidates(listed).write(path)
    assert_listed(Reconstruction.read(path, victims=slice(1, 2)), listed[1:])


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_shards_that_considered_other_attacks_are_joined(order: slice):
    parts = [reconstruction(1).with_candidates([own]) for own in LISTED]
    assert_listed(join_victims(parts[order]), LISTED[order])


def test_other_attacks_have_no_candidates():
    assert reconstruction().candidates(0) == ()
    assert join_victims([reconstruction(), reconstruction()]).candidate_attack is None


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidates_are_listed_only_if_all_of_their_fields_are_there(name: str):
    lacking = replace(reconstruction().with_candidates(LISTED), **{name: None})
    assert lacking.candidates(0) == ()
