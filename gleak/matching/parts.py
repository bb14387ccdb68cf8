"""The parts that an attack by search is assembled from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gleak.matching.codes.sample_codes import Pixels

if TYPE_CHECKING:
    from gleak.matching.codes.base import CodeSpec
    from gleak.matching.distances.base import DistanceSpec
    from gleak.matching.layer_weights import LayerWeights
    from gleak.matching.optimizers.base import OptimizerSpec
    from gleak.matching.starts.base import StartSpec

LabelRule = Literal["known", "joint", "sign", "rows", "argmin", "counts", "auto"]
"""Granted, optimised with the samples, or read off the classifier's gradient by a rule; auto: by
the one that finds most (see `gleak.matching.label_inference`)."""

ClientModel = Literal["one_step", "unrolled"]
"""How the attacker repeats the client's training: as one step, or as all of its local steps."""

Compared = Literal["sent", "nonzero", "all"]
"""Which values of the gradient are matched: those that the client says it sent, only those of them
that are not zero (a defence may have set the others to it, such as Soteria), or all."""

Finish = Literal["cut", "stretched", "equalized"]
"""How samples come into [0, 1] at the end: cut off, or divided by the largest magnitude, or then
equalised by their histogram."""


@dataclass(frozen=True, kw_only=True)
class SearchParts:
    """How a search goes, whatever it minimises.

    Args:
        start: the first dummy input.
        optimizer: how the dummy moves.
        iterations: budget of one victim, restarts included.
        threshold: a victim whose relative distance falls to this has converged; None: the budget
            is spent in any case.
        restarts: how often a diverged or stalled search may begin afresh.
        patience: evaluations without a better distance after which a search has stalled.
        total_variation: weight of the image's mean absolute differences (InvertGrad); of images.
        box: keep every unknown of a sample in [0, 1] after each step.
        finish: how samples come into [0, 1] at the end.
    """

    start: StartSpec
    optimizer: OptimizerSpec
    iterations: int
    threshold: float | None = None
    restarts: int = 0
    patience: int | None = None
    total_variation: float = 0.0
    box: bool = False
    finish: Finish = "cut"


@dataclass(frozen=True, kw_only=True)
class Parts(SearchParts):
    """What an attack that matches gradients names; `gleak.matching.engine.match` does the rest.

    Args:
        labels: source of the labels (see `gleak.matching.label_inference`); "joint" optimises them.
        code: what stands for a sample among the unknowns.
        distance: between dummy and observed gradient.
        layers: how much each layer counts in it; None: all alike.
        client_model: how an update of several local steps is matched.
        compared: of an update in which only some values were sent, these alone, or all, those left
            out counting as zeros; or those that are not zero, however they were sent.
        label_term: weight of the output's squared distance to the label (CPL, line 12: alpha).
    """

    labels: LabelRule
    distance: DistanceSpec
    code: CodeSpec = field(default_factory=Pixels)
    layers: LayerWeights | None = None
    client_model: ClientModel = "one_step"
    compared: Compared = "sent"
    label_term: float = 0.0
