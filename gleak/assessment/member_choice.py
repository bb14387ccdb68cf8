"""The inference of who took part, and the audits of epsilon, of which an assessment affords all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gleak.artifacts.membership import FEWEST
from gleak.assessment.resolved import Resolved, with_victims
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load
from gleak.core.settings import Settings
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
    """Decide on every registered method, for a number of simulated clients under any defence."""
    specs = {**resolved.specs, "client": with_victims(resolved.specs["client"], victims)}
    cells = [Cell({**specs, "defense": defense}) for defense in resolved.defenses.values()]
    return choose_methods_for(cells, resolved.settings)


def choose_methods_for(cells: Sequence[Cell], settings: Settings) -> MemberChoice:
    """Decide on every registered method, for the clients of cells up to the defence."""
    clients = [cell.client for cell in cells]
    number = max(max(CANDIDATES // one.victims, 2 * one.batch_size, FEWEST) for one in clients)
    chosen, left_out = [], {}
    for method in (GradientCosine(candidates=number), Regression(candidates=number)):
        if reason := _why_not(method, cells, settings):
            left_out[method.name] = reason
        else:
            chosen.append(method)
    others = sorted(load("membership").keys() - {GradientCosine.name, Regression.name})
    return MemberChoice(tuple(chosen), {**left_out, **dict.fromkeys(others, COSTLY)})


def _why_not(method: MembershipSpec, cells: Sequence[Cell], settings: Settings) -> str:
    """Return why a method does not suit the clients of any cell; empty if it does."""
    reasons = []
    for cell in cells:
        attacked = Cell({**cell.specs, "attack": method})
        try:
            _check_candidates(attacked, settings)
            attacked.check()
            check_own_model(attacked, settings.data_dir)
        except IncompatibleError as error:
            reasons.append(" ".join(str(error).split()))
        else:
            return ""
    return reasons[0]


def _check_candidates(cell: Cell, settings: Settings) -> None:
    """Raise an `IncompatibleError` if there are too few candidates, or many that cost much."""
    client = cell.client
    samples = cell.dataset.size_in(settings.data_dir, client.split)
    own = client.batch_size if isinstance(client, CapturedUpdates) else 0
    if samples is not None and samples + own < FEWEST:
        raise IncompatibleError(
            f"{samples} samples in the {client.split} split are too few for {FEWEST} candidates"
        )
    if not isinstance(cell.attack, Regression):
        return
    if client.gradients_per_sample != 1:
        raise IncompatibleError(
            "needs the gradient of one step; after several gradient_cosine is as cheap"
        )
    classes = cell.dataset.classes_in(settings.data_dir)
    if classes is None:
        return
    values = cell.attack.candidates * cell.model.parameters(cell.dataset.shape, classes)
    if values > CHEAP_VALUES:
        raise IncompatibleError(f"{values:.2g} values of gradients for each client are not cheap")


def audited_defenses(resolved: Resolved) -> Iterator[DefenseSpec]:
    """Yield the defences that promise an epsilon, and that canaries can audit."""
    for defense in resolved.defenses.values():
        if not defense.guarantees_epsilon:
            continue
        cell = Cell({**resolved.specs, "defense": defense, "attack": GradientCanaries()})
        try:
            cell.check()
        except IncompatibleError:
            continue
        yield defense
