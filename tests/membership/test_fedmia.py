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


@pytest.mark.parametrize(
    ("client", "fault"),
    [
        ("fedsgd+victims=2", "has 2 victims; use victims=3 or more"),
        ("fedsgd+repeats=8", "8 victims of client fedsgd[+]repeats=8 have the same; leave out"),
    ],
)
def test_clients_that_are_no_comparison_are_refused(client: str, fault: str) -> None:
    levels = {"dataset": "photos", "model": "lenet", "training": "untrained"}
    levels |= {"crafting": "honest", "client": client, "defense": "none"}
    with pytest.raises(IncompatibleError, match=fault):
        Cell.parse({**levels, "attack": "fedmia"})
