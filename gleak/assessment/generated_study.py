"""The study of an assessment, and its size: that of a scale, or the largest within a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gleak.assessment.attack_choice import AttackChoice, choose_attacks, main_attacks
from gleak.assessment.deployment import Deployment, Scale
from gleak.assessment.member_choice import audited_defenses, choose_methods, choose_methods_for
from gleak.assessment.pace import Pace
from gleak.assessment.resolved import Resolved, Varying, with_victims
from gleak.attacks.best import Best
from gleak.core.errors import SpecError
from gleak.core.yaml_input import read_model
from gleak.membership.gradient_canaries import GradientCanaries
from gleak.metrics.discrimination import AUC, MembershipMetricSpec, PValue, TruePositiveRate
from gleak.metrics.measured_epsilon import EpsilonAccounted, EpsilonMeasurable, EpsilonMeasured
from gleak.studies.estimate import hours, jobs
from gleak.studies.machine import Machine
from gleak.studies.stage_files import StudyPart, table_of
from gleak.studies.study import Study, build_study
from gleak.studies.study_file import StudyFile

DEPLOYED, CAPTURED, CRAFTED = "deployed", "captured", "crafted"
DEFENSES, ACCURACY, AUDIT = "defenses", "accuracy", "audit"
MEMBERS, CAPTURED_MEMBERS, CANARIES = "members", "captured_members", "canaries"
LABELS, PERTURBATION = "success_labels", "perturbation"
CHOSEN, CHOICE_COST = "chosen", "choice_cost"
"""Metrics of the attacks that an ensemble chose, and what its choices cost."""
GUARANTEES = ("epsilon_rdp", "epsilon_prv", "epsilon_stated", "reconstruction_bound")
"""Metrics of what a defence promises, beside what attacks find."""
REPORTED = (LABELS, PERTURBATION, CHOSEN, CHOICE_COST, "psnr", *GUARANTEES)
"""Metrics of attacks that a report has beside those of the thresholds, and PSNR, which readers of
the scores look for; no others are computed."""
VARIED = "varied_"
"""Start of the name of a grid in which one thing varies."""


@dataclass(frozen=True)
class Effort:
    """Size of an assessment.

    Args:
        victims: simulated clients of each cell.
        iterations: budget of `best` for each of them.
        trained: the federated training is repeated under each defence, for its accuracy.
    """

    victims: int
    iterations: int
    trained: bool = False

    def __str__(self) -> str:
        trained = ", training under each defence" if self.trained else ""
        return f"{self.victims} clients, {self.iterations} iterations each{trained}"


STEPS = (
    *(Effort(2, iterations) for iterations in (5, 30)),
    *(Effort(6, iterations) for iterations in (100, 200, 400, 800, 1600, 2400)),
    *(Effort(10, iterations) for iterations in (2400, 4800)),
    *(Effort(victims, 4800) for victims in (20, 35, 60, 100)),
)
"""Sizes, in the order of their cost: an attack that is too weak hides more than few clients do.

The first two are for clients of many local steps, of which an iteration takes seconds.
"""
PILOTS = STEPS[:2]
"""Sizes at which the speed is measured, the second one if the first leaves the time for it.

They are the smallest that are run, so that such a run repeats no attack.
"""
SCALES: dict[Scale, Effort] = {"quick": Effort(10, 1000), "small": Effort(20, 4800)}


@dataclass(frozen=True)
class GeneratedStudy:
    """The study of a deployment at one size.

    Args:
        content: of the study's file.
        minutes: its time on one core, estimated or by the measured pace.
    """

    effort: Effort
    choice: AttackChoice
    content: dict[str, Any]
    study: Study
    minutes: float


def generate_study(name: str, resolved: Resolved, pace: Pace | None = None) -> GeneratedStudy:
    """Return the study of a deployment of this name, of the size that its budget allows.

    With a measured pace the time is what that leaves of the budget, and the smallest size is
    returned if it exceeds it.

    Raises:
        SpecError: a defence is unknown or invalid, no attack can be run, or the smallest size
            exceeds the minutes of the budget by the estimate; says how long it takes.
    """
    deployment, machine = resolved.deployment, Machine.configured(resolved.settings)
    trains = bool(resolved.compares_defenses and resolved.trainings)
    budget = deployment.budget
    if budget.scale is not None:
        effort = replace(_given(SCALES[budget.scale], deployment), trained=trains)
        return study_of_size(name, resolved, effort, machine, pace)
    assert budget.minutes is not None
    minutes = budget.minutes - (pace.total / 60 if pace else 0.0)
    largest: GeneratedStudy | None = None
    for effort in dict.fromkeys(_given(step, deployment) for step in STEPS):
        generated = study_of_size(name, resolved, effort, machine, pace)
        if generated.minutes > minutes:
            break
        largest = generated
    if largest is None:
        if pace is not None:
            return generated
        raise SpecError(
            f"budget.minutes: {budget.minutes:g} is too little: the smallest assessment of this "
            f"deployment ({effort}) takes about {generated.minutes:.2g} minutes; allow more, vary "
            "less, or compare fewer defences"
        )
    if trains:
        trained = replace(largest.effort, trained=True)
        generated = study_of_size(name, resolved, trained, machine, pace)
        return generated if generated.minutes <= minutes else largest
    return largest


def pilots(name: str, resolved: Resolved) -> list[Study]:
    """Return the studies by which the speed is measured; none if the size is given."""
    deployment, machine = resolved.deployment, Machine.configured(resolved.settings)
    if deployment.budget.scale is not None or (deployment.victims and deployment.iterations):
        return []
    sizes = pilot_sizes(deployment)
    studies = [study_of_size(name, resolved, size, machine).study for size in sizes]
    settings = resolved.settings
    return [study.examined(settings.scale, settings.data_dir) for study in studies]


def pilot_sizes(deployment: Deployment) -> list[Effort]:
    """Return the sizes at which the speed is measured, of no more clients than are assessed."""
    most = deployment.victims or PILOTS[0].victims
    return [replace(size, victims=min(size.victims, most)) for size in PILOTS]


def affords(name: str, resolved: Resolved, pilot: Effort, pace: Pace) -> bool:
    """Return True if measuring at another size leaves at least half of the remaining minutes."""
    minutes, machine = resolved.deployment.budget.minutes, Machine.configured(resolved.settings)
    assert minutes is not None
    generated = study_of_size(name, resolved, pilot, machine, pace)
    return generated.minutes <= (minutes - pace.total / 60) / 2


def _given(effort: Effort, deployment: Deployment) -> Effort:
    """Return a size with the clients and iterations that a deployment names."""
    return replace(
        effort,
        victims=deployment.victims or effort.victims,
        iterations=deployment.iterations or effort.iterations,
    )


def study_of_size(
    name: str, resolved: Resolved, effort: Effort, machine: Machine, pace: Pace | None = None
) -> GeneratedStudy:
    """Return the study of a deployment at a size; errors as of `generate_study`."""
    choice, settings = choose_attacks(resolved, effort.iterations), resolved.settings
    content, where = study_content(name, resolved, choice, effort), f"assessment {name}"
    file = read_model(StudyFile, content, where)
    study = build_study(f"assessment-{name}", file, where, [settings.scale])
    tables = [table_of(StudyPart(study, settings.scale), grid) for grid in study.grids]
    plan = jobs(tables, settings)
    minutes = 60 * hours(plan, machine)
    if pace is not None:
        minutes = pace.minutes(study, settings.scale, plan, machine)
    return GeneratedStudy(effort, choice, content, study, minutes)


def study_content(
    name: str, resolved: Resolved, choice: AttackChoice, effort: Effort
) -> dict[str, Any]:
    """Return the content of the study file, with a table of every grid that has attacks.

    The metrics of the thresholds are measured because the tables show them.
    """
    grids: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    metrics = resolved.metrics

    def add(grid: str, rows: Sequence[str], caption: str, **content: Any) -> None:
        grids[grid] = {**content, "metrics": list(REPORTED)}
        best = {"statistics": dict.fromkeys(metrics, "best")}
        figures[grid] = {**_table(grid, rows, metrics, caption), **best}

    attacks = [str(chosen.attack) for chosen in choice.honest]
    add(DEPLOYED, ["attack"], "The deployment as it is.", attack=attacks)
    if resolved.captured and resolved.scored:
        add(
            CAPTURED,
            ["client", "attack"],
            "The updates that were captured.",
            attack=attacks,
            **_captured(resolved),
        )
    if choice.crafted:
        add(
            CRAFTED,
            ["attack"],
            "A server that crafts the parameters that it broadcasts.",
            crafting=[chosen.crafting for chosen in choice.crafted],
            attack=[str(chosen.attack) for chosen in choice.crafted],
            zip=[["crafting", "attack"]],
        )
    for varying in resolved.varied:
        rows, caption = [varying.level, "attack"], f"Leakage against {varying.field}."
        add(f"{VARIED}{varying.field}", rows, caption, **_varied(varying, resolved, effort))
    if resolved.compares_defenses:
        caption, compared = "What each defence would change.", list(resolved.defenses)
        add(DEFENSES, ["defense", "attack"], caption, defense=compared, attack=attacks[0])
        if effort.trained:
            trainings = list(resolved.trainings.values())
            grids[ACCURACY] = {"end": "training", "training": trainings}
    for grid, rows, metrics, caption, written in _inferences(resolved, effort):
        grids[grid], figures[grid] = written, _table(grid, rows, metrics, caption)
    crafting = ["honest", *(chosen.crafting for chosen in choice.crafted)]
    grids[AUDIT] = {"end": "crafting", "crafting": crafting}
    base = {level: str(with_victims(s, effort.victims)) for level, s in resolved.specs.items()}
    title = f"Assessment of {name}"
    return {"title": title, "paper": "none", "base": base, "grids": grids, "figures": figures}


def _table(grid: str, rows: Sequence[str], metrics: Sequence[str], caption: str) -> dict[str, Any]:
    """Return a figure that shows all metrics of a grid."""
    return {
        "kind": "table",
        "grid": grid,
        "rows": list(rows),
        "columns": ["metric"],
        "metrics": list(metrics),
        "intervals": True,
        "caption": caption,
    }


def _inferences(
    resolved: Resolved, effort: Effort
) -> Iterator[tuple[str, list[str], list[str], str, dict[str, Any]]]:
    """Yield grid, rows, metrics, caption and content of who took part, and of measured epsilon."""
    asked = [str(each.metric) for each in resolved.rates_of(MembershipMetricSpec)]
    metrics = list(dict.fromkeys([str(AUC()), str(TruePositiveRate()), *asked]))
    content: dict[str, Any]
    if methods := choose_methods(resolved, effort.victims).methods:
        content = {"defense": list(resolved.defenses), "attack": [*map(str, methods)]}
        yield MEMBERS, ["defense", "attack"], metrics, "Who took part.", content
    cells = resolved.scored_captures
    if cells and (methods := choose_methods_for(cells, resolved.settings).methods):
        content, rows = (
            {"attack": [*map(str, methods)], **_captured(resolved)},
            ["client", "attack"],
        )
        metrics = [*metrics, str(PValue())]
        yield CAPTURED_MEMBERS, rows, metrics, "Who took part in what was captured.", content
    if audited := [str(defense) for defense in audited_defenses(resolved)]:
        metrics = [str(m()) for m in (EpsilonMeasured, EpsilonMeasurable, EpsilonAccounted)]
        client = str(with_victims(resolved.specs["client"], 1))
        content = {"client": client, "defense": audited, "attack": str(GradientCanaries())}
        yield CANARIES, ["defense"], metrics, "Epsilon, as canaries show it.", content


def _captured(resolved: Resolved) -> dict[str, Any]:
    """Return the levels of the captured clients in a grid."""
    return {
        "training": [str(cell.training) for cell in resolved.captured],
        "client": [str(cell.client) for cell in resolved.captured],
        "zip": [["training", "client"]],
    }


def _varied(varying: Varying, resolved: Resolved, effort: Effort) -> dict[str, Any]:
    """Return the grid in which one spec varies, each with the main attacks that fit it.

    Where none fits, `best` is refused, with the reason.
    """
    specs, attacks = [], []
    for spec in varying.specs:
        fitting, _ = main_attacks(resolved.at(varying.level, spec), effort.iterations)
        for attack in fitting or (Best(budget=effort.iterations),):
            specs.append(str(with_victims(spec, effort.victims)))
            attacks.append(str(attack))
    if len({*attacks}) == 1:
        return {varying.level: specs, "attack": attacks[0]}
    return {varying.level: specs, "attack": attacks, "zip": [[varying.level, "attack"]]}
