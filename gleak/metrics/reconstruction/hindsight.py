"""Costs of an ensemble's choice among its candidates, which the truth tells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import SHARE, Comparison, MetricSpec
from gleak.metrics.reconstruction.assignment import gather, match_samples
from gleak.metrics.reconstruction.pixel_similarity import Psnr, Ssim


class EnsembleMetric(MetricSpec):
    """Base of the metrics of attacks that choose among candidates of several attacks."""

    source = "ours"

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack recorded its candidates."""
        found = comparison.reconstruction
        return super().applies(comparison) and found is not None and bool(found.candidates(0))


class HindsightMetric(EnsembleMetric):
    """Base of the metrics that apply another metric to the best candidate of each victim.

    An attacker has no such hindsight: the truth tells which candidate has the best mean, over the
    samples that the reconstruction has been assigned. Candidates are assigned to the truth like
    reconstructions, and those that lack one of these samples are left out. The reconstruction is
    itself a candidate, so that hindsight is never worse.
    """

    modalities = frozenset({"image"})

    @property
    @abstractmethod
    def plain(self) -> MetricSpec:
        """The underlying metric."""

    def measure(self, comparison: Comparison) -> np.ndarray:
        sign = 1 if self.better == "higher" else -1
        best, counted = self.plain.measure(comparison), self.matched(comparison)
        for victim, candidates in enumerate(candidates_in(comparison)):
            own = counted[victim]
            for candidate in candidates:
                if candidate.inputs is None or candidate.chosen:
                    continue
                rival = compared(candidate, comparison, victim)
                values = self.plain.measure(rival)[0]
                gain = sign * (values - best[victim])[own].sum()
                if self.matched(rival)[0, own].all() and gain > 0:
                    best[victim] = values
        return best


def candidates_in(comparison: Comparison) -> list[tuple[Candidate, ...]]:
    """Return the candidates of each victim."""
    found = comparison.reconstruction
    assert found is not None
    return [found.candidates(victim) for victim in range(comparison.victims)]


def compared(candidate: Candidate, comparison: Comparison, victim: int) -> Comparison:
    """Return the comparison of one victim in which a candidate is the estimate."""
    found, own = comparison.reconstruction, [victim]
    assert found is not None and candidate.inputs is not None and candidate.labels is not None
    whole = comparison.private
    private = replace(whole, inputs=whole.inputs[own], labels=whole.labels[own])
    proposed = Reconstruction(
        inputs=candidate.inputs[None],
        labels=candidate.labels[None],
        converged=found.converged[own],
        paired=found.paired,
    )
    estimate = gather(proposed.inputs, match_samples(private, proposed), np.nan)
    return replace(comparison, private=private, estimate=estimate, reconstruction=proposed)


@register("psnr_hindsight")
class PsnrHindsight(HindsightMetric):
    """`psnr` of the candidate with the highest mean; what an ensemble could have chosen."""

    unit = Psnr.unit
    better = Psnr.better
    limits = Psnr.limits

    @property
    def plain(self) -> MetricSpec:
        return Psnr()


@register("ssim_hindsight")
class SsimHindsight(HindsightMetric):
    """`ssim` of the candidate with the highest mean; what an ensemble could have chosen."""

    better = Ssim.better
    limits = Ssim.limits

    @property
    def plain(self) -> MetricSpec:
        return Ssim()


@register("choice_cost")
class ChoiceCost(EnsembleMetric):
    """Cost of the attacker's choice: `psnr_hindsight` minus `psnr`, means over the samples."""

    modalities = frozenset({"image"})
    per = "victim"
    unit = "dB"

    def measure(self, comparison: Comparison) -> np.ndarray:
        metric = PsnrHindsight()
        cost = metric.measure(comparison) - metric.plain.measure(comparison)
        counted = metric.matched(comparison)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(counted, cost, 0).sum(1) / counted.sum(1))


@register("chosen")
class Chosen(EnsembleMetric):
    """1 for a victim whose reconstruction is a candidate of an attack, 0 where another was chosen.

    There is no value where the attack proposed nothing, so the mean is the share of the victims
    that it was chosen for, of those for which it proposed something. Attacks are told apart by
    name. Scores have one such metric for each attack that proposed something, as
    ``chosen+attack=cpl``.
    """

    per = "victim"
    better = "higher"
    binary = True
    limits = SHARE

    attack: str | None = parameter(None, "name of the attack; none: any")

    def each(self, comparison: Comparison) -> Sequence[MetricSpec]:
        """Return one metric for each attack that proposed something, unless an attack is given."""
        if self.attack or not self.applies(comparison):
            return super().each(comparison)
        proposed = (
            each for own in candidates_in(comparison) for each in own if each.labels is not None
        )
        return [Chosen(attack=name) for name in dict.fromkeys(map(_name, proposed))]

    def is_among(self, names: Collection[str]) -> bool:
        """Return True if scores have the metric of this attack, of any attack if none is given."""
        if self.attack:
            return super().is_among(names)
        return any(name.partition("+")[0] == self.name for name in names)

    def measure(self, comparison: Comparison) -> np.ndarray:
        values = np.full(comparison.victims, np.nan)
        for victim, candidates in enumerate(candidates_in(comparison)):
            proposed = [each for each in candidates if each.inputs is not None]
            own = [each for each in proposed if self.attack in (None, _name(each))]
            if own:
                values[victim] = any(each.chosen for each in own)
        return values


def _name(candidate: Candidate) -> str:
    return candidate.attack.partition("+")[0]
