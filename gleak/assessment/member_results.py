"""Inference of who took part, identification and measured epsilon, with their verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gleak.assessment.exposure import CONTROLS, mean_in
from gleak.assessment.findings import (
    Doubt,
    Identified,
    Inference,
    Mean,
    MeasuredEpsilon,
    Rate,
)
from gleak.assessment.generated_study import CANARIES, DEFENSES, DEPLOYED, MEMBERS
from gleak.assessment.measured import Measured
from gleak.assessment.resolved import RateThreshold, Resolved
from gleak.assessment.verdict_words import CONTRADICTED, ORDER, Verdict
from gleak.assessment.wording import bare_name
from gleak.defenses.base import NoDefense
from gleak.figures.statistics import select
from gleak.metrics.discrimination import AUC, MembershipMetricSpec, TruePositiveRate
from gleak.metrics.measured_epsilon import EpsilonAccounted, EpsilonMeasurable, EpsilonMeasured
from gleak.metrics.reconstruction.identification import Identified as IdentifiedSpec
from gleak.metrics.reconstruction.identification import IdentifiedByChance
from gleak.studies.cell import Cell

AUC_BY_CHANCE = 0.5
FEW = 0.05
"""Share of members found at 1% false positives below which they count as not found, if the
deployment has no threshold."""


@dataclass(frozen=True)
class Inferred:
    """Inferences beside what was recovered, of all defences."""

    took_part: list[Inference]
    identified: list[Identified]
    epsilons: list[MeasuredEpsilon]

    @classmethod
    def of(cls, resolved: Resolved, measured: Measured, contradicted: bool) -> Inferred:
        """Return what was measured; of captures that contradict the description or not."""
        return cls(
            inferences(resolved, measured, contradicted),
            list(identifications(resolved, measured)),
            list(measured_epsilons(resolved, measured)),
        )


def inferences(
    resolved: Resolved, measured: Measured, contradicted: bool = False
) -> list[Inference]:
    """Return what each method infers under each defence: the deployed one first, others in order.

    The strongest method of a defence comes before its others. A method that finds no more than
    chance of the same clients without a defence does not show that nothing can be found.
    """
    rows = [_inference(resolved, measured, cell) for cell in measured.cells(MEMBERS)]
    bare = [row for row in rows if row.defense == NoDefense.name]
    works = {row.method for row in bare or rows if _beyond_chance(row)}
    judged = [_judged(row, works, contradicted) for row in rows]
    places = [str(resolved.specs["defense"]), *resolved.defenses]
    return sorted(judged, key=lambda row: (places.index(row.defense), *_strength(row)))


def _strength(row: Inference) -> tuple[float, float]:
    return -(row.tpr.value or 0.0), -(row.auc.value or 0.0)


def _inference(resolved: Resolved, measured: Measured, cell: Cell) -> Inference:
    defense, method = str(cell.defense), str(cell.attack)
    scores = select(measured.scores(MEMBERS), {"defense": defense, "attack": method})
    member, auc = measured.members(cell), AUC()
    rates = [
        rate_of(threshold, mean_in(scores, str(threshold.metric)), _chance(threshold.metric))
        for threshold in resolved.rates_of(MembershipMetricSpec)
    ]
    return Inference(
        defense=defense,
        deployed=cell.defense == resolved.specs["defense"],
        method=method,
        clients=len(member),
        members=int(member.sum()),
        others=int((~member).sum()),
        auc=mean_in(scores, str(auc)),
        tpr=mean_in(scores, str(TruePositiveRate())),
        rates=rates,
        verdict="not measured",
    )


def _chance(metric: object) -> float:
    return metric.fpr if isinstance(metric, TruePositiveRate) else AUC_BY_CHANCE


def rate_of(threshold: RateThreshold, rate: Mean, chance: float) -> Rate:
    """Return a rate with its verdict by a threshold."""
    verdict: Verdict = "inconclusive"
    if rate.value is None:
        verdict = "not measured"
    elif rate.low is not None and rate.low >= threshold.value and rate.low > chance:
        verdict = "exposed"
    elif rate.high is not None and rate.high < threshold.value:
        verdict = "not found"
    return Rate(
        metric=str(threshold.metric),
        rate=rate,
        chance=chance,
        threshold=threshold.value,
        verdict=verdict,
    )


def _beyond_chance(row: Inference) -> bool:
    """Return True if the interval of one of the two is above chance."""
    found = ((row.tpr, TruePositiveRate().fpr), (row.auc, AUC_BY_CHANCE))
    return any(mean.low is not None and mean.low > chance for mean, chance in found)


def _judged(row: Inference, works: set[str], contradicted: bool) -> Inference:
    """Return an inference with its verdict, and the doubts of one that cannot tell."""
    if row.tpr.value is None:
        return row
    if row.rates:
        verdict: Verdict = max((rate.verdict for rate in row.rates), key=ORDER.index)
    elif _beyond_chance(row):
        verdict = "exposed"
    else:
        few = row.tpr.high is not None and row.tpr.high < FEW
        verdict = "not found" if few else "inconclusive"
    doubts = []
    if contradicted:
        doubts.append(
            Doubt(text=CONTRADICTED, remedy="correct what gleak import says, and assess again")
        )
    measured = row.tpr.low is not None and row.tpr.high is not None
    if verdict == "inconclusive":
        between = f"between {row.tpr.low:.0%} and {row.tpr.high:.0%}" if measured else "unknown"
        end = "" if measured else ", too few for an interval"
        doubts.append(
            Doubt(
                text=f"{row.clients} clients leave the members that {bare_name(row.method)} finds "
                f"{between}{end}",
                remedy=f"victims: more than {row.clients}",
            )
        )
    if measured and verdict != "exposed" and row.method not in works:
        doubts.append(
            Doubt(
                text=f"{bare_name(row.method)} finds no more than chance without any defence",
                remedy="other methods of inference (gleak list membership), which cost more",
            )
        )
    update = {"verdict": "inconclusive" if doubts else verdict, "doubts": doubts}
    return row.model_copy(update=update)


def identifications(resolved: Resolved, measured: Measured) -> Iterator[Identified]:
    """Yield the share of identified samples, by the attack that identifies most of a defence."""
    deployed = str(resolved.specs["defense"])
    for threshold in resolved.rates_of(IdentifiedSpec):
        by_chance = IdentifiedByChance(**dict(threshold.metric))
        for defense in dict.fromkeys([deployed, *resolved.defenses]):
            grid = DEPLOYED if defense == deployed else DEFENSES
            scores = select(measured.scores(grid), {"defense": defense})
            found = {
                attack: mean_in(scores, str(threshold.metric), attack=attack)
                for attack in dict.fromkeys(scores["attack"])
                if attack and attack not in CONTROLS
            }
            known = {attack: share for attack, share in found.items() if share.value is not None}
            if not known:
                continue
            attack = max(known, key=lambda name: known[name].value or 0.0)
            chance = mean_in(scores, str(by_chance), attack=attack).value
            yield Identified(
                defense=defense,
                deployed=defense == deployed,
                attack=attack,
                rate=rate_of(threshold, known[attack], chance or 0.0),
            )


def measured_epsilons(resolved: Resolved, measured: Measured) -> Iterator[MeasuredEpsilon]:
    """Yield what canaries show of the epsilon of each defence that promises one."""
    limits: Sequence[RateThreshold] = resolved.rates_of(EpsilonMeasured)
    threshold = min((each.value for each in limits), default=None)
    for cell in measured.cells(CANARIES):
        scores = select(measured.scores(CANARIES), {"defense": str(cell.defense)})
        shown, most, proven = (
            mean_in(scores, str(metric())).value
            for metric in (EpsilonMeasured, EpsilonMeasurable, EpsilonAccounted)
        )
        result = MeasuredEpsilon(
            defense=str(cell.defense),
            deployed=cell.defense == resolved.specs["defense"],
            audit=str(cell.attack),
            delta=cell.attack.delta,
            confidence=cell.attack.confidence,
            measured=shown,
            measurable=most,
            accounted=proven,
            threshold=threshold,
            verdict="not measured",
        )
        yield result.model_copy(update={"verdict": _verdict_of(result)})


def _verdict_of(found: MeasuredEpsilon) -> Verdict:
    """Return whether epsilon is above its threshold, or above what the accountant allows.

    Trials too few to show the threshold cannot tell.
    """
    if found.measured is None:
        return "not measured"
    limit = found.threshold
    if found.refutes or (limit is not None and found.measured >= limit):
        return "exposed"
    if limit is not None and (found.measurable or 0.0) < limit:
        return "inconclusive"
    return "not found"
