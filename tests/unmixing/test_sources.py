from __future__ import annotations

import torch

from gleak.unmixing.mixtures import Mixture
from gleak.unmixing.sources import Unmixing, separate

VICTIMS, NEURONS, FEATURES = 4, 5, 7
STREAM = torch.Generator().manual_seed(0)
MIXTURE = Mixture(
    torch.randn(VICTIMS, NEURONS, FEATURES, generator=STREAM),
    torch.randn(VICTIMS, NEURONS, generator=STREAM),
)


def first_neurons(mixture: Mixture, count: int) -> Unmixing:
    """Rows that pick the first neurons; the books tell how many victims came together."""
    together = torch.full((len(mixture.weight),), len(mixture.weight))
    rows = torch.eye(NEURONS, dtype=torch.double)[:count].expand(len(together), -1, -1)
    return Unmixing(rows, together, together.double() + count / 10)


def test_every_victim_has_its_own_sources_and_the_rest_is_not_finite() -> None:
    found = separate(MIXTURE, [2, 0, 3, 2], 3, first_neurons)
    assert found.values.shape == (VICTIMS, 3, FEATURES)
    assert found.factors.shape == (VICTIMS, 3, 1)
    for victim, count in enumerate([2, 0, 3, 2]):
        torch.testing.assert_close(found.values[victim, :count], MIXTURE.weight[victim, :count])
        torch.testing.assert_close(found.factors[victim, :count, 0], MIXTURE.bias[victim, :count])
        assert not found.values[victim, count:].isfinite().any()


def test_victims_with_equally_many_sources_come_together() -> None:
    found = separate(MIXTURE, [2, 0, 3, 2], 4, first_neurons)
    assert found.values.shape[1] == 4
    assert found.iterations.tolist() == [2, 0, 1, 2]
    torch.testing.assert_close(found.objective, torch.tensor([2.2, 0.0, 1.3, 2.2]))


def test_without_any_source_there_is_nothing_to_unmix() -> None:
    found = separate(MIXTURE, [0] * VICTIMS, 2, first_neurons)
    assert not found.values.isfinite().any()
    assert found.objective.tolist() == [0.0] * VICTIMS


def test_rows_are_applied_in_double_precision() -> None:
    large = Mixture(torch.tensor([[[1e8], [1.0]]]), torch.tensor([[1e8, 1.0]]))
    rows = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]], dtype=torch.double)
    rows = torch.linalg.inv(torch.eye(2).double() + 1e-9) @ rows

    def unmix(mixture: Mixture, count: int) -> Unmixing:
        return Unmixing(rows, torch.zeros(1).long(), torch.zeros(1))

    found = separate(large, [2], 2, unmix)
    expected = rows @ large.weight.double()
    torch.testing.assert_close(found.values.double(), expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(found.factors, found.values)
