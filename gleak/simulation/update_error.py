"""Relative error between the update sent and the update computed."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gleak.artifacts.encodings import Encoded

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.defenses.base import DefenseSpec

MAX_PERTURBATION = 1.0
log = logging.getLogger(__name__)


def perturbation(sent: Mapping[str, Encoded], computed: Sequence[Mapping[str, Tensor]]) -> float:
    """Compute ||sent - computed|| / ||computed|| of one victim in one round.

    Args:
        sent: update observed by the server; by parameter, decoded Shape (1, 1, *shape).
        computed: update of each client without the defence, but with the norm at which it is sent
            (`gleak.defenses.base.DefenseSpec.at_sent_norm`); Shape (1, *shape).
    """
    decoded = {name: torch.from_numpy(value.decode()[0]) for name, value in sent.items()}
    return relative_error(decoded, mean_of(computed))


def mean_of(updates: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Compute the mean of updates by parameter."""
    if len(updates) == 1:
        return updates[0]
    return {name: torch.stack([each[name] for each in updates]).mean(0) for name in updates[0]}


def relative_error(values: Mapping[str, Tensor], true: Mapping[str, Tensor]) -> float:
    """Compute the L2 norm of the difference over that of the true values; 0 if both are zero.

    Args:
        values: by parameter, Shape (*shape).
        true: likewise.
    """
    error = sum(float((values[name] - value).square().sum()) for name, value in true.items())
    power = sum(float(value.square().sum()) for value in true.values())
    return math.sqrt(error / max(power, torch.finfo(torch.float32).tiny))


def log_perturbation(client: ClientSpec, defense: DefenseSpec, perturbations: np.ndarray) -> None:
    """Log the mean perturbation; warn if noise dominates or depends on the form of the update.

    Args:
        client: client of the victims.
        defense: defence of the victims.
        perturbations: perturbation of each victim and round, Shape (V, R).
    """
    mean, worst = perturbations.mean(), perturbations.max()
    log.info("defense %s: mean relative perturbation of the update %.3g", defense, mean)
    if defense.remedy and worst > MAX_PERTURBATION:
        log.warning(
            "client %s, defense %s: noise and clipping change the update by up to %.3g times its "
            "norm, so noise dominates: %s",
            client,
            defense,
            worst,
            defense.remedy,
        )
    scale = abs(client.update_scale)
    if defense.scale_dependent and scale != 1:
        log.warning(
            "client %s, defense %s: the defence has parameters in the unit of the values sent, a "
            "difference of weights of %.3g times the norm of the mean gradient; relative to the "
            "update they are %.3g times as large as with sends=gradient: if they are meant for "
            "gradients, write unit=gradient, or choose sends=gradient",
            client,
            defense,
            scale,
            1 / scale,
        )
