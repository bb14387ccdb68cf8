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
from gleak.assessment.generated_study import (
    CANARIES,
    CAPTURED_MEMBERS,
    DEFENSES,
    DEPLOYED,
    MEMBERS,
)
from gleak.assessment.measured import Measured
from gleak.assessment.resolved import RateThreshold, Resolved
from gleak.assessment.verdict_words import CONTRADICTED, ORDER, Verdict
from gleak.assessment.wording import bare_name
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.lazy import pandas as pd
from gleak.defenses.base import NoDefense
from gleak.figures.statistics import counted, select
from gleak.metrics.discrimination import AUC, MembershipMetricSpec, PValue, TruePositiveRate
from gleak.metrics.measured_epsilon import EpsilonAccounted, EpsilonMeasurable, EpsilonMeasured
from gleak.metrics.reconstruction.identification import Identified as IdentifiedSpec
from gleak.metrics.reconstruction.identification import IdentifiedByChance
from gleak.studies.cell import Cell

AUC_BY_CHANCE = 0.5
SIGNIFICANT = 0.05
"""Probability below which evidence of captured clients is not explained by chance."""
CONTRADICTS = Doubt(text=CONTRADICTED, remedy="correct what gleak import says, and assess again")
FEW = 0.05
"""Share of members found at 1% false positives below which they count as not found, if the
deployment has no threshold."""


@dataclass(frozen=True)
class Inferred:
    """Inferences beside what was recovered, of all defences, and of captured clients."""

    took_part: list[Inference]
    captured: list[Inference]
    identified: list[Identified]
    epsilons: list[MeasuredEpsilon]

    @classmethod
    def of(cls, resolved: Resolved, measured: Measured, contradicted: bool) -> Inferred:
        """Return what was measured; of captures that contradict the description or not."""
        took_part = inferences(resolved, measured, contradicted)
        return cls(
            took_part,
            captured_inferences(resolved, measured, took_part, contradicted),
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
    rows = [_inference(resolved, measured, MEMBERS, cell) for cell in measured.cells(MEMBERS)]
    works = _working(rows)
    judged = [_judged(row, works, contradicted) for row in rows]
    places = [str(resolved.specs["defense"]), *resolved.defenses]
    return sorted(judged, key=lambda row: (places.index(row.defense), *_strength(row)))


def captured_inferences(
    resolved: Resolved,
    measured: Measured,
    simulated: Sequence[Inference],
    contradicted: bool = False,
) -> list[Inference]:
    """Return what each method infers of captured clients: captures in order, the strongest first.

    These clients are given, not drawn from others, so that their shares have no margin of error. It
    is asked whether chance gives as much evidence to as many records as a client has.
    """
    works, places = _working(simulated), resolved.deployment.captures
    tests = measured.cells(CAPTURED_MEMBERS)
    found = [_inference(resolved, measured, CAPTURED_MEMBERS, cell) for cell in tests]
    rows = [_judged_of_capture(corrected(row, len(tests)), works, contradicted) for row in found]
    return sorted(rows, key=lambda row: (places.index(row.capture or ""), *_strength(row)))


def corrected(row: Inference, tests: int) -> Inference:
    """Return an inference with its p-value as one of several tests, by Bonferroni's correction."""
    if row.by_chance is None:
        return row
    return row.model_copy(update={"by_chance": min(1.0, row.by_chance * tests)})


def _working(rows: Sequence[Inference]) -> set[str]:
    """Return the methods that find more than chance of simulated clients without a defence."""
    bare = [row for row in rows if row.defense == NoDefense.name]
    return {bare_name(row.method) for row in bare or rows if _beyond_chance(row)}


def _strength(row: Inference) -> tuple[float, float]:
    return -(row.tpr.value or 0.0), -(row.auc.value or 0.0)


def _inference(resolved: Resolved, measured: Measured, grid: str, cell: Cell) -> Inference:
    levels, captured = ("client", "defense", "attack"), isinstance(cell.client, CapturedUpdates)
    texts = {level: text for level, text in cell.strings().items() if level in levels}
    scores = select(measured.scores(grid), texts)
    member, auc = measured.members(cell), AUC()
    rates = [
        rate_of(threshold, mean_in(scores, str(threshold.metric)), _chance(threshold.metric))
        for threshold in resolved.rates_of(MembershipMetricSpec)
    ]
    return Inference(
        defense=texts["defense"],
        deployed=cell.defense == resolved.specs["defense"],
        capture=cell.captured.capture if captured else None,
        method=texts["attack"],
        clients=len(member),
        members=int(member.sum()),
        others=int((~member).sum()),
        auc=mean_in(scores, str(auc)),
        tpr=mean_in(scores, str(TruePositiveRate())),
        by_chance=_least_by_chance(scores) if captured else None,
        rates=rates,
        verdict="not measured",
    )


def _least_by_chance(scores: pd.DataFrame) -> float | None:
    """Return the least p-value of a client, times their number; None if nothing was measured."""
    values = counted(scores, str(PValue()), "all")["value"]
    return min(1.0, float(values.min()) * len(values)) if len(values) else None


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
    doubts = [CONTRADICTS] if contradicted else []
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
    if measured and verdict != "exposed":
        doubts += _of_method(row, works)
    update = {"verdict": "inconclusive" if doubts else verdict, "doubts": doubts}
    return row.model_copy(update=update)


def _of_method(row: Inference, works: set[str]) -> list[Doubt]:
    """Return the doubt of a method that does not work on simulated clients without a defence."""
    if bare_name(row.method) in works:
        return []
    text = f"{bare_name(row.method)} finds no more than chance without any defence"
    remedy = "other methods of inference (gleak list membership), which cost more"
    return [Doubt(text=text, remedy=remedy)]


def _judged_of_capture(row: Inference, works: set[str], contradicted: bool) -> Inference:
    """Return an inference of captured clients with its verdict; what is told of them stands."""
    if row.by_chance is None:
        return row
    told = row.by_chance < SIGNIFICANT
    rates = [
        rate.model_copy(update={"verdict": _verdict_of_rate(rate, told)}) for rate in row.rates
    ]
    verdict: Verdict = "exposed" if told else "inconclusive"
    if rates:
        verdict = max((rate.verdict for rate in rates), key=ORDER.index)
    doubts = []
    if verdict != "exposed":
        doubts = [*([CONTRADICTS] if contradicted else []), *_of_method(row, works)]
    if verdict == "inconclusive":
        text = f"chance gives as much evidence with a probability of {row.by_chance:.2g}"
        doubts.append(Doubt(text=text, remedy="captures of more clients, or of more rounds"))
    verdict = "inconclusive" if doubts else verdict
    return row.model_copy(update={"rates": rates, "verdict": verdict, "doubts": doubts})


def _verdict_of_rate(rate: Rate, told: bool) -> Verdict:
    """Return the verdict on a rate of given clients, of which it is known if chance explains it."""
    if rate.rate.value is None or rate.threshold is None:
        return "not measured"
    if rate.rate.value < rate.threshold:
        return "not found"
    return "exposed" if told else "inconclusive"


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
