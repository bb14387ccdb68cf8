"""The attacks of an assessment, each with the reason for which it is run or left out."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.assessment.resolved import Resolved, at_key
from gleak.attacks.base import AttackSpec
from gleak.attacks.best import Best
from gleak.attacks.gradinversion import GradInversion
from gleak.attacks.invertgrad import InvertGrad
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import load, parse
from gleak.studies.axis_labels import BLIND
from gleak.studies.cell import Cell
from gleak.studies.own_models import check_own_model

GUESSES = {
    BLIND: "a control: a guess without the update, with which every attack is compared",
    "random_noise": "a guess without the update; the control blind is a better one",
    "same_class": "a guess without the update, from granted samples of the same class",
}
CRAFTING_SERVER = "crafting_server"
WHY_BEST = "all attacks without grants that suit the network and the update"
WHY_MEMBER = "best does not fit the network, but this member of it does"


@dataclass(frozen=True)
class Chosen:
    """An attack to run, with the reason."""

    attack: AttackSpec
    reason: str

    @property
    def crafting(self) -> str:
        """Name of the crafting of the parameters that clients receive."""
        return self.attack.crafting or "honest"


@dataclass(frozen=True)
class AttackChoice:
    """All registered attacks: those that are run, and why the others, by name, are left out."""

    chosen: tuple[Chosen, ...]
    left_out: dict[str, str]

    @property
    def honest(self) -> list[Chosen]:
        """Attacks on the parameters of the training."""
        return [chosen for chosen in self.chosen if chosen.crafting == "honest"]

    @property
    def crafted(self) -> list[Chosen]:
        """Attacks on parameters that the server crafts for them."""
        return [chosen for chosen in self.chosen if chosen.crafting != "honest"]


def choose_attacks(resolved: Resolved, iterations: int) -> AttackChoice:
    """Decide on every registered attack; `best` has a budget of iterations for each victim.

    Raises:
        SpecError: an attack that the deployment names is unknown or cannot be run, or none can; or
            a grant that the clients cannot have.
    """
    grants = {*resolved.deployment.attacker.grants}
    attacks, misfit = main_attacks(resolved, iterations)
    if not attacks:
        raise SpecError(f"model: {misfit}")
    chosen = [Chosen(attack, WHY_MEMBER if misfit else WHY_BEST) for attack in attacks]
    for text in resolved.deployment.attacks:
        with at_key("attacks"):
            attack = parse("attack", text)
            _check_attacker(attack, resolved)
            _check(attack, resolved)
        chosen.append(Chosen(attack, "named in the deployment"))
    labelled = InvertGrad(iterations=iterations, labels="known")
    if "labels" in grants and _misfit(labelled, resolved) is None:
        chosen.append(Chosen(labelled, "the attacker knows the labels"))
    normalised = GradInversion(iterations=iterations, statistics="granted")
    if normalised.grants <= grants:
        with at_key("attacker.grants"):
            _check(normalised, resolved)
        chosen.append(Chosen(normalised, "the attacker knows the statistics of the batch"))
    left_out = {}
    for name in sorted(load("attack").keys() - {one.attack.name for one in chosen}):
        attack = parse("attack", name)
        if reason := _why_not(attack, resolved):
            left_out[name] = reason
        elif attack.crafting:
            why = "the server may craft the parameters that this attack reads"
            chosen.append(Chosen(attack, why))
        else:
            chosen.append(Chosen(attack, f"the attacker knows {', '.join(sorted(attack.grants))}"))
    return AttackChoice(tuple({str(one.attack): one for one in chosen}.values()), left_out)


def main_attacks(resolved: Resolved, iterations: int) -> tuple[tuple[AttackSpec, ...], str | None]:
    """Return the attacks by which deployments are compared: `best`, or its members that fit.

    Returns:
        The attacks, none if neither fits; and why `best` does not fit, None if it does.
    """
    best = Best(budget=iterations)
    if (misfit := _misfit(best, resolved)) is None:
        return (best,), None
    members = [member for member in best.members if _is_member(member)]
    return tuple(member for member in members if _misfit(member, resolved) is None), misfit


def _is_member(attack: AttackSpec) -> bool:
    """Return True if `best` runs the attack where it suits."""
    needs = attack.grants or attack.knowledge or attack.crafting
    return not (needs or attack.superseded or attack.name in GUESSES)


def _why_not(attack: AttackSpec, resolved: Resolved) -> str:
    """Return why an attack that nobody named is left out; empty if it is not."""
    if attack.name in GUESSES:
        return GUESSES[attack.name]
    if misfit := _misfit(attack, resolved, attacker_too=True):
        return misfit
    if attack.crafting:
        return ""
    if attack.knowledge:
        return "needs a network trained on public data; name it under attacks to train one"
    if _is_member(attack):
        return "best runs it where it suits the network and the update"
    return attack.superseded


def _misfit(attack: AttackSpec, resolved: Resolved, attacker_too: bool = False) -> str | None:
    """Return why an attack does not fit the clients, or the attacker; None if it does."""
    try:
        _check(attack, resolved)
        if attacker_too:
            _check_attacker(attack, resolved)
    except IncompatibleError as error:
        return " ".join(str(error).split())
    return None


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


def _check(attack: AttackSpec, resolved: Resolved) -> None:
    """Raise an `IncompatibleError` if an attack does not fit the deployment's clients."""
    crafting = parse("crafting", attack.crafting or "honest")
    if attack.crafting and resolved.captured:
        raise IncompatibleError("the captured clients received the parameters that they name")
    cell = Cell({**resolved.specs, "crafting": crafting, "attack": attack})
    cell.check()
    check_own_model(cell, resolved.settings.data_dir)
