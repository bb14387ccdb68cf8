"""Summaries of attacks in the terms of comparison tables (AGIC, Table VII)."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.attacks.matching.codes import Normalised, Pixels
from gleak.attacks.matching.parts import Parts, SearchParts

LABELS = {
    "known": "granted",
    "joint": "optimised",
    "sign": "one each, by sign",
    "rows": "one each, by least entry",
    "argmin": "by counting",
    "counts": "by counting, with probabilities",
    "auto": "by counting",
}
"""Description of each `gleak.attacks.matching.parts.LabelRule`."""


@dataclass(frozen=True, kw_only=True)
class AttackSummary:
    """Losses, optimizers and label rule of an attack; empty where the attack has none.

    Args:
        losses: the main term that each search minimises, in words or as the spec of a distance.
        terms: regularisation terms and constraints.
        optimizers: one for each search, in words or as specs.
        labels: label inference rule.
    """

    losses: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    labels: str = ""

    def then(self, later: AttackSummary) -> AttackSummary:
        """Return the summary of this search followed by another one.

        Args:
            later: summary of the second search, which returns the samples and the labels.
        """
        return AttackSummary(
            losses=self.losses + later.losses,
            terms=self.terms + later.terms,
            optimizers=self.optimizers + later.optimizers,
            labels=later.labels,
        )


def traits_of(parts: Parts) -> AttackSummary:
    """Return the summary of a gradient matching search."""
    used = {
        "codes": not isinstance(parts.code, Pixels | Normalised),
        "layer weights": parts.layers is not None,
        "label term": parts.label_term > 0,
    }
    return AttackSummary(
        losses=(str(parts.distance),),
        terms=(*(text for text, present in used.items() if present), *terms_of(parts)),
        optimizers=(str(parts.optimizer),),
        labels=LABELS[parts.labels],
    )


def terms_of(parts: SearchParts) -> tuple[str, ...]:
    """Return the regularisation terms and constraints of a search."""
    titles = tuple(prior.title for prior in parts.used_priors)
    return (*titles, "values in [0, 1]") if parts.box else titles
