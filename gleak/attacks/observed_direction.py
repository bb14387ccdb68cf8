"""Gradients from the observed direction of a client's steps, where its optimiser allows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gleak.artifacts.protocol import PLAIN
from gleak.attacks.matching.quantisation_cells import IntervalCell, SignCell
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

ROUNDING = 4.0
"""Rounding error of a direction that a client computes, in units of its precision."""
IMPOSSIBLE = 1e-3
"""Share of directions that no gradient has, above which a defence has changed them."""

LEAST_SIZE = 0.5
"""Magnitude, relative to a parameter's root mean square, from which a changed value has a sign."""


def as_gradient(observed: Observation) -> Observation:
    """Return the observation with gradients in place of the directions of steps, where possible.

    What was received, and how the clients trained, are kept beside them.

    Directions of linear training are converted by `without_decay`. Momentum of earlier steps on the
    same samples is nearly a multiple of their gradient: after a step from an unknown state this is
    known up to a factor, as is one whose norm was clipped. Of other optimisers one step from a
    state of zeros is converted by `first_step`, unless a defence changed it or its gradient may
    have been clipped to a norm; all others are converted by `of_signs`, unless they were sent as
    products of matrices.
    """
    found = _as_gradient(observed)
    if found is observed:
        return observed
    return replace(found, received=observed.update, trained=observed.protocol)


def _as_gradient(observed: Observation) -> Observation:
    protocol = observed.protocol
    if protocol.optimizer.linear:
        unknown = protocol.shows_gradient and protocol.clip_norm is not None
        if unknown or protocol.state is not None:
            return _of_unknown_factor(observed)
        if protocol.is_plain or not protocol.is_linear:
            return observed
        return without_decay(observed)
    if observed.bases:
        return observed
    scaled = protocol.clipping is not None or protocol.clip_norm is not None
    changed = bool(observed.cells) or scaled
    single = protocol.local_steps == 1 and protocol.state is None
    return first_step(observed) if single and not changed else of_signs(observed)


def _of_unknown_factor(observed: Observation) -> Observation:
    """Return the observation of steps that a client may have scaled."""
    protocol = observed.protocol
    stated = replace(protocol, clipping=protocol.clipping or "update", norm_if_clipped=None)
    if protocol.state is None:
        return _as_gradient(replace(observed, protocol=replace(stated, clip_norm=None)))
    one = stated.of_one_step() if protocol.local_steps == 1 else stated
    return replace(observed, protocol=one)


def without_decay(observed: Observation) -> Observation:
    """Return the observation with updates at the scale of one gradient, and without weight decay.

    If the local training is linear, the mean direction of its steps is c g + k w, where g is the
    gradient if it is the same in all steps, w are the broadcast parameters, and c and k depend on
    the optimiser alone (`Protocol.gradient_response`, `Protocol.decay`). An attack that unrolls the
    steps does the same with the mean direction of its samples.

    Raises:
        IncompatibleError: signs were sent, from which weight decay cannot be subtracted.
    """
    protocol = observed.protocol
    response, scale = protocol.gradient_response, protocol.update_scale
    update = {name: value / response for name, value in observed.update.items()}
    cells = {name: cell.scaled(1 / response) for name, cell in observed.cells.items()}
    if protocol.decay:
        if any(isinstance(cell, SignCell) for cell in cells.values()):
            raise IncompatibleError(
                f"clients with optimizer={protocol.optimizer} sent signs, from which weight decay "
                "cannot be subtracted; use another defence, or leave out weight_decay"
            )
        for name, value in update.items():
            parameters = observed.model.get_parameter(name)[None]
            decay = observed.broadcast.get(name, parameters).to(value) * protocol.decay
            decay = (decay * scale / response).expand_as(value)
            if name in observed.sent:
                decay = decay * observed.sent[name]
            if name in observed.bases:
                basis, flat = observed.bases[name], decay.flatten(3)
                decay = (basis @ (basis.mT @ flat)).view_as(decay)
            update[name] = value - decay
    return replace(observed, update=update, cells=cells)


def first_step(observed: Observation) -> Observation:
    """Return the observation of one plain step, with what the first direction tells of gradients.

    From a state of zeros Adam's is g / (|g| + eps), nearly a sign. As it is rounded, it tells in
    which interval a gradient is: a narrow one if the gradient is so small that eps counts,
    otherwise that beyond a bound. Under a defence that changes values it tells signs alone. The
    update becomes the middle of the interval, or its finite end, or the sign.
    """
    protocol = observed.protocol
    cells = {name: _interval(observed, name) for name in observed.update}
    if _impossible_share(cells.values()) > IMPOSSIBLE:
        return of_signs(observed)
    plain = replace(observed, protocol=replace(protocol, optimizer=PLAIN))
    scaled = {name: cell.widened().scaled(protocol.update_scale) for name, cell in cells.items()}
    return replace(plain, update={k: cell.middle for k, cell in scaled.items()}, cells=scaled)


def _interval(observed: Observation, name: str) -> IntervalCell:
    """Return the interval of every gradient of a parameter, given its first direction."""
    value, scale = observed.update[name], observed.protocol.update_scale
    parameter = observed.model.get_parameter(name)[None].to(value.device)
    parameter = observed.broadcast.get(name, parameter).double()
    direction, precision = value.double() / scale, torch.finfo(value.dtype).eps
    error = ROUNDING * precision * direction.abs()
    if observed.protocol.content == "difference":
        error += precision / 2 * (parameter.abs() / abs(scale) + direction.abs())
    first_gradient = observed.protocol.optimizer.first_gradient
    low, high = (
        first_gradient(parameter, end).nan_to_num(nan=nan, posinf=torch.inf, neginf=-torch.inf)
        for end, nan in ((direction - error, -torch.inf), (direction + error, torch.inf))
    )
    if name in observed.sent:
        unsent = observed.sent[name] == 0
        low, high = low.masked_fill(unsent, -torch.inf), high.masked_fill(unsent, torch.inf)
    return IntervalCell(low.to(value), high.to(value))


def _impossible_share(cells: Iterable[IntervalCell]) -> float:
    """Return the share of values whose interval is empty."""
    return float(torch.cat([cell.empty.flatten() for cell in cells]).double().mean())


def of_signs(observed: Observation) -> Observation:
    """Return the observation of the signs of one gradient, those of the mean direction.

    Small values, unless signs were sent, count as not sent. Directions of several steps of Adam
    change so little with the samples that a search through all steps does not move: signs of one
    show more (docs/results/clients.md).
    """
    one = observed.protocol.of_one_step()
    large = {
        name: (value.abs() >= LEAST_SIZE * _root_mean_square(value)).to(value)
        * observed.sent.get(name, 1)
        for name, value in observed.update.items()
        if not isinstance(observed.cells.get(name), SignCell)
    }
    size = abs(one.update_scale)
    return replace(
        observed,
        update={name: value.sign() * size for name, value in observed.update.items()},
        sent={**observed.sent, **large},
        cells={name: SignCell() for name in observed.update},
        protocol=one,
    )


def _root_mean_square(values: torch.Tensor) -> torch.Tensor:
    """Compute the root mean square of each victim and round; Shape (V, R, 1, ...)."""
    return (
        values.flatten(2).square().mean(2).sqrt().view(*values.shape[:2], *[1] * (values.ndim - 2))
    )
