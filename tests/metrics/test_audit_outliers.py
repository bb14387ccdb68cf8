from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis

from gleak.metrics.audit import Layer
from gleak.metrics.audit_outliers import excess_kurtosis


@pytest.mark.parametrize("law", ["uniform", "normal", "laplace", "standard_cauchy"])
def test_the_kurtosis_is_that_of_a_library(law: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gleak.metrics.audit.BLOCK_VALUES", 100)
    weights = getattr(np.random.default_rng(0), law)(size=(30, 40)) + 0.5
    layer = Layer("a", weights, None, dense=True)
    assert excess_kurtosis(layer) == pytest.approx(kurtosis(weights, axis=None), rel=1e-9)


def test_equal_weights_have_none():
    assert excess_kurtosis(Layer("a", np.full((3, 4), 0.5), None, dense=True)) == 0
