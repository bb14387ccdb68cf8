"""The report of an assessment, put together from its measurements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gleak.assessment.attack_choice import Choice
from gleak.assessment.deployment import Deployment
from gleak.assessment.exposure import CONTROLS, exposures, mean_in
from gleak.assessment.findings import (
    MEANINGS,
    AttackRun,
    Audit,
    Clients,
    DefenseCost,
    Exposure,
    Fact,
    Labels,
    NotRun,
    Report,
    Unchecked,
    Variation,
    Varied,
    Verdict,
)
from gleak.assessment.generated_study import (
    ACCURACY,
    AUDIT,
    CAPTURED,
    CRAFTED,
    DEFENSES,
    DEPLOYED,
    VARIED,
    Effort,
    main_at,
    trainings_of,
)
from gleak.assessment.measured import Measured
from gleak.assessment.resolved import Resolved, Threshold
from gleak.assessment.threat_model import describe_threat, list_untried
from gleak.assessment.varying import Axis, Value
from gleak.core.spec import Spec
from gleak.figures.statistics import select
from gleak.metrics.audits.alarms import audits
from gleak.metrics.score_table import OK, UNAVAILABLE
from gleak.studies.cell import TRUTH, Cell

LABELS, PERTURBATION, TEST_ACCURACY = "success_labels", "perturbation", "test_accuracy"
GUARANTEES = ("epsilon_rdp", "epsilon_prv", "reconstruction_bound")
"""Metrics of what a defence promises, beside what attacks find; those that are registered."""
CLIENTS: Mapping[str, Clients] = {
    DEPLOYED: "simulated",
    CAPTURED: "captured",
    CRAFTED: "with crafted parameters",
}
"""Clients that each grid of attacks on the deployment has."""
HONEST = "honest"
ROUND = re.compile(r"(?P<training>.+)-(?P<number>\d+)")
"""Names that ``gleak import --rounds`` gives to the captures of a training."""
ORDER: tuple[Verdict, ...] = ("not measured", "not found", "partly exposed", "exposed")


def assemble(
    name: str, resolved: Resolved, choice: Choice, effort: Effort, measured: Measured
) -> Report:
    """Return the report.

    Args:
        name: of the deployment.
        resolved: its specs.
        choice: the attacks.
        effort: size of the cells.
        measured: results of the run.
    """
    own = exposures(measured.scores(DEPLOYED), resolved.thresholds, {})
    captured = exposures(measured.scores(CAPTURED), resolved.thresholds, {})
    cells = resolved.captured if resolved.scored else ()
    rounds = captured_rounds(cells, measured.scores(CAPTURED), resolved.thresholds)
    crafted = exposures(measured.scores(CRAFTED), resolved.thresholds, {})
    verdict = worst_of([*own, *captured, *crafted])
    return Report(
        name=name,
        deployment=_written(resolved.deployment),
        verdict=verdict,
        meaning=MEANINGS[verdict],
        terms=[
            *(_metric_term(threshold, measured) for threshold in resolved.thresholds),
            *(_term(each.attack) for each in choice.chosen),
        ],
        exposures=own,
        captured=captured,
        captured_rounds=list(rounds),
        unchecked=[_unchecked(cell, measured) for cell in measured.unscored],
        crafted=crafted,
        variations=[_variation(axis, resolved, effort, measured) for axis in resolved.axes],
        defenses=list(_defenses(resolved, measured)),
        labels=list(named_labels(measured)),
        audits=list(_audits(measured)),
        refused=[each for grid in measured.study.grids for each in measured.refused(grid)],
        attacks=[
            AttackRun(attack=str(each.attack), crafting=each.crafting, reason=each.reason)
            for each in choice.chosen
        ],
        left_out=[NotRun(attack=each.name, reason=each.reason) for each in choice.left_out],
        threat_model=describe_threat(resolved, effort),
        not_tried=list_untried(resolved, choice, effort),
        conditions=_conditions(resolved, effort),
        run=_run(measured),
    )


def _term(spec: Spec) -> Fact:
    """Return what a spec is, by the first line of its documentation."""
    first, *_ = (spec.__doc__ or "").splitlines()
    return Fact(name=str(spec), text=first)


def _metric_term(threshold: Threshold, measured: Measured) -> Fact:
    """Return what a metric is, which values are near the truth, and that of the truth itself."""
    term, text = _term(threshold.metric), str(threshold.metric)
    direction = "larger" if threshold.sign == 1 else "smaller"
    perfect = mean_in(measured.scores(DEPLOYED), text, {"attack": TRUTH}).value
    known = "" if perfect is None else f"; an exact recovery has {perfect:g}"
    return Fact(name=term.name, text=f"{term.text} The {direction}, the closer{known}.")


def _written(deployment: Deployment) -> dict[str, Any]:
    content: dict[str, Any] = deployment.model_dump(mode="json")
    return content


def worst_of(found: list[Exposure]) -> Verdict:
    """Return the worst verdict; an attack that finds something outweighs those that do not."""
    return max((each.verdict for each in found), key=ORDER.index, default="not measured")


def worst_cell(measured: Measured, grid: str, found: list[Exposure]) -> Cell | None:
    """Return the cell of the strongest attack of a grid; None if nothing was measured."""
    cells = measured.cells(grid) if found else []
    return next((cell for cell in cells if str(cell) == found[0].cell), None)


def _unchecked(cell: Cell, measured: Measured) -> Unchecked:
    """Return by how many clients an attack met its own criterion."""
    converged = measured.reconstruction(cell).converged
    return Unchecked(
        capture=cell.captured.capture,
        attack=str(cell.attack),
        clients=len(converged),
        converged=int(converged.sum()),
    )


def _variation(axis: Axis, resolved: Resolved, effort: Effort, measured: Measured) -> Variation:
    """Return the leakage along what varies."""
    points = [_varied(axis, value, resolved, effort, measured) for value in axis.values]
    return Variation(field=axis.field, points=points)


def _varied(
    axis: Axis, value: Value, resolved: Resolved, effort: Effort, measured: Measured
) -> Varied:
    """Return the leakage at one value of what varies."""
    grid, levels = f"{VARIED}{axis.field}", {axis.level: str(value.sized(effort.victims))}
    misfit = main_at(axis, value, resolved, effort).misfit
    return Varied(
        value=value.text,
        number=value.number,
        deployed=value == axis.deployed,
        exposures=strongest(exposures(measured.scores(grid), resolved.thresholds, levels)),
        reasons=[misfit] if misfit else [each.reason for each in measured.refused(grid, levels)],
    )


def strongest(found: Iterable[Exposure]) -> list[Exposure]:
    """Return the exposure by the strongest attack in each metric.

    Args:
        found: the worst first.
    """
    first: dict[str, Exposure] = {}
    for each in found:
        first.setdefault(each.metric, each)
    return list(first.values())


def captured_rounds(
    captured: Iterable[Cell], scores: Any, thresholds: Sequence[Threshold]
) -> Iterator[Variation]:
    """Yield the leakage to each attack along the captured rounds of each training.

    Args:
        captured: cells of the captures, up to the defence.
        scores: table of the attacks on them.
        thresholds: of the deployment.
    """
    for training, rounds in rounds_of(captured).items():
        points = [
            Varied(
                value=str(number),
                number=number,
                deployed=False,
                exposures=exposures(scores, thresholds, {"client": str(cell.client)}),
                reasons=[],
            )
            for number, cell in sorted(rounds.items())
        ]
        yield Variation(field=f"round of {training}", points=points)


def rounds_of(captured: Iterable[Cell]) -> dict[str, dict[int, Cell]]:
    """Return the captures of each training of several rounds, by their numbers."""
    found: dict[str, dict[int, Cell]] = {}
    for cell in captured:
        if name := ROUND.fullmatch(cell.captured.capture):
            found.setdefault(name["training"], {})[int(name["number"])] = cell
    return {training: rounds for training, rounds in found.items() if len(rounds) > 1}


def _defenses(resolved: Resolved, measured: Measured) -> Iterator[DefenseCost]:
    """Yield the leakage under each defence, with its costs."""
    scores, accuracies = measured.scores(DEFENSES), _accuracies(resolved, measured)
    for cell in measured.cells(DEFENSES):
        defended = {"defense": str(cell.defense)}
        yield DefenseCost(
            defense=str(cell.defense),
            deployed=cell.defense == resolved.specs["defense"],
            exposures=exposures(scores, resolved.thresholds, defended),
            kilobytes=measured.kilobytes(cell),
            perturbation=mean_in(scores, PERTURBATION, {**defended, "attack": str(cell.attack)}),
            accuracy=accuracies.get(str(cell.defense)),
            guarantees=dict(_guarantees(scores, {**defended, "attack": str(cell.attack)})),
        )


def _accuracies(resolved: Resolved, measured: Measured) -> dict[str, float]:
    """Return the test accuracy of a model trained under each defence, if any were trained."""
    scores = measured.scores(ACCURACY)
    rows = scores[(scores["metric"] == TEST_ACCURACY) & scores["value"].notna()]
    values = dict(zip(rows["training"], rows["value"], strict=True))
    trained = trainings_of(resolved)
    return {text: float(values[spec]) for text, spec in trained.items() if spec in values}


def _guarantees(scores: Any, levels: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield the mean of each metric of a guarantee that was measured."""
    rows = select(scores, levels)
    for name in GUARANTEES:
        values = rows[rows["metric"] == name]["value"].dropna()
        if len(values):
            yield name, float(values.mean())


def named_labels(measured: Measured) -> Iterator[Labels]:
    """Yield the share of labels that each attack names of each kind of clients."""
    for grid, clients in CLIENTS.items():
        scores = measured.scores(grid)
        for attack in dict.fromkeys(scores[scores["metric"] == LABELS]["attack"]):
            if attack not in CONTROLS:
                share = mean_in(scores, LABELS, {"attack": attack})
                yield Labels(attack=attack, clients=clients, share=share)


def _audits(measured: Measured) -> Iterator[Audit]:
    """Yield the alarms on the broadcast parameters, and on crafted ones."""
    scores = measured.scores(AUDIT)
    limits = {audit.name: audit for audit in audits()}
    for crafting in sorted(set(scores["crafting"]), key=lambda name: (name != HONEST, name)):
        rows = scores[(scores["crafting"] == crafting) & scores["metric"].isin(limits)]
        known = rows[rows["status"] == OK]
        raised = sorted(known[known["value"] > 1]["metric"])
        yield Audit(
            crafting=crafting,
            alarms=len(raised),
            raised=raised,
            unavailable=sorted(rows[rows["status"] == UNAVAILABLE]["metric"]),
        )


def _conditions(resolved: Resolved, effort: Effort) -> list[Fact]:
    """Return what has to be known to repeat the assessment."""
    return _facts(
        {
            "size": str(effort),
            "thresholds": ", ".join(map(str, resolved.thresholds)),
            "seed": str(resolved.settings.seed),
        }
    )


def _run(measured: Measured) -> list[Fact]:
    """Return what differs between runs."""
    facts = measured.conditions
    return _facts(
        {
            "versions": ", ".join(facts.versions),
            "commit of gleak": ", ".join(str(commit) for commit in facts.commits),
            "devices": ", ".join(facts.devices),
            "computed": f"{facts.begun} to {facts.ended}",
            "CPU time of attacks and audits": f"{measured.cpu_seconds:.3g} s",
        }
    )


def _facts(texts: Mapping[str, str]) -> list[Fact]:
    return [Fact(name=name, text=text) for name, text in texts.items()]
