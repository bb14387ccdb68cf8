"""The result of an assessment: ``report.json``, and what the page is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from gleak.assessment.verdict_words import (
    ALSO,
    CONTRADICTED,
    HEADLINES,
    ORDER,
    SAMPLES,
    TITLES,
    Verdict,
)

Clients = Literal["simulated", "captured", "with crafted parameters"]


class ReportPart(BaseModel):
    """Base of all parts of a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Mean(ReportPart):
    """A mean over clients."""

    value: float | None = Field(description="null: no value")
    low: float | None = Field(description="lower end of the 95% interval; null: too few clients")
    high: float | None = Field(description="upper end")


class Loss(ReportPart):
    """The sample of a client that is recovered best."""

    client: int = Field(description="number of the client, from 0")
    sample: int = Field(description="number of the sample in its batch, from 0")
    value: float = Field(description="the metric")
    blind: float = Field(description="the metric of the client's best guess without the update")
    found: bool = Field(description="false: nothing was recovered, and the value is that of blind")


class Doubt(ReportPart):
    """A reason why it says little that nothing was found, and what would do."""

    text: str
    remedy: str


class Exposure(ReportPart):
    """Recovery of the clients of one cell by one attack, in one metric.

    A client is above the threshold if its best recovered sample is, and is better recovered than by
    the blind guess without the update.
    """

    cell: str = Field(description="the specs of all levels, as in the folders of its results")
    attack: str
    metric: str
    threshold: float
    better: Literal["higher", "lower"] = Field(description="the better recovery")
    clients: int
    above: int = Field(description="clients above the threshold")
    share: Mean = Field(description="share of clients above, with the interval of Clopper-Pearson")
    samples: Mean = Field(
        description="share of a client's samples that are above the threshold, and recovered "
        "better than by the guess; mean over clients"
    )
    attacked: Mean = Field(description="metric of each client's best recovered sample")
    blind: Mean = Field(description="the same of the guess without the update")
    gain: Mean = Field(description="difference of the two, by client; positive: leakage")
    losses: list[Loss] = Field(description="each client, the one that loses most first")
    verdict: Verdict
    doubts: list[Doubt] = Field([], description="for the verdict inconclusive")

    @property
    def limit(self) -> str:
        """The threshold as a condition."""
        return f"{self.metric} {'≥' if self.better == 'higher' else '≤'} {self.threshold:g}"


class Curves(NamedTuple):
    """Leakage in one metric along what varies.

    Args:
        points: the values that were computed.
        attacks: attack -> its exposure at each of the points; None where it was not run.
    """

    points: Sequence[Varied]
    attacks: Mapping[str, Sequence[Exposure | None]]

    @property
    def shown(self) -> list[tuple[str, list[tuple[str, Exposure]]]]:
        """Each attack with the values at which it was run, for a text."""
        values = [point.value for point in self.points]
        return [
            (attack, [(value, row) for value, row in zip(values, rows, strict=True) if row])
            for attack, rows in self.attacks.items()
        ]

    @property
    def guesses(self) -> list[Exposure]:
        """An exposure at each of the points, for the guess without the update."""
        return [next(filter(None, rows)) for rows in zip(*self.attacks.values(), strict=True)]


class RefusedCell(ReportPart):
    """A cell that cannot be computed, with the reason."""

    cell: str
    reason: str


class Varied(ReportPart):
    """Leakage at one value of what varies."""

    value: str
    number: float | None = Field(description="the value, if it is a number")
    deployed: bool = Field(description="the value of the deployment")
    exposures: list[Exposure] = Field(
        description="by metric, that of the strongest attack that fits, or for a captured round of "
        "every attack; empty: not computed"
    )
    reasons: list[str] = Field(
        description="why other attacks than best were run here, or nothing was computed"
    )


class Variation(ReportPart):
    """Leakage along a field of the client, the model, the training, or its rounds."""

    field: str
    points: list[Varied]

    @property
    def numeric(self) -> bool:
        """True if all values are numbers."""
        return all(point.number is not None for point in self.points)

    @property
    def curves(self) -> dict[str, Curves]:
        """Metric -> the leakage along the values that were computed."""
        curves = {}
        for metric in dict.fromkeys(row.metric for point in self.points for row in point.exposures):
            by_attack = [
                {row.attack: row for row in point.exposures if row.metric == metric}
                for point in self.points
            ]
            points = [point for point, rows in zip(self.points, by_attack, strict=True) if rows]
            attacks = dict.fromkeys(attack for rows in by_attack for attack in rows)
            curves[metric] = Curves(
                points, {name: [rows.get(name) for rows in by_attack if rows] for name in attacks}
            )
        return curves


class Labels(ReportPart):
    """Share of the true labels that an attack names."""

    attack: str
    clients: Clients
    share: Mean
    guess: float | None = Field(
        description="share that the best guess without the update names, by how frequent labels "
        "are in the training data"
    )
    verdict: Verdict = Field(
        description="exposed: the interval of the share is above the guess; not found: the share "
        "is not; else inconclusive"
    )


class DefenseCost(ReportPart):
    """Leakage under a defence, beside what it costs."""

    defense: str
    deployed: bool = Field(description="the defence of the deployment")
    exposures: list[Exposure]
    labels: list[Labels] = Field(description="of the same attack; empty: not measured")
    kilobytes: float | None = Field(description="size of one update as sent, in 1000 bytes")
    perturbation: Mean = Field(description="norm of the change, relative to that of the update")
    accuracy: float | None = Field(description="test accuracy of a model trained under it")
    guarantees: dict[str, float] = Field(description="metric -> value, such as epsilon_prv")


class Member(ReportPart):
    """An attack among whose candidates an ensemble such as `best` chose."""

    attack: str = Field(description="the ensemble")
    member: str = Field(description="name of the attack")
    clients: Clients
    proposed: int = Field(description="clients for which it proposed a candidate")
    chosen: int = Field(description="those for which its candidate was chosen")
    cost: float | None = Field(
        description="PSNR in dB by which the best candidate in hindsight is above the chosen one, "
        "median of those for which it was chosen; null: none, or not measured"
    )


class Rate(ReportPart):
    """A rate beside its threshold."""

    metric: str
    rate: Mean
    chance: float = Field(description="what a guess without the update has")
    threshold: float | None = Field(description="of the deployment; null: none is given")
    verdict: Verdict = Field(
        description="exposed: the interval is above chance, and not below the threshold; not "
        "found: it is below the threshold; else inconclusive"
    )


class Inference(ReportPart):
    """Inference of who took part, from the updates of the clients under one defence."""

    defense: str
    deployed: bool = Field(description="the defence of the deployment")
    capture: str | None = Field(
        default=None, description="of the clients, whose updates contain a defence; null: simulated"
    )
    method: str
    clients: int
    members: int = Field(description="samples of all clients")
    others: int = Field(description="candidates that are in no client's update, of all clients")
    auc: Mean = Field(description="area under the ROC curve of a client; 0.5 by chance")
    tpr: Mean = Field(
        description="members with more evidence than 99% of the others (of fewer than 100 others: "
        "than all of them); 0.01 by chance"
    )
    by_chance: float | None = Field(
        default=None,
        description="of captured clients the probability of an AUC as large by chance, the least "
        "of them times their number and that of captures and methods; null: simulated",
    )
    rates: list[Rate] = Field(description="by the thresholds of the deployment, if it has some")
    verdict: Verdict = Field(
        description="by the thresholds; without any, exposed: more is found than by chance (of "
        "captured clients: by_chance is below 0.05); not found: less than 5% of the members are; "
        "else inconclusive"
    )
    doubts: list[Doubt] = []


class Identified(ReportPart):
    """Identification of the clients' samples among others of their class, by the recovered ones."""

    defense: str
    deployed: bool
    attack: str
    rate: Rate
    doubts: list[Doubt] = []


class MeasuredEpsilon(ReportPart):
    """Epsilon of a defence, as canaries show it, beside the accountant's."""

    defense: str
    deployed: bool
    audit: str
    delta: float
    confidence: float = Field(description="with which the measured epsilon is a lower bound")
    measured: float | None = Field(description="lower bound on epsilon; null: not measured")
    measurable: float | None = Field(description="the largest that so many trials can show")
    accounted: float | None = Field(description="upper bound of the accountant; null: none")
    threshold: float | None
    verdict: Verdict = Field(
        description="exposed: measured is at or above the threshold, or refutes the accountant"
    )

    @property
    def refutes(self) -> bool:
        """True if more was measured than the accountant allows."""
        if self.measured is None or self.accounted is None:
            return False
        return self.measured > self.accounted


class Unchecked(ReportPart):
    """Recovery of captured updates whose true samples are unknown."""

    capture: str
    attack: str
    clients: int
    converged: int = Field(
        description="clients whose update the attack explains by its own criterion, which needs no "
        "true sample"
    )


class Agreement(ReportPart):
    """A capture beside the training that it is described with."""

    capture: str
    error: float | None = Field(
        description="largest norm of the difference between a captured update and that computed "
        "from the true samples, relative to the latter; null: they are not known"
    )
    agrees: bool = Field(description="nothing speaks against the training as described")
    text: str


class Finding(ReportPart):
    """Sentence on what was found of one kind in one sort of clients."""

    kind: str = Field(description="what the attacker wanted: samples, labels, ...")
    clients: Clients
    verdict: Verdict
    decides: bool = Field(description="a threshold is on it, so that it is part of the verdict")
    sentence: str
    doubts: list[Doubt] = []


class Work(ReportPart):
    """Effort that was spent on the attacks."""

    clients: int = Field(description="simulated clients of each cell")
    iterations: int = Field(description="of the attack best, for each client")
    default: int = Field(description="iterations of best unless others are given")
    cpu_seconds: float = Field(description="of all attacks, audits and trainings")
    minutes: float | None = Field(description="of one core that were allowed; null: a scale was")


class Audit(ReportPart):
    """Alarms that a client would raise on broadcast parameters."""

    crafting: str
    alarms: int
    raised: list[str] = Field(description="names of the tests that raise an alarm")
    unavailable: list[str] = Field(description="names of the tests that do not apply")


class AttackRun(ReportPart):
    """An attack that was run, with the reason."""

    attack: str
    crafting: str
    reason: str


class NotRun(ReportPart):
    """A registered attack that was not run, with the reason."""

    attack: str
    reason: str


class Fact(ReportPart):
    """A line of a list of facts."""

    name: str
    text: str


class Report(ReportPart):
    """The report of an assessment."""

    format: Literal[2] = 2
    name: str = Field(description="name of the deployment")
    deployment: dict[str, Any] = Field(description="the deployment file with its defaults")
    verdict: Verdict
    meaning: str = Field(description="the verdict as a sentence")
    answer: list[Finding] = Field(description="what was found, a sentence for each kind")
    advice: list[str] = Field(description="what to do about it, of what was compared")
    client: str = Field(description="what a client does, in plain words")
    warnings: list[str] = Field(description="what in the description may not be meant so")
    agreement: list[Agreement] = Field(description="captures beside the described training")
    work: Work
    fail_above: list[Exposure] = Field(
        description="by the thresholds of --fail-above, which do not change the verdict"
    )
    terms: list[Fact] = Field(description="the metrics of the thresholds, and the attacks")
    exposures: list[Exposure] = Field(description="the deployment as it is, the worst first")
    captured: list[Exposure] = Field(description="the captured updates")
    captured_rounds: list[Variation] = Field(
        description="captures NAME-<number> of several rounds, as gleak import --rounds names them"
    )
    unchecked: list[Unchecked] = Field(description="captured updates without true samples")
    crafted: list[Exposure] = Field(description="parameters that the server crafts")
    variations: list[Variation] = Field(description="what the deployment varies")
    defenses: list[DefenseCost]
    labels: list[Labels]
    members: list[Member] = Field(default=[], description="what ensembles chose among")
    took_part: list[Inference] = Field(
        default=[], description="who took part, by defence and method, the deployed defence first"
    )
    took_part_captured: list[Inference] = Field(
        default=[], description="the same of captured clients with true samples, by capture"
    )
    identified: list[Identified] = Field(
        default=[], description="if there is a threshold on it, by defence"
    )
    epsilons: list[MeasuredEpsilon] = Field(
        default=[], description="of the defences that promise an epsilon"
    )
    audits: list[Audit]
    refused: list[RefusedCell] = Field(description="cells that specs or networks do not allow")
    attacks: list[AttackRun]
    left_out: list[NotRun]
    threat_model: list[Fact]
    not_tried: list[str]
    conditions: list[Fact] = Field(description="what has to be known to repeat the assessment")
    run: list[Fact] = Field(description="versions, machine and time, which differ between runs")

    @property
    def captured_table(self) -> list[Varied]:
        """Rows of a table: the client's spec, which names its capture, and the exposure.

        Captures are in the order of the deployment file, so that rounds are in theirs.
        """
        trainings = [f"captured+capture={name}" for name in self.deployment["captures"]]
        rows = [(exposure.cell.split("/"), exposure) for exposure in self.captured]
        rows.sort(key=lambda row: trainings.index(row[0][2]))
        return [
            Varied(value=levels[-3], number=None, deployed=False, exposures=[row], reasons=[])
            for levels, row in rows
        ]

    @property
    def subject(self) -> str:
        """Network and data, by which readers know the deployment."""
        data = self.deployment["data"]
        written = data["folder"] if isinstance(data, dict) else data
        network, *_ = self.deployment["model"].split("+")
        return f"{network} on {Path(written).name or written}"

    @property
    def headline(self) -> str:
        """The verdict as a heading; it never says that nothing can be found."""
        contradicted = self.verdict == "inconclusive" and self.contradicted
        return "No verdict" if contradicted else HEADLINES[self.verdict]

    @property
    def title(self) -> str:
        """The verdict as the heading of a page, in words."""
        none: Verdict = "not measured"
        samples = max(
            (each.verdict for each in self.answer if each.kind == SAMPLES),
            key=ORDER.index,
            default=none,
        )
        text = TITLES[samples]
        if self.verdict == "inconclusive" and self.contradicted:
            text = f"No verdict: {CONTRADICTED}"
        found = {each.kind for each in self.answer if each.verdict == "exposed"}
        also = [words for kind, words in ALSO.items() if kind in found]
        if not also:
            return text
        joint = ", and it can " if samples in ("exposed", "partly exposed") else "; it can "
        return text + joint + " and ".join(also)

    @property
    def strongest(self) -> str:
        """The attack that recovered most."""
        rows = [*self.exposures, *self.captured, *self.crafted]
        worst = max(rows, key=lambda row: row.above / row.clients, default=None)
        return "none" if worst is None else worst.attack

    @property
    def lines(self) -> list[str]:
        """The answer below its heading: findings, doubts with what would do, own limits."""
        doubts = dict.fromkeys(
            f"Cannot tell, as {doubt.text}. What would do: {doubt.remedy}."
            for each in self.answer
            for doubt in each.doubts
        )
        above = [
            f"By --fail-above {row.limit}: {row.above} of {row.clients} clients are above it."
            for row in self.fail_above
        ]
        return [*(each.sentence for each in self.answer), *doubts, *above]

    @property
    def contradicted(self) -> bool:
        """True if a captured update does not fit to the training as described."""
        return not all(each.agrees for each in self.agreement)

    @property
    def exposed(self) -> bool:
        """True if a client is above a threshold: of --fail-above, if there are any."""
        if self.fail_above:
            return any(exposure.above for exposure in self.fail_above)
        return self.verdict in ("exposed", "partly exposed")
