from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gleak.models.memory_slices import VALUES, passes


@given(st.integers(0, 3000), st.integers(1, 400), st.integers(1, 20))
def test_all_samples_pass_once_and_few_at_a_time(samples: int, side: int, channels: int) -> None:
    parts = [range(samples)[some] for some in passes(samples, (channels, side, side))]
    assert [sample for part in parts for sample in part] == list(range(samples))
    for part in parts:
        assert len(part) == 1 or len(part) * channels * side**2 <= VALUES
    assert all(len(part) == len(parts[0]) for part in parts[:-1])
