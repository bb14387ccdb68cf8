"""What is learned from public data to score attacks, not to make them."""

from __future__ import annotations

from gleak.knowledge.base import KnowledgeSpec


class EvaluatorSpec(KnowledgeSpec):
    """Knowledge of whoever scores what an attack found; no attack is given it.

    An attack's spec names it, so that the path says by what its cell was scored.
    """
