"""The inference of who took part, and the audits of epsilon, of which an assessment affords all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gleak.artifacts.membership import FEWEST
from gleak.assessment.resolved import Resolved
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load
from gleak.defenses.base import DefenseSpec
from gleak.membership.base import MembershipSpec
from gleak.membership.gradient_canaries import GradientCanaries
from gleak.membership.gradient_cosine import GradientCosine
from gleak.membership.regression import CHEAP_VALUES, Regression
from gleak.studies.cell import Cell
from gleak.studies.own_models import check_own_model

CANDIDATES = 1000
"""Candidates of all clients of a cell together, unless they have more samples."""
WHY = "cheap: who took part, beside what is recovered"
COSTLY = "who took part by costlier evidence; put it into a path or a study (gleak list membership)"


@dataclass(frozen=True)
class MemberChoice:
    """Methods that infer who took part, with a reason for each that is left out."""

    methods: tuple[MembershipSpec, ...]
    left_out: dict[str, str]


def choose_methods(resolved: Resolved, victims: int) -> MemberChoice:
    """Decide on every registered method, for a number of clients."""
    number = max(CANDIDATES // victims, 2 * resolved.specs["client"].batch_size, FEWEST)
    chosen, left_out = [], {}
    for method in (GradientCosine(candidates=number), Regression(candidates=number)):
        if reason := _why_not(method, resolved):
            left_out[method.name] = reason
        else:
            chosen.append(method)
    others = sorted(load("membership").keys() - {GradientCosine.name, Regression.name})
    return MemberChoice(tuple(chosen), {**left_out, **dict.fromkeys(others, COSTLY)})


def _why_not(method: MembershipSpec, resolved: Resolved) -> str:
    """Return why a method does not suit the clients under any defence; empty if it does."""
    client, reasons = resolved.specs["client"], []
    if isinstance(method, Regression):
        if client.gradients_per_sample != 1:
            return "needs the gradient of one step; after several gradient_cosine is as cheap"
        if (values := _values(method, resolved)) > CHEAP_VALUES:
            return f"{values:.2g} values of gradients for each client are not cheap"
    for defense in resolved.defenses.values():
        cell = Cell({**resolved.specs, "defense": defense, "attack": method})
        try:
            cell.check()
            check_own_model(cell, resolved.settings.data_dir)
        except IncompatibleError as error:
            reasons.append(" ".join(str(error).split()))
        else:
            return ""
    return reasons[0]


def _values(method: MembershipSpec, resolved: Resolved) -> int:
    """Return the number of values of the gradients of a client's candidates."""
    dataset, model = resolved.specs["dataset"], resolved.specs["model"]
    classes = dataset.classes_in(resolved.settings.data_dir)
    return 0 if classes is None else method.candidates * model.parameters(dataset.shape, classes)


def audited_defenses(resolved: Resolved) -> Iterator[DefenseSpec]:
    """Yield the defences that promise an epsilon, and that canaries can audit."""
    for defense in resolved.defenses.values():
        if defense.mechanism is None and defense.local_gradient() is None:
            continue
        cell = Cell({**resolved.specs, "defense": defense, "attack": GradientCanaries()})
        try:
            cell.check()
        except IncompatibleError:
            continue
        yield defense
