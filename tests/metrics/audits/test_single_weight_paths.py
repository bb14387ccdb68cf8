from __future__ import annotations

import numpy as np
import pytest

from gleak.metrics.audits.base import Layer
from gleak.metrics.audits.single_weight_paths import examine_filters
from gleak.metrics.audits.weight_matrices import Reach

FILTERS, VALUES = 40, 90


def share(weights: np.ndarray, gradients: np.ndarray | None = None) -> float:
    reach = None if gradients is None else Reach.from_gradients(weights, gradients)
    return examine_filters(Layer("a", weights, None, dense=False, reach=reach)).statistic


@pytest.mark.parametrize("law", ["uniform", "normal", "laplace"])
@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_filters_that_one_weight_makes_up_are_counted_but_for_one(law: str, scale: float):
    weights = getattr(np.random.default_rng(0), law)(size=(FILTERS, VALUES))
    assert share(weights) == 0
    weights[:10, 3] = 30
    assert share(scale * weights, np.ones_like(weights)) == 9 / FILTERS
    assert share(scale * weights) == (9 / FILTERS if scale == 1 else 0)


def test_faint_filters_are_judged_only_where_they_change_the_logits():
    weights = np.random.default_rng(0).normal(size=(FILTERS, VALUES))
    weights[:10] *= 1e-5
    weights[:10, 3] = 1e-3
    gradients = np.ones_like(weights)
    assert share(weights) == share(weights, gradients) == 0
    gradients[:10] = 1e4
    assert share(weights, gradients) == 9 / FILTERS
    gradients[:10] = 0
    assert share(weights, gradients) == 0


def test_filters_with_few_weights_are_skipped():
    weights = np.zeros((FILTERS, VALUES))
    weights[:, 0] = 1
    assert share(weights) == 0
