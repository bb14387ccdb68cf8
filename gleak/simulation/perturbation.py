"""How much a defence changed what clients send, relative to what they computed."""

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

TOO_NOISY = 1.0
log = logging.getLogger(__name__)


def perturbation(sent: Mapping[str, Encoded], computed: Sequence[Mapping[str, Tensor]]) -> float:
    """||sent - computed|| / ||computed|| of one victim in one round.

    Args:
        sent: as the server sees it; by parameter, decoded Shape (1, 1, *shape).
        computed: of each client behind it, without the defence but of the length at which it is
            sent (`gleak.defenses.base.DefenseSpec.at_sent_norm`); Shape (1, *shape).
    """
    decoded = {name: torch.from_numpy(value.decode()[0]) for name, value in sent.items()}
    return relative_error(decoded, _mean(computed))


def _mean(computed: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    if len(computed) == 1:
        return computed[0]
    return {name: torch.stack([one[name] for one in computed]).mean(0) for name in computed[0]}


def log_perturbation(client: ClientSpec, defense: DefenseSpec, perturbations: np.ndarray) -> None:
    """Log what a defence did, and warn where that is mostly noise or hangs on the form sent.

    Args:
        client: how victims train.
        defense: what they do to an update.
        perturbations: of each victim and round, Shape (V, R).
    """
    mean, worst = perturbations.mean(), perturbations.max()
    log.info("defense %s changes what is sent by %.3g of its length on average", defense, mean)
    if defense.remedy and worst > TOO_NOISY:
        log.warning(
            "client %s, defense %s: noise and clipping change what is sent by up to %.3g times the "
            "length of the update, so that little else is left of it: %s",
            client,
            defense,
            worst,
            defense.remedy,
        )
    scale = abs(client.update_scale)
    if defense.scale_dependent and scale != 1:
        log.warning(
            "client %s, defense %s: its numbers are in the unit of what is sent, a difference of "
            "weights that is %.3g times as long as the mean gradient of the steps; relative to the "
            "update they are %.3g times as large as with sends=gradient: if they are meant for "
            "gradients, write unit=gradient, or have those sent (sends=gradient)",
            client,
            defense,
            scale,
            1 / scale,
        )


def relative_error(found: Mapping[str, Tensor], true: Mapping[str, Tensor]) -> float:
    """Length of the difference over that of the true values; 0 where both are zero.

    Args:
        found: by parameter, Shape (*shape).
        true: likewise.
    """
    error = sum(float((found[name] - value).square().sum()) for name, value in true.items())
    length = sum(float(value.square().sum()) for value in true.values())
    return math.sqrt(error / max(length, torch.finfo(torch.float32).tiny))
