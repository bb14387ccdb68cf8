"""QBI: biases at the quantile at which one sample of a batch activates a neuron."""

from __future__ import annotations

from statistics import NormalDist

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.dense_rows import RowsCrafting, RowsOfSamples
from gleak.models.base import ModelSpec


@register("qbi")
class QBI(RowsCrafting):
    """Quantile-based bias initialisation: a neuron is active for one sample of a batch on average.

    Weights w are standard normal. Of independent normal values with a mean m and a deviation s,
    w x is normal, with mean m sum(w) and deviation s |w|. The bias is minus its quantile at
    1 - 1 / ``batch_size``, at which the chance that exactly one sample of the batch activates the
    neuron is largest. Values of an image are not independent, so that the chance differs among
    neurons and images. The paper's search for better rows on public samples (PAIRS) is left out.
    """

    source = "Nowak et al. 2024 (QBI)"

    batch_size: int = parameter(
        64, "number of samples of which the update is expected to be a sum", source="ours", ge=2
    )
    mean: float = parameter(
        0.475,
        "mean of the values of samples",
        unit="intensity",
        source="ours: CIFAR-10, train split",
    )
    deviation: float = parameter(
        0.25,
        "standard deviation of the values of samples",
        unit="intensity",
        source="ours: CIFAR-10, train split",
        gt=0,
    )

    def draw_rows(
        self, rows: int, shape: tuple[int, ...], random: torch.Generator
    ) -> RowsOfSamples:
        weight = torch.randn(rows, torch.Size(shape).numel(), generator=random)
        quantile = NormalDist().inv_cdf(1 - 1 / self.batch_size)
        deviations = self.deviation * weight.norm(dim=1)
        return RowsOfSamples(weight, -self.mean * weight.sum(1) - quantile * deviations)

    def expected_share(self, model: ModelSpec, samples: int, clients: int) -> float | None:
        rows, chance = model.first_dense_neurons(None), 1 / self.batch_size
        return None if rows is None else expected_singled_out(rows, samples * clients, chance)


def expected_singled_out(rows: int, samples: int, chance: float) -> float:
    """Compute the expected share of samples that are alone in at least one of several rows.

    Each sample activates each row with this chance, independently of all others.
    """
    alone = chance * (1 - chance) ** (samples - 1)
    return float(1 - (1 - alone) ** rows)
