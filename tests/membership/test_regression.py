from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import Ridge

from gleak.core.registry import parse
from gleak.membership.gradient_rows import all_rows, update_vectors
from gleak.membership.regression import ROUNDING, _noise
from tests.membership.conftest import MakeVictims

SPEC = parse("membership", "regression")


def test_without_defence_coefficients_are_the_shares_of_the_members(
    make_victims: MakeVictims,
) -> None:
    observation, candidates, member = make_victims()
    found = SPEC.infer(observation, candidates)
    np.testing.assert_allclose(found, member / 4, atol=1e-2)


def test_it_is_the_ridge_regression_of_scikit_learn(make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims(defense="gaussian+std=0.1")
    found = SPEC.infer(observation, candidates)
    for victim in range(observation.victims):
        own = candidates.of_victim(victim)
        rows = all_rows(observation, own.inputs, own.labels).double()
        update = update_vectors(observation)[victim].double()
        products, count = rows @ rows.T, len(rows)
        ridge = 4 * count * _noise(products, rows @ update, update)
        prior = torch.full((count,), 1 / count, dtype=torch.float64)
        regression = Ridge(
            float(ridge + ROUNDING * products.diagonal().mean()), fit_intercept=False
        )
        regression.fit(rows.T.numpy(), (update - prior @ rows).numpy())
        np.testing.assert_allclose(found[victim], regression.coef_ + 1 / count, atol=1e-6)
