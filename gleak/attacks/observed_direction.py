"""Gradients from the observed direction of a client's steps, where its optimiser allows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gleak.artifacts.protocol import PLAIN
from gleak.attacks.matching.distances import IntervalCell, SignCell
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

    Those of linear training are converted by `without_decay`, and that of one step of another
    optimiser from a state of zeros by `first_step`, if from an unknown one by `of_unknown_state`.
    The norm of one gradient that was clipped is unknown, as after a defence that clips.
    """
    protocol = observed.protocol
    if protocol.state is not None:
        return of_unknown_state(observed)
    if protocol.shows_gradient and protocol.clip_norm is not None:
        protocol = replace(protocol, clip_norm=None, clipping=protocol.clipping or "update")
        observed = replace(observed, protocol=protocol)
    if protocol.is_plain:
        return observed
    if protocol.is_linear:
        return without_decay(observed)
    unconverted = protocol.optimizer.linear or _is_unconverted(observed)
    return observed if unconverted else first_step(observed)


def _is_unconverted(observed: Observation) -> bool:
    """Return True if the direction of an optimiser that is not linear remains as it is."""
    return observed.protocol.local_steps > 1 or bool(observed.bases)


def of_unknown_state(observed: Observation) -> Observation:
    """Return the observation of steps from a state that the server does not know.

    Momentum of earlier steps on the same samples is nearly a multiple of their gradient, so that
    directions are known up to a factor. One step of another optimiser tells signs.
    """
    protocol = observed.protocol
    plain = replace(protocol, state=None, optimizer=PLAIN)
    if not protocol.optimizer.linear:
        signs = replace(observed, protocol=plain)
        return observed if _is_unconverted(observed) else _of_signs(signs)
    one = protocol.local_steps == 1
    scaled = replace(plain if one else protocol, clipping=protocol.clipping or "update")
    return replace(observed, protocol=scaled)


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
    plain = replace(observed, protocol=replace(protocol, optimizer=PLAIN))
    if observed.cells or protocol.clipping is not None:
        return _of_signs(plain)
    cells = {name: _interval(observed, name) for name in observed.update}
    if _impossible_share(cells.values()) > IMPOSSIBLE:
        return _of_signs(plain)
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


def _of_signs(observed: Observation) -> Observation:
    """Return the observation of signs; small values, unless signs were sent, count as not sent."""
    scale = observed.protocol.update_scale
    large = {
        name: (value.abs() >= LEAST_SIZE * _root_mean_square(value)).to(value)
        * observed.sent.get(name, 1)
        for name, value in observed.update.items()
        if not isinstance(observed.cells.get(name), SignCell)
    }
    return replace(
        observed,
        update={name: value.sign() * abs(scale) for name, value in observed.update.items()},
        sent={**observed.sent, **large},
        cells={name: SignCell() for name in observed.update},
    )


def _root_mean_square(values: torch.Tensor) -> torch.Tensor:
    """Compute the root mean square of each victim and round; Shape (V, R, 1, ...)."""
    return (
        values.flatten(2).square().mean(2).sqrt().view(*values.shape[:2], *[1] * (values.ndim - 2))
    )
