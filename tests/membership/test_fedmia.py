from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

from gleak.core.errors import IncompatibleError
from gleak.membership.fedmia import _places
from gleak.studies.cell import Cell


def test_it_is_the_place_in_the_normal_distribution_of_the_others() -> None:
    measured = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = _places(measured)
    for row, column in np.ndindex(6, 5):
        others = np.delete(measured[row].numpy(), column)
        place = norm.cdf(measured[row, column], others.mean(), np.sqrt(others.var() + 1e-8))
        assert found[row, column] == pytest.approx(place)


def test_two_clients_are_too_few_to_compare() -> None:
    levels = {"dataset": "photos", "model": "lenet", "training": "untrained"}
    levels |= {"crafting": "honest", "client": "fedsgd+victims=2", "defense": "none"}
    with pytest.raises(IncompatibleError, match="has 2 victims; use victims=3 or more"):
        Cell.parse({**levels, "attack": "fedmia"})
