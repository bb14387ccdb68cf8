"""The attacks of an assessment, each with the reason for which it is run or left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gleak.assessment.resolved import Resolved
from gleak.assessment.written_specs import at_key
from gleak.attacks.agic import AGIC
from gleak.attacks.base import AttackSpec
from gleak.attacks.best import Best
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.cpa_noisy import CPANoisy
from gleak.attacks.dlg import CPL
from gleak.attacks.first_layer import Aono
from gleak.attacks.gradinversion import GradInversion
from gleak.attacks.invertgrad import InvertGrad
from gleak.attacks.matrix_completion import MatrixCompletion
from gleak.attacks.rog import ROG
from gleak.attacks.spear import Spear
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import load, parse
from gleak.studies.axis_labels import BLIND
from gleak.studies.own_models import check_own_model

PARTS = tuple(
    attack.name
    for attack in (
        *(AGIC, Aono, CPAEdges, CPANoisy, CPL, GradInversion, InvertGrad),
        *(MatrixCompletion, ROG, Spear),
    )
)
"""Attacks among which `gleak.attacks.best.Best` chooses."""
GUESSES = {
    BLIND: "a control: a guess without the update, with which every attack is compared",
    "random_noise": "a guess without the update; the control blind is a better one",
    "same_class": "a guess without the update, from granted samples of the same class",
}
CRAFTING_SERVER = "crafting_server"
WHY_BEST = "the published attacks that suit the network and the update, the most exact first"
WHY_PART = "best does not fit the network, but this part of it does"


@dataclass(frozen=True)
class Chosen:
    """An attack to run.

    Args:
        attack: its spec.
        reason: why it is run.
    """

    attack: AttackSpec
    reason: str

    @property
    def crafting(self) -> str:
        """Name of the crafting of the parameters that clients receive."""
        return self.attack.crafting or "honest"


@dataclass(frozen=True)
class LeftOut:
    """An attack that is not run, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """All registered attacks: those that are run, and those that are not."""

    chosen: tuple[Chosen, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def honest(self) -> list[Chosen]:
        """Attacks on the parameters of the training."""
        return [each for each in self.chosen if each.crafting == "honest"]

    @property
    def crafted(self) -> list[Chosen]:
        """Attacks on parameters that the server crafts for them."""
        return [each for each in self.chosen if each.crafting != "honest"]


@dataclass(frozen=True)
class Main:
    """The attack by which deployments are compared: `best`, or those of its parts that fit.

    Args:
        best: with its budget.
        misfit: why `best` does not fit the deployment; None: it does.
        parts: its parts that fit; none if `best` does.
    """

    best: Best
    misfit: str | None = None
    parts: tuple[AttackSpec, ...] = ()

    @property
    def attacks(self) -> tuple[AttackSpec, ...]:
        """The attacks that fit; none of them may."""
        return (self.best,) if self.misfit is None else self.parts

    @property
    def asked(self) -> tuple[AttackSpec, ...]:
        """The attacks of a grid: those that fit, or `best`, whose refusal says why none does."""
        return self.attacks or (self.best,)


def choose(resolved: Resolved, iterations: int) -> Choice:
    """Decide on every registered attack.

    Args:
        resolved: the deployment.
        iterations: budget of `best` for each victim.

    Raises:
        SpecError: an attack that the deployment names is unknown or cannot be run, or none can; or
            a grant that the clients cannot have.
    """
    main = _main(resolved, iterations)
    named = [_named(text, resolved) for text in resolved.deployment.attacks]
    granted = [*_with_labels(resolved, iterations), *_with_statistics(resolved, iterations)]
    known = {each.attack.name for each in (*main, *named, *granted)}
    others = [_decide(name, resolved) for name in load("attack") if name not in known]
    chosen = [each for each in others if isinstance(each, Chosen)]
    left_out = [each for each in others if isinstance(each, LeftOut)]
    every = {str(each.attack): each for each in (*main, *named, *granted, *chosen)}
    return Choice(tuple(every.values()), tuple(left_out))


def _main(resolved: Resolved, iterations: int) -> list[Chosen]:
    """Return `best`, or those of its parts that fit a network that it does not fit."""
    main = main_of(resolved, iterations)
    if not main.attacks:
        raise SpecError(f"model: {main.misfit}")
    reason = WHY_BEST if main.misfit is None else WHY_PART
    return [Chosen(each, reason) for each in main.attacks]


def main_of(resolved: Resolved, iterations: int) -> Main:
    """Return the main attack on the clients of a deployment.

    Args:
        resolved: the deployment.
        iterations: budget of `best` for each victim.
    """
    best = Best(budget=iterations)
    if (misfit := _misfit(best, resolved)) is None:
        return Main(best)
    parts = (parse("attack", name) for name in PARTS)
    return Main(best, misfit, tuple(each for each in parts if _misfit(each, resolved) is None))


def _misfit(attack: AttackSpec, resolved: Resolved) -> str | None:
    """Return why an attack does not fit the deployment's clients; None if it does."""
    try:
        _check(attack, resolved)
    except IncompatibleError as error:
        return " ".join(str(error).split())
    return None


def _with_labels(resolved: Resolved, iterations: int) -> list[Chosen]:
    """Return gradient matching with granted labels, if they are granted and it fits."""
    attack = InvertGrad(iterations=iterations, labels="known")
    granted = "labels" in resolved.deployment.attacker.grants
    if not granted or _misfit(attack, resolved) is not None:
        return []
    return [Chosen(attack, "the attacker knows the labels")]


def _with_statistics(resolved: Resolved, iterations: int) -> list[Chosen]:
    """Return gradient matching with granted statistics of batch normalisation, if granted.

    Raises:
        SpecError: they are granted, but the deployment's clients cannot have them.
    """
    attack = GradInversion(iterations=iterations, statistics="granted")
    if not attack.grants <= {*resolved.deployment.attacker.grants}:
        return []
    with at_key("attacker.grants"):
        _check(attack, resolved)
    return [Chosen(attack, "the attacker knows the statistics of the batch")]


def _named(text: str, resolved: Resolved) -> Chosen:
    with at_key("attacks"):
        attack = parse("attack", text)
        _check_attacker(attack, resolved)
        _check(attack, resolved)
    return Chosen(attack, "named in the deployment")


def _check_attacker(attack: AttackSpec, resolved: Resolved) -> None:
    """Raise an `IncompatibleError` if the deployment's attacker cannot run an attack."""
    attacker = resolved.deployment.attacker
    if missing := sorted(attack.grants - {*attacker.grants}):
        raise IncompatibleError(
            f"{attack} needs what this attacker does not know: {', '.join(missing)}; add it to "
            "attacker.grants"
        )
    if attack.crafting and attacker.kind != CRAFTING_SERVER:
        raise IncompatibleError(
            f"{attack} needs a server that crafts its parameters; set attacker.kind to "
            f"{CRAFTING_SERVER}"
        )


def _decide(name: str, resolved: Resolved) -> Chosen | LeftOut:
    """Return the attack with its defaults, or why it is left out."""
    attack = parse("attack", name)
    if name in GUESSES:
        return LeftOut(name, GUESSES[name])
    try:
        _check(attack, resolved)
        _check_attacker(attack, resolved)
    except IncompatibleError as error:
        return LeftOut(name, " ".join(str(error).split()))
    if attack.crafting:
        return Chosen(attack, "the server may craft the parameters that this attack reads")
    if reason := next(_reasons(attack), ""):
        return LeftOut(name, reason)
    return Chosen(attack, f"the attacker knows {', '.join(sorted(attack.grants))}")


def _reasons(attack: Any) -> Iterator[str]:
    """Yield why an attack that could be run is not."""
    if attack.knowledge:
        yield "needs a network trained on public data; name it under attacks to train one"
    if attack.name in PARTS:
        yield "best runs it where it suits the network and the update"
    if not attack.grants:
        yield "not among the attacks that are run by default; name it under attacks to run it too"


def _check(attack: AttackSpec, resolved: Resolved) -> None:
    """Raise an `IncompatibleError` if an attack does not fit the deployment's clients."""
    crafting = parse("crafting", attack.crafting or "honest")
    if attack.crafting and resolved.captured:
        raise IncompatibleError("the captured clients received the parameters that they name")
    cell = resolved.cell(attack, crafting=crafting)
    cell.check()
    check_own_model(cell, resolved.settings.data_dir)
