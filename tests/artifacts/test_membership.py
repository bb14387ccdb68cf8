from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gleak.artifacts.membership import CandidateSamples, digests_of
from gleak.core.errors import ArtifactError


def samples(**changes: Any) -> CandidateSamples:
    """Two victims with twenty candidates each, of a pool of forty."""
    values: dict[str, Any] = {
        "modality": "tabular",
        "inputs": np.arange(80, dtype=np.float32).reshape(40, 2) / 100,
        "labels": np.arange(40) % 3,
        "candidate": np.arange(40).reshape(2, 20),
        "reference_inputs": np.zeros((5, 2), np.float32),
        "reference_labels": np.zeros(5, int),
    }
    return CandidateSamples(**{**values, **changes})


def test_valid_candidates_pass() -> None:
    samples().validate()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"candidate": np.arange(38).reshape(2, 19)}, "19 candidates; give at least 20"),
        ({"candidate": np.arange(40).reshape(2, 20) + 1}, "positions 1 to 40 in a pool of 40"),
        ({"inputs": np.zeros((40, 2), np.float32)}, "candidates 0 and 1 of victim 0 are the same"),
        ({"reference_inputs": np.zeros((5, 3), np.float32)}, "has 3 along 'feature'"),
    ],
)
def test_bad_candidates_are_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ArtifactError, match=fault):
        samples(**changes).validate()


def test_a_sample_may_be_a_candidate_of_several_victims() -> None:
    samples(candidate=np.stack([np.arange(20), np.arange(20)[::-1]])).validate()


def test_intensities_that_two_programs_scaled_are_equal_and_neighbouring_ones_are_not() -> None:
    steps = np.arange(256, dtype=np.float32)[:, None]
    divided, multiplied = steps / np.float32(255), steps * np.float32(1 / 255)
    assert (divided != multiplied).any()
    assert digests_of(divided) == digests_of(multiplied)
    assert len({*digests_of(divided)}) == 256
