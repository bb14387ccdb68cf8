"""The answer of a report: what was found of each kind, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from gleak.assessment.adequacy import verdict_of, worst
from gleak.assessment.findings import (
    Clients,
    DefenseCost,
    Exposure,
    Finding,
    Identified,
    Inference,
    Labels,
    MeasuredEpsilon,
)
from gleak.assessment.member_results import Inferred
from gleak.assessment.resolved import Resolved
from gleak.assessment.verdict_words import (
    EPSILON,
    IDENTIFIED,
    LABELS,
    MEANINGS,
    MEMBERS,
    ORDER,
    RATES,
    SAMPLES,
    Verdict,
)
from gleak.assessment.wording import (
    bare_name,
    change_in_words,
    format_mean,
    guarantee,
    percent_in_words,
    rate_in_words,
    readable,
    three_digits,
)
from gleak.clients.fedavg import FedAvg

WHO: Mapping[Clients, str] = {
    "simulated": "simulated clients",
    "captured": "captured clients",
    "with crafted parameters": "clients whose parameters the server crafted",
}
NO_DEFENSE = "none"


def answer(
    exposures: Mapping[Clients, Sequence[Exposure]], labels: Iterable[Labels]
) -> Iterator[Finding]:
    """Yield what was found of each kind, the samples in each metric of a threshold first."""
    for clients, rows in exposures.items():
        for metric in dict.fromkeys(row.metric for row in rows):
            yield _samples([row for row in rows if row.metric == metric], clients)
    yield from map(_labels, labels)


def inferred(found: Inferred) -> Iterator[Finding]:
    """Yield what was inferred of the deployed clients besides: members, images, epsilon."""
    if row := next((row for row in found.took_part if row.deployed), None):
        yield _members(row)
    if found.captured:
        yield _members(max(found.captured, key=lambda row: ORDER.index(row.verdict)))
    yield from (_identified(each) for each in found.identified if each.deployed)
    yield from (_epsilon(each) for each in found.epsilons if each.deployed)


def _members(row: Inference) -> Finding:
    of = "" if row.capture is None else f" in {row.capture}"
    hedge = {"exposed": "", "not found": ": few enough"}.get(row.verdict, ": chance may explain it")
    if row.tpr.low is None:
        hedge = f": {row.clients} clients are too few for an interval"
    sentence = (
        f"Members: of {row.members} records that took part{of} the server tells "
        f"{rate_in_words(row.tpr)} from {row.others} others, at one false positive in a hundred, "
        f"by {bare_name(row.method)}; by chance 1%{hedge}. The area under the ROC curve is "
        f"{format_mean(row.auc)}, by chance 0.5."
    )
    if row.tpr.value is None:
        sentence = f"Members: who took part{of} was not measured."
    return Finding(
        kind=MEMBERS,
        clients="simulated" if row.capture is None else "captured",
        verdict=row.verdict,
        decides=bool(row.rates),
        sentence=sentence,
        doubts=row.doubts if row.rates else [],
    )


def _identified(found: Identified) -> Finding:
    return Finding(
        kind=IDENTIFIED,
        clients="simulated",
        verdict=found.rate.verdict,
        decides=True,
        sentence=(
            f"Identified: of the images {rate_in_words(found.rate.rate)} are recovered by "
            f"{bare_name(found.attack)} so that they are nearer to the true one than to others of "
            f"its class; by chance {found.rate.chance:.0%}."
        ),
        doubts=found.doubts,
    )


def _epsilon(found: MeasuredEpsilon) -> Finding:
    if found.measured is None:
        text = "it could not be measured"
    else:
        text = (
            f"canaries show at least {three_digits(found.measured)} ({found.confidence:.0%} "
            f"confidence; so many trials show {three_digits(found.measurable)} at most)"
        )
    proven = f", the accountant proves at most {three_digits(found.accounted)}"
    refuted = ". More is measured than proven: noise, clipping or accountant are wrong"
    return Finding(
        kind=EPSILON,
        clients="simulated",
        verdict=found.verdict,
        decides=found.threshold is not None or found.refutes,
        sentence=(
            f"Epsilon at delta {found.delta:g}: {text}"
            f"{'' if found.accounted is None else proven}{refuted if found.refutes else ''}."
        ),
    )


def meaning(verdict: Verdict, findings: Iterable[Finding]) -> str:
    """Return the worst verdict as a sentence: on recovered samples, or on what else decides."""
    of_samples = worst(each.verdict for each in findings if each.kind == SAMPLES)
    return MEANINGS[verdict] if verdict == of_samples else RATES.get(verdict, MEANINGS[verdict])


def _samples(rows: Sequence[Exposure], clients: Clients) -> Finding:
    verdict = verdict_of(rows)
    row = next(row for row in rows if row.verdict == verdict)
    sentence = (
        f"Samples: from {row.above} of {row.clients} {WHO[clients]} "
        f"({percent_in_words(row.share)}) the server recovers one at {row.limit}, beyond a guess "
        f"without the update. On average the best of a client has "
        f"{three_digits(row.attacked.value)}, by a guess {three_digits(row.blind.value)}."
    )
    return Finding(
        kind=SAMPLES,
        clients=clients,
        verdict=verdict,
        decides=True,
        sentence=sentence,
        doubts=row.doubts,
    )


def _labels(labels: Labels) -> Finding:
    guess = "" if labels.guess is None else f"; a guess names {labels.guess:.0%}"
    who, share = WHO[labels.clients], percent_in_words(labels.share)
    return Finding(
        kind=LABELS,
        clients=labels.clients,
        verdict=labels.verdict,
        decides=False,
        sentence=f"Labels: the server names those of {who} ({share}){guess}.",
    )


def advice(
    resolved: Resolved,
    costs: Sequence[DefenseCost],
    findings: Iterable[Finding],
    took_part: Sequence[Inference] = (),
) -> Iterator[str]:
    """Yield what to do: which of the compared defences helped, at what cost, or what to compare."""
    findings = [each for each in findings if each.decides]
    verdict = worst(each.verdict for each in findings)
    others = [cost for cost in costs if cost.defense != NO_DEFENSE]
    if others:
        yield from _compared(costs, others, took_part)
    elif verdict in ("exposed", "partly exposed"):
        yield "Compare defences: add defenses: [...] to the description (gleak list defense)."
    doubts = [each.doubts for each in findings]
    doubts += [row.doubts for cost in others for row in cost.exposures]
    if remedies := dict.fromkeys(doubt.remedy for doubt in chain.from_iterable(doubts)):
        yield f"To be able to tell: {'; '.join(remedies)}."
    client = resolved.specs["client"]
    if verdict in ("inconclusive", "not found") and isinstance(client, FedAvg):
        varied = {each.field for each in resolved.varied}
        missing = [key for key in ("local_steps", "batch_size") if key not in varied]
        if client.local_steps > 1 and missing:
            yield (
                f"Nothing was recovered after {client.local_steps} local steps. To see how leakage "
                "falls on the way there, with local steps, samples, rounds of training and the "
                "optimiser's state, which only the client knows: curves: true."
            )


def defense_verdict(cost: DefenseCost) -> Verdict:
    """Return the verdict under a defence, on all metrics."""
    metrics = dict.fromkeys(row.metric for row in cost.exposures)
    return worst(
        verdict_of(row for row in cost.exposures if row.metric == metric) for metric in metrics
    )


def _compared(
    costs: Sequence[DefenseCost], others: Sequence[DefenseCost], took_part: Sequence[Inference]
) -> Iterator[str]:
    """Yield the defences that did best, with what they cost, and those that did not help."""
    by_verdict: dict[Verdict, list[DefenseCost]] = {}
    for cost in others:
        by_verdict.setdefault(defense_verdict(cost), []).append(cost)
    bare = next((cost for cost in costs if cost.defense == NO_DEFENSE), None)
    helped = by_verdict.get("not found", [])
    for cost in sorted(helped, key=_price):
        found = _still_told(cost, took_part)
        yield f"Under {readable(cost.defense)} {found}: {', '.join(_costs(cost, bare))}."
    if not helped:
        yield "Of none of the compared defences it can be said that nothing is recovered under it."
    for verdict, text in OUTCOMES.items():
        if verdict in by_verdict:
            yield f"{text} {', '.join(readable(cost.defense) for cost in by_verdict[verdict])}."


OUTCOMES: Mapping[Verdict, str] = {
    "exposed": "Samples of at least half of the clients are still recovered under",
    "partly exposed": "Samples of some clients are still recovered under",
    "inconclusive": "It cannot be told under",
}


def _still_told(cost: DefenseCost, took_part: Sequence[Inference]) -> str:
    """Return what is left under a defence under which no sample was recovered."""
    rows = [row for row in took_part if row.defense == cost.defense]
    if row := next((row for row in rows if row.verdict == "exposed"), None):
        return (
            f"no sample was found, but {bare_name(row.method)} tells {rate_in_words(row.tpr)} "
            "of who took part"
        )
    return "nothing was found" if not rows else "no sample was found, nor who took part"


def _price(cost: DefenseCost) -> tuple[float, float]:
    """Return what orders defences: the accuracy that is left, then the change of the update."""
    return -(cost.accuracy or 0.0), cost.perturbation.value or 0.0


def _costs(cost: DefenseCost, bare: DefenseCost | None) -> Iterator[str]:
    """Yield accuracy, size, change and guarantee of a defence, beside those without one."""
    if cost.accuracy is None:
        yield "what it costs in accuracy was not measured"
    elif bare is not None and bare.accuracy is not None:
        yield f"accuracy {cost.accuracy:.3g}, without it {bare.accuracy:.3g}"
    if bare is not None and cost.kilobytes is not None and bare.kilobytes:
        yield f"{cost.kilobytes:.3g} in place of {bare.kilobytes:.3g} kB"
    if change := change_in_words(cost):
        yield f"it {change}"
    yield guarantee(cost)
