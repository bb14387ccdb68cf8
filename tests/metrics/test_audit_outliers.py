from __future__ import annotations

import numpy as np
import pytest

from gleak.metrics.audit import Layer
from gleak.metrics.audit_outliers import examine_layer

FILTERS, VALUES = 40, 90


def share(weights: np.ndarray, reached: np.ndarray | None = None) -> float:
    layer = Layer("a", weights, None, dense=False, reached=reached)
    return examine_layer(layer).statistic


@pytest.mark.parametrize("law", ["uniform", "normal", "laplace"])
@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_filters_that_one_weight_makes_up_are_counted(law: str, scale: float):
    weights = getattr(np.random.default_rng(0), law)(size=(FILTERS, VALUES))
    assert share(weights) == 0
    weights[:10, 3] = 30
    assert share(scale * weights) == 10 / FILTERS


def test_filters_that_decayed_are_judged_only_where_samples_reach_them():
    weights = np.random.default_rng(0).normal(size=(FILTERS, VALUES))
    weights[:10] *= 1e-5
    weights[:10, 3] = 1e-3
    reached = np.ones_like(weights, dtype=bool)
    assert share(weights) == 0
    assert share(weights, reached) == 10 / FILTERS
    reached[:10] = False
    assert share(weights, reached) == 0


def test_filters_with_few_weights_left_say_nothing():
    weights = np.zeros((FILTERS, VALUES))
    weights[:, 0] = 1
    assert share(weights) == 0
