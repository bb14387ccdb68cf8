from __future__ import annotations

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.assessment.table_columns import columns_of


def test_one_hot_features_are_one_column_with_the_name_of_the_category() -> None:
    table = Dataset(
        spec="adult",
        modality="tabular",
        train_inputs=np.zeros((1, 4), np.float32),
        train_labels=np.zeros(1, int),
        test_inputs=np.zeros((1, 4), np.float32),
        test_labels=np.zeros(1, int),
        class_names=np.array(["no"], object),
        feature_names=np.array(["age", "sex=Female", "sex=Male", "hours"], object),
        feature_groups=np.array([0, 1, 1, 2]),
    )
    columns = columns_of(table)
    assert [each.name for each in columns] == ["age", "sex", "hours"]
    sample = np.array([0.25, 0.4, 0.6, 1.0], np.float32)
    assert [each.text(sample) for each in columns] == ["0.250", "Male", "1.000"]
