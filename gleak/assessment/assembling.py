"""The report of an assessment, put together from its measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gleak.assessment import answer, findings, generated_study, verdict_words
from gleak.assessment.adequacy import Adequacy, worst
from gleak.assessment.attack_choice import AttackChoice, main_attacks
from gleak.assessment.client_text import client_in_words, warnings
from gleak.assessment.exposure import CONTROLS, exposures, mean_in
from gleak.assessment.findings import Exposure, Fact, Report, Variation, Varied
from gleak.assessment.generated_study import (
    CAPTURED,
    CHOICE_COST,
    CHOSEN,
    CRAFTED,
    DEFENSES,
    DEPLOYED,
    GUARANTEES,
    LABELS,
    PERTURBATION,
    Effort,
)
from gleak.assessment.measured import Measured
from gleak.assessment.member_choice import WHY, choose_methods
from gleak.assessment.member_results import Inferred
from gleak.assessment.resolved import ExposureThreshold, Resolved, Varying, with_victims
from gleak.attacks.best import Best
from gleak.core.lazy import pandas as pd
from gleak.core.spec import Spec
from gleak.defenses.base import NoDefense
from gleak.figures.statistics import VICTIM, select
from gleak.metrics.audits.alarms import audits
from gleak.metrics.score_table import OK, UNAVAILABLE
from gleak.models.planted import Planted
from gleak.studies.cell import TRUTH, Cell

TEST_ACCURACY = "test_accuracy"
CHOSEN_OF = f"{CHOSEN}+attack="
"""Start of the metrics of the attacks among whose candidates an ensemble chose."""
CLIENTS: Mapping[str, findings.Clients] = {
    DEPLOYED: "simulated",
    CAPTURED: "captured",
    CRAFTED: "with crafted parameters",
}
HONEST = "honest"
ROUND = re.compile(r"(?P<training>.+)-(?P<number>\d+)")
"""Names that ``gleak import --rounds`` gives to the captures of a training."""
KINDS = {
    "honest_but_curious": "the server; it follows the protocol and reads what it receives",
    "crafting_server": "the server; it follows the protocol, but may change the parameters that it "
    "sends to all clients alike",
}
ALWAYS = (
    "Clients that collude with the server, and servers that choose which clients take part.",
    "Updates of several rounds of one client together.",
    "Parameters that differ between the clients of one round.",
    "Attacks that nobody has published, and published ones that gleak does not have.",
    "Who took part by methods that cost more (gleak list membership), and among other candidates "
    "than those of the same data.",
)


def assemble(
    name: str,
    resolved: Resolved,
    choice: AttackChoice,
    effort: Effort,
    measured: Measured,
    agreement: Sequence[findings.Agreement] = (),
) -> Report:
    """Return the report on the deployment of this name."""
    found = Exposed.of(resolved, measured, contradicted=not all(a.agrees for a in agreement))
    labels, defenses = list(named_labels(measured)), list(_defenses(resolved, measured, found))
    inferred = Inferred.of(resolved, measured, found.adequacy.contradicted)
    answers = [*answer.answer(found.by_clients, labels), *answer.inferred(inferred)]
    verdict = worst(each.verdict for each in answers if each.decides)
    return Report(
        name=name,
        deployment=resolved.deployment.model_dump(mode="json"),
        verdict=verdict,
        meaning=answer.meaning(verdict, answers),
        answer=answers,
        advice=list(answer.advice(resolved, defenses, answers, inferred.took_part)),
        client=client_in_words(resolved),
        warnings=list(warnings(resolved)),
        agreement=list(agreement),
        work=_work(resolved, effort, measured),
        fail_above=found.fail_above,
        terms=[
            *(_metric_term(threshold, measured) for threshold in resolved.thresholds),
            *(_term(chosen.attack) for chosen in choice.chosen),
        ],
        exposures=found.by_clients["simulated"],
        captured=found.by_clients["captured"],
        captured_rounds=list(captured_rounds(resolved.scored_captures, found)),
        unchecked=[_unchecked(cell, measured) for cell in measured.unscored],
        crafted=found.by_clients["with crafted parameters"],
        variations=[_variation(each, resolved, effort, found) for each in resolved.varied],
        defenses=defenses,
        labels=labels,
        members=list(members(measured)),
        took_part=inferred.took_part,
        took_part_captured=inferred.captured,
        identified=inferred.identified,
        epsilons=inferred.epsilons,
        audits=list(_audits(measured)),
        refused=[cell for grid in measured.study.grids for cell in measured.refused(grid)],
        attacks=[*_attacks_run(resolved, choice, effort)],
        left_out=[
            findings.NotRun(attack=name, reason=why)
            for name, why in {
                **choice.left_out,
                **choose_methods(resolved, effort.victims).left_out,
            }.items()
        ],
        threat_model=threat_model(resolved, effort),
        not_tried=[*_untried(resolved, choice, effort), *ALWAYS],
        conditions=_facts(_conditions(resolved, effort)),
        run=_facts(_run(measured)),
    )


@dataclass(frozen=True)
class Exposed:
    """Exposures of the clients of all grids, each judged by what it can be compared with.

    Args:
        measured: the scores.
        thresholds: of the deployment.
        adequacy: judges what was not found.
        by_clients: exposures of the deployment as it is.
        fail_above: the same by the thresholds of the command line.
    """

    measured: Measured
    thresholds: Sequence[ExposureThreshold]
    adequacy: Adequacy
    by_clients: Mapping[findings.Clients, list[Exposure]]
    fail_above: list[Exposure]

    @classmethod
    def of(cls, resolved: Resolved, measured: Measured, contradicted: bool) -> Exposed:
        """Return the exposures of a deployment; of captures that contradict it or not."""
        undefended = [
            exposure
            for grid in (DEPLOYED, DEFENSES)
            for exposure in exposures(
                measured.scores(grid), resolved.thresholds, defense=NoDefense.name
            )
        ]
        adequacy = Adequacy(undefended, contradicted)
        scores = {clients: measured.scores(grid) for grid, clients in CLIENTS.items()}
        return cls(
            measured,
            resolved.thresholds,
            adequacy,
            {
                clients: adequacy.judged(exposures(rows, resolved.thresholds))
                for clients, rows in scores.items()
            },
            [
                exposure
                for rows in scores.values()
                for exposure in adequacy.judged(exposures(rows, resolved.limits))
            ],
        )

    def at(self, grid: str, **levels: str) -> list[Exposure]:
        """Return the exposures in some cells of a grid, the worst first."""
        rows = self.measured.scores(grid)
        return self.adequacy.judged(exposures(rows, self.thresholds, **levels))


def _attacks_run(
    resolved: Resolved, choice: AttackChoice, effort: Effort
) -> Iterator[findings.AttackRun]:
    """Yield the attacks, and the methods that infer who took part."""
    for one in choice.chosen:
        yield findings.AttackRun(attack=str(one.attack), crafting=one.crafting, reason=one.reason)
    for method in choose_methods(resolved, effort.victims).methods:
        yield findings.AttackRun(attack=str(method), crafting=HONEST, reason=WHY)


def _work(resolved: Resolved, effort: Effort, measured: Measured) -> findings.Work:
    return findings.Work(
        clients=effort.victims,
        iterations=effort.iterations,
        default=Best().budget,
        cpu_seconds=measured.cpu_seconds,
        minutes=resolved.deployment.budget.minutes,
    )


def _conditions(resolved: Resolved, effort: Effort) -> dict[str, str]:
    conditions = {
        "size": str(effort),
        "thresholds": ", ".join(map(str, (*resolved.thresholds, *resolved.rates))),
        "seed": str(resolved.settings.seed),
    }
    if resolved.limits:
        conditions["thresholds of --fail-above"] = ", ".join(map(str, resolved.limits))
    return conditions


def _run(measured: Measured) -> dict[str, str]:
    facts = measured.conditions
    return {
        "versions": ", ".join(facts.versions),
        "commit of gleak": ", ".join(str(commit) for commit in facts.commits),
        "devices": ", ".join(facts.devices),
        "computed": f"{facts.begun} to {facts.ended}",
        "CPU time of attacks and audits": f"{measured.cpu_seconds:.3g} s",
    }


def _facts(texts: Mapping[str, str]) -> list[Fact]:
    return [Fact(name=name, text=text) for name, text in texts.items()]


def _term(spec: Spec) -> Fact:
    """Return what a spec is, by the first line of its documentation."""
    first, *_ = (spec.__doc__ or "").splitlines()
    return Fact(name=str(spec), text=first)


def _metric_term(threshold: ExposureThreshold, measured: Measured) -> Fact:
    """Return what a metric is, which values are near the truth, and that of the truth itself."""
    term, text = _term(threshold.metric), str(threshold.metric)
    direction = "larger" if threshold.sign == 1 else "smaller"
    perfect = mean_in(measured.scores(DEPLOYED), text, attack=TRUTH).value
    known = "" if perfect is None else f"; an exact recovery has {perfect:g}"
    return Fact(name=term.name, text=f"{term.text} The {direction}, the closer{known}.")


def _unchecked(cell: Cell, measured: Measured) -> findings.Unchecked:
    """Return by how many clients an attack met its own criterion."""
    converged = measured.reconstruction(cell).converged
    return findings.Unchecked(
        capture=cell.captured.capture,
        attack=str(cell.attack),
        clients=len(converged),
        converged=int(converged.sum()),
    )


def _variation(varying: Varying, resolved: Resolved, effort: Effort, found: Exposed) -> Variation:
    """Return the leakage along what varies."""
    measured = found.measured
    grid, points = f"{generated_study.VARIED}{varying.field}", []
    for spec in varying.specs:
        levels = {varying.level: str(with_victims(spec, effort.victims))}
        _, misfit = main_attacks(resolved.at(varying.level, spec), effort.iterations)
        refused = [cell.reason for cell in measured.refused(grid, **levels)]
        point = Varied(
            value=varying.text(spec),
            number=varying.number(spec),
            deployed=spec == varying.deployed,
            exposures=strongest(found.at(grid, **levels)),
            reasons=[misfit] if misfit else refused,
        )
        points.append(point)
    return Variation(field=varying.field, points=points)


def strongest(ranked: Iterable[Exposure]) -> list[Exposure]:
    """Return the exposure by the strongest attack in each metric, of exposures the worst first."""
    first: dict[str, Exposure] = {}
    for exposure in ranked:
        first.setdefault(exposure.metric, exposure)
    return list(first.values())


def captured_rounds(cells: Iterable[Cell], found: Exposed) -> Iterator[Variation]:
    """Yield the leakage to each attack along the captured rounds of each training."""
    trainings: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        if name := ROUND.fullmatch(cell.captured.capture):
            trainings.setdefault(name["training"], {})[int(name["number"])] = cell
    for training, rounds in trainings.items():
        if len(rounds) < 2:
            continue
        points = [
            Varied(
                value=str(number),
                number=number,
                deployed=False,
                exposures=found.at(CAPTURED, client=str(cell.client)),
                reasons=[],
            )
            for number, cell in sorted(rounds.items())
        ]
        yield Variation(field=f"round of {training}", points=points)


def _defenses(
    resolved: Resolved, measured: Measured, found: Exposed
) -> Iterator[findings.DefenseCost]:
    """Yield the leakage under each defence, with its costs."""
    scores, trained = measured.scores(DEFENSES), measured.scores(generated_study.ACCURACY)
    trained = trained[(trained["metric"] == TEST_ACCURACY) & trained["value"].notna()]
    accuracies = dict(zip(trained["training"], map(float, trained["value"]), strict=True))
    for cell in measured.cells(DEFENSES):
        defense = str(cell.defense)
        attacked = {"defense": defense, "attack": str(cell.attack)}
        rows, guarantees = select(scores, attacked), {}
        for name in () if cell.defense.data_dependent_noise else GUARANTEES:
            values = rows[rows["metric"] == name]["value"].dropna()
            if len(values):
                guarantees[name] = float(values.mean())
        yield findings.DefenseCost(
            defense=defense,
            deployed=cell.defense == resolved.specs["defense"],
            exposures=found.at(DEFENSES, defense=defense),
            labels=list(
                _labels(select(scores, {"defense": defense}), "simulated", measured.label_guess)
            ),
            kilobytes=measured.kilobytes(cell),
            perturbation=mean_in(scores, PERTURBATION, **attacked),
            accuracy=accuracies.get(resolved.trainings.get(defense, "")),
            guarantees=guarantees,
        )


def named_labels(measured: Measured) -> Iterator[findings.Labels]:
    """Yield the share of labels that each attack names of each kind of clients."""
    for grid, clients in CLIENTS.items():
        yield from _labels(measured.scores(grid), clients, measured.label_guess)


def _labels(
    scores: pd.DataFrame, clients: findings.Clients, guess: float
) -> Iterator[findings.Labels]:
    """Yield the share of labels that each attack names, beside that of a guess."""
    for attack in dict.fromkeys(scores[scores["metric"] == LABELS]["attack"]):
        if attack in CONTROLS:
            continue
        share = mean_in(scores, LABELS, attack=attack)
        if share.value is None:
            continue
        verdict: verdict_words.Verdict = "inconclusive"
        if share.low is not None and share.low > guess:
            verdict = "exposed"
        elif share.value <= guess:
            verdict = "not found"
        yield findings.Labels(
            attack=attack, clients=clients, share=share, guess=guess, verdict=verdict
        )


def members(measured: Measured) -> Iterator[findings.Member]:
    """Yield the attacks among whose candidates ensembles chose, of each kind of clients."""
    for grid, clients in CLIENTS.items():
        scores = measured.scores(grid)
        costs = scores[scores["metric"] == CHOICE_COST][[*VICTIM, "value"]]
        rows = scores[scores["metric"].str.startswith(CHOSEN_OF) & scores["value"].notna()]
        for (attack, metric), own in rows.groupby(["attack", "metric"], sort=False):
            chosen = own[own["value"] == 1]
            median = costs.merge(chosen[VICTIM])["value"].median()
            yield findings.Member(
                attack=str(attack),
                member=str(metric).removeprefix(CHOSEN_OF),
                clients=clients,
                proposed=len(own),
                chosen=len(chosen),
                cost=None if math.isnan(median) else float(median),
            )


def _audits(measured: Measured) -> Iterator[findings.Audit]:
    """Yield the alarms on the broadcast parameters, and on crafted ones."""
    scores = measured.scores(generated_study.AUDIT)
    names = [audit.name for audit in audits()]
    for crafting in sorted(set(scores["crafting"]), key=lambda name: (name != HONEST, name)):
        rows = scores[(scores["crafting"] == crafting) & scores["metric"].isin(names)]
        known = rows[rows["status"] == OK]
        raised = sorted(known[known["value"] > 1]["metric"])
        yield findings.Audit(
            crafting=crafting,
            alarms=len(raised),
            raised=raised,
            unavailable=sorted(rows[rows["status"] == UNAVAILABLE]["metric"]),
        )


def threat_model(resolved: Resolved, effort: Effort) -> list[Fact]:
    """Return who the attacker is, what it knows, and whose samples are at stake."""
    attacker, specs = resolved.deployment.attacker, resolved.specs
    texts = {
        "attacker": KINDS[attacker.kind],
        "observes": "each client's update of one round, after the client's defence",
        "knows": "the network, the parameters that it broadcast, batch size, local steps, learning "
        "rate, loss and the defence, without its random numbers",
        "knows besides": ", ".join(attacker.grants) or "nothing",
        "does not know": "samples, labels, the order of samples, the client's random numbers",
        "network": str(specs["model"]),
        "samples": str(specs["dataset"]),
        "broadcast parameters": str(specs["training"]),
        "client": str(with_victims(specs["client"], effort.victims)),
        "defence": str(specs["defense"]),
    }
    for text, defense in resolved.defenses.items():
        if (count := defense.clients_per_update) > 1:
            group = f"{count} clients, who divide the samples of one batch among them"
            texts[f"client under {text}"] = group
    return _facts(texts)


def may_be_planted(resolved: Resolved) -> bool:
    """Return True if a planted layer would suit the deployment's samples, and it has none."""
    model, dataset = resolved.specs["model"], resolved.specs["dataset"]
    return not isinstance(model, Planted) and getattr(dataset, "modality", "") == "image"


def _untried(resolved: Resolved, choice: AttackChoice, effort: Effort) -> Iterator[str]:
    """Yield what this assessment, unlike others, says nothing about."""
    deployment = resolved.deployment
    if deployment.attacker.kind == "honest_but_curious":
        yield "A server that crafts the parameters that it broadcasts (attacker: crafting_server)."
    elif may_be_planted(resolved):
        yield (
            "A server that may also choose the network: a layer planted in front of it (model: "
            "planted+model=NAME) lets imprint, trap_weights and qbi read single samples off sums. "
            "A client finds such a layer by gleak audit --reference NAME."
        )
    if not resolved.varied:
        yield (
            "Other batch sizes, local steps, networks and rounds of training than those of the "
            "deployment (key vary)."
        )
    if not deployment.defenses:
        yield "Other defences than that of the deployment (key defenses)."
    if any("public data" in reason for reason in choice.left_out.values()):
        yield "Attackers who train networks on public data."
    if resolved.captured and not resolved.scored:
        yield (
            "The captured updates: they were imported without their true samples, so nothing that "
            "an attack finds can be checked. Clients were simulated on the captured parameters "
            "instead; gleak import --truth adds the samples."
        )
    if not resolved.captured:
        yield "Updates of real clients: those assessed are simulated (gleak import, key captures)."
    if deployment.defenses and not effort.trained:
        yield (
            "The accuracy that each defence costs: it is measured if the deployment says how its "
            "clients train (training: federated+rounds=..., see gleak describe federated) and the "
            "budget allows."
        )
