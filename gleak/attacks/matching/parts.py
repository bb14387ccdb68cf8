"""Components that an attack by search is assembled from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gleak.attacks.matching.codes.sample_codes import Pixels

if TYPE_CHECKING:
    from gleak.attacks.matching.codes.base import CodeSpec
    from gleak.attacks.matching.distances.base import DistanceSpec
    from gleak.attacks.matching.layer_weights import LayerWeights
    from gleak.attacks.matching.optimizers.base import OptimizerSpec
    from gleak.attacks.matching.starts.base import StartSpec

LabelRule = Literal["known", "joint", "sign", "rows", "argmin", "counts", "auto"]
"""Source of the labels: granted, optimised together with the samples, or inferred from the
classifier's gradient by a rule; auto: by the most accurate rule
(`gleak.attacks.matching.label_inference`).
"""

ClientModel = Literal["one_step", "unrolled"]
"""The attacker's model of the client's training: one step, or all local steps."""

Compared = Literal["sent", "nonzero", "all"]
"""Values of the gradient that are matched: those that the client declares as sent, only the nonzero
ones among them (a defence such as Soteria may have set the others to zero), or all.
"""

Draws = Literal["mean", "searched"]
"""Random numbers of a client's variational layers (PRECODE): zero, which is their mean, or searched
together with the samples.
"""

StatisticsSource = Literal["running", "granted"]
"""Statistics of batch normalisation that the samples should have: those that the broadcast network
keeps of its training data, or those of the client's batch, if they are granted.
"""

Finish = Literal["cut", "stretched", "equalized"]
"""Conversion of the final samples to [0, 1]: clipped, divided by the largest magnitude, or divided
and then equalised by their histogram.
"""

Result = Literal["lowest", "mean"]
"""Result of several searches: that of least objective, or the mean of their samples."""


@dataclass(frozen=True, kw_only=True)
class SearchParts:
    """Components and settings of a search, whatever it minimises.

    Args:
        start: the first dummy samples.
        optimizer: rule by which the dummy samples move.
        iterations: budget of one victim, restarts included.
        threshold: relative distance at which a victim has converged; None: the whole budget is
            spent.
        restarts: number of times that a diverged or stalled search may restart.
        patience: evaluations without a better distance after which a search has stalled.
        total_variation: weight of the image's mean absolute differences (InvertGrad); for images.
        box: clip every unknown of a sample to [0, 1] after each step.
        finish: conversion of the final samples to [0, 1].
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
    """Components of an attack by gradient matching; `gleak.attacks.matching.engine.match` runs it.

    Args:
        labels: source of the labels (see `gleak.attacks.matching.label_inference`); "joint"
        optimises them. code: parametrisation of the samples.
        distance: between dummy and observed gradient.
        layers: weights of the layers in the distance; None: all equal.
        client_model: treatment of an update of several local steps.
        compared: for an update of which only some values were sent: match these alone, or all
            values, with unsent ones counted as zeros; or the nonzero values, sent or not.
        draws: treatment of the random numbers that variational layers draw.
        skip: parameters that are left out of the match (`gleak.attacks.matching.skipped`).
        label_term: weight of the output's squared distance to the label (CPL, line 12: alpha).
        batch_norm: weight of the distance of batch statistics from the expected ones
            (`gleak.attacks.matching.batch_norm_prior`).
        statistics: source of the expected statistics.
    """

    labels: LabelRule
    distance: DistanceSpec
    code: CodeSpec = field(default_factory=Pixels)
    layers: LayerWeights | None = None
    client_model: ClientModel = "one_step"
    compared: Compared = "sent"
    draws: Draws = "mean"
    skip: str | None = None
    label_term: float = 0.0
    batch_norm: float = 0.0
    statistics: StatisticsSource = "running"
