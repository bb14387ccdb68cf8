"""What attacks use, in the words in which papers compare them (AGIC, Table VII)."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.matching.codes.sample_codes import Pixels
from gleak.matching.parts import Parts, SearchParts

LABELS = {
    "known": "granted",
    "joint": "optimised",
    "sign": "one each, by sign",
    "rows": "one each, by least entry",
    "argmin": "by counting",
    "counts": "by counting, with probabilities",
    "auto": "by counting",
}
"""What each of `gleak.matching.parts.LabelRule` is called."""


@dataclass(frozen=True, kw_only=True)
class AttackSummary:
    """How an attack finds samples and labels; what it does without is empty.

    Args:
        losses: the main term that each of its searches minimises, in words or as a distance's spec.
        terms: what is added to them, and what bounds the samples.
        optimizers: what minimises them, in words or as specs.
        labels: how labels are found.
    """

    losses: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    labels: str = ""

    def then(self, later: AttackSummary) -> AttackSummary:
        """Those of two searches, the second of which begins where this one ends.

        Args:
            later: of the second, which finds the samples and the labels.
        """
        return AttackSummary(
            losses=self.losses + later.losses,
            terms=self.terms + later.terms,
            optimizers=self.optimizers + later.optimizers,
            labels=later.labels,
        )


def traits_of(parts: Parts) -> AttackSummary:
    """Those of a search that matches gradients."""
    said = {
        "codes": not isinstance(parts.code, Pixels),
        "layer weights": parts.layers is not None,
        "label term": parts.label_term > 0,
    }
    return AttackSummary(
        losses=(str(parts.distance),),
        terms=(*(text for text, present in said.items() if present), *terms_of(parts)),
        optimizers=(str(parts.optimizer),),
        labels=LABELS[parts.labels],
    )


def terms_of(parts: SearchParts) -> tuple[str, ...]:
    """What any search adds to its distance, and what bounds its samples."""
    said = {"total variation": parts.total_variation > 0, "values in [0, 1]": parts.box}
    return tuple(text for text, present in said.items() if present)
