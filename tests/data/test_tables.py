from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from gleak.data.tables import encode_table

ROWS = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.sampled_from("abc?"), st.integers(-9, 9)),
    min_size=1,
    max_size=12,
)


def table(rows: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["wage", "job", "age"]).astype({"job": str})


@given(train=ROWS, test=ROWS)
def test_values_lie_in_the_unit_interval_and_one_of_each_group_is_hot(
    train: list[tuple], test: list[tuple]
) -> None:
    features = encode_table(table(train), table(test))
    jobs = sorted({job for _, job, _ in train + test})
    assert features.names == ["wage", *(f"job={job}" for job in jobs), "age"]
    assert list(features.groups) == [0, *(1 for _ in jobs), 2]
    for rows, values in ((train, features.train), (test, features.test)):
        assert values.dtype == np.float32
        assert values.min() >= 0 and values.max() <= 1
        hot = values[:, features.groups == 1]
        assert np.array_equal(hot.sum(axis=1), np.ones(len(rows)))
        assert [jobs[place] for place in hot.argmax(axis=1)] == [job for _, job, _ in rows]


def test_scaling_follows_train_and_clips_test() -> None:
    train, test = table([(10, "a", 1), (20, "a", 1)]), table([(5, "b", 1), (15, "a", 3)])
    features = encode_table(train, test)
    assert list(features.train[:, 0]) == [0, 1]
    assert list(features.test[:, 0]) == [0, 0.5]
    assert list(features.train[:, -1]) == [0, 0]
    assert list(features.test[:, -1]) == [0, 1]
