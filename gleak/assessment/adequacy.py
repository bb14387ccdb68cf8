"""Judges if an assessment is strong enough for what it did not find to say anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gleak.assessment.findings import Doubt, Exposure
from gleak.assessment.verdict_words import CONTRADICTED, ORDER, Verdict
from gleak.attacks.best import Best
from gleak.core.registry import parse
from gleak.studies.cell import LEVELS

ENOUGH = 0.5
"""Part of an attack's default budget below which it says little that it finds nothing."""
BUDGETS = frozenset({"budget", "iterations"})
"""Fields of attacks that limit their search."""
HALF = 0.5
"""Share of clients from which a deployment is exposed."""
FEWEST_CLIENTS = 6
"""Clients of which none above a threshold excludes that half of all are, with 95% confidence."""
CLIENT, DEFENSE = LEVELS.index("client"), LEVELS.index("defense")
CAPTURED = "captured+"


@dataclass(frozen=True)
class Adequacy:
    """Judge of exposures: what finding nothing is compared with.

    Args:
        controls: exposures of simulated clients without a defence.
        contradicted: a capture does not fit to the training as described, so that simulated clients
            are not those that were captured.
    """

    controls: Sequence[Exposure] = ()
    contradicted: bool = False

    def judged(self, exposures: Iterable[Exposure]) -> list[Exposure]:
        """Return exposures with their doubts; the verdict of those that have some."""
        return [self._judged(exposure) for exposure in exposures]

    def _judged(self, exposure: Exposure) -> Exposure:
        doubts = list(self._doubts(exposure))
        if not doubts:
            return exposure
        return exposure.model_copy(update={"verdict": "inconclusive", "doubts": doubts})

    def _doubts(self, exposure: Exposure) -> Iterable[Doubt]:
        """Yield why an exposure says little; what is recovered of a captured client is certain."""
        captured = _levels(exposure)[CLIENT].startswith(CAPTURED)
        if self.contradicted and not (captured and exposure.above):
            yield Doubt(
                text=CONTRADICTED, remedy="correct what gleak import says, and assess again"
            )
        if exposure.above:
            return
        yield from self._of_control(exposure, captured)
        yield from _of_budget(exposure)
        if exposure.share.high is None or exposure.share.high >= HALF:
            least = "capture" if captured else "victims:"
            yield Doubt(
                text=f"half of all clients may be exposed if none of {exposure.clients} is",
                remedy=f"{least} {FEWEST_CLIENTS} or more",
            )

    def _of_control(self, exposure: Exposure, captured: bool) -> Iterable[Doubt]:
        """Yield that the attack does not work without a defence either."""
        control = self._control(exposure, captured)
        gain = control.gain.value if control.gain.low is None else control.gain.low
        if control.above or (gain is not None and gain > 0):
            return
        undefended = "without any defence" if control is not exposure else "here"
        yield Doubt(
            text=f"the attack is no better than a guess {undefended}, so it is not known to work",
            remedy="more iterations, fewer local steps or samples to see from where on it works "
            "(vary), or other attacks (attacks)",
        )

    def _control(self, exposure: Exposure, captured: bool) -> Exposure:
        """Return the same attack on the same clients without a defence, as far as it was run."""
        wanted = _without_defense(exposure)
        for control in self.controls:
            if control.metric == exposure.metric and (
                control.attack == exposure.attack
                if captured
                else _without_defense(control) == wanted
            ):
                return control
        return exposure


def verdict_of(exposures: Iterable[Exposure]) -> Verdict:
    """Return the verdict by several attacks on the same clients in one metric.

    One that is strong enough suffices to say that nothing was found.
    """
    verdicts = {exposure.verdict for exposure in exposures}
    for verdict in ("exposed", "partly exposed", "not found", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "not measured"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several questions together."""
    return max(verdicts, key=ORDER.index, default="not measured")


def budget_share(attack: Any) -> float:
    """Return an attack's budget as a part of that by default; 1 of one that does not search."""
    default = with_default_budget(attack).cost().evaluations
    return attack.cost().evaluations / default if default else 1.0


def with_default_budget(attack: Any) -> Any:
    """Return an attack with the default budget of its search."""
    fields = type(attack).model_fields
    budgets = {name: fields[name].default for name in BUDGETS & fields.keys()}
    return attack.model_copy(update=budgets)


def _of_budget(exposure: Exposure) -> Iterable[Doubt]:
    share = budget_share(parse("attack", exposure.attack))
    if share < ENOUGH:
        yield Doubt(
            text=f"the attack had {share:.0%} of its default budget",
            remedy=f"iterations: {Best().budget}",
        )


def _levels(exposure: Exposure) -> list[str]:
    return exposure.cell.split("/")


def _without_defense(exposure: Exposure) -> list[str]:
    levels = _levels(exposure)
    return [*levels[:DEFENSE], *levels[DEFENSE + 1 :]]
