"""Shadow clients: what an attack recovers of samples that the attacker drew, and so knows.

A criterion computed from what was sent can be misled where noise or random rounding hides most of a
batch's update: the search then explains noise. How near each candidate comes to the samples is
measured where they are known, on clients that the attacker simulates with the same network,
protocol, code and noise, as attacks on membership train shadow models (Shokri et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gleak.artifacts.protocol import Clipping
from gleak.artifacts.reconstruction import Candidate
from gleak.attacks.candidates import Batch, Stage, assigned, stage
from gleak.attacks.matching.distances import total
from gleak.attacks.matching.pieces import FLOOR, rows
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.matching.priors import image_prior
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.runtime.seeding import torch_stream

Values = Mapping[str, "torch.Tensor"]
"""By parameter, Shape (V, ...)."""
PURPOSE = "shadow client {}"
LEADING = 0.5
"""Share of the power of as many leading singular vectors above which a basis is of these."""


def shadow_clients(
    posterior: Posterior, best: Batch, number: int = 0
) -> tuple[Observation, np.ndarray]:
    """Simulate one client for each victim, with images drawn from the prior of natural images.

    It has the labels of the best candidate. Its gradient is as long as that of the candidate that
    fits what was sent, if clients clip. It is sent in the victim's code, or as an exact product
    of as low a rank; other parameters have normal noise, of the size that the candidate leaves
    unexplained.

    Args:
        posterior: of V victims of whose updates all values were sent, in no code of intervals.
        best: candidates for them.
        number: of the random draws.

    Returns:
        What a server observes, and the samples in [0, 1], Shape (V, N, ...).
    """
    observation, problem = posterior.observation, posterior.problem
    prior = image_prior(observation)
    assert prior is not None, "clients have images"
    purpose = PURPOSE.format(number)
    streams = [torch_stream(observation.seed, purpose, each) for each in observation.victim_ids]
    codes = _drawn(torch.randn, problem.values, streams)
    images = prior.coloured(codes.to(problem.like).view(-1, len(prior.mean)))
    samples = images.clamp(0, 1).view(-1, *problem.shape)
    found, drawn = (
        posterior.gradients(inputs, best.labels) for inputs in (best.inputs, samples.cpu().numpy())
    )
    clipping, update, bases = observation.protocol.clipping, {}, dict[str, torch.Tensor]()
    fitted = _ratios(_products(problem.observed, found), _products(found, found), clipping)
    longer = _ratios(_products(found, found), _products(drawn, drawn), clipping)
    for name, received in problem.observed.items():
        value = fitted[name] * longer[name].sqrt() * rows(drawn[name])
        if name in problem.bases:
            matrix, own = (each.view_as(received).flatten(2) for each in (value, found[name]))
            basis = _basis_alike(matrix, problem.bases[name], own)
            bases[name], value = basis[:, None], rows(basis @ (basis.mT @ matrix))
        elif name in problem.cells:
            draws = _drawn(torch.rand, value.shape[1], streams)
            value = problem.cells[name].coded(value, draws.to(value))
        else:
            residual = rows(received) - fitted[name] * rows(found[name])
            noise = _drawn(torch.randn, value.shape[1], streams)
            size = residual.square().mean(1, keepdim=True).sqrt()
            value = value + size * noise.to(size)
        whole = observation.protocol.update_scale * value
        update[name] = whole.view_as(received)[:, None]
    return replace(observation, update=update, bases=bases), samples.cpu().numpy()


def _basis_alike(matrix: torch.Tensor, basis: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return a basis of columns for a matrix, of the kind in which a victim's was sent.

    A basis of leading singular vectors holds most of the power that as many of the victim's hold,
    as a candidate for its samples tells; any other one is kept.

    Args:
        matrix: Shape (V, rows, columns).
        basis: that of the victim; Shape (V, rows, K).
        own: gradient of the candidate; Shape (V, rows, columns).

    Returns:
        Shape (V, rows, K).
    """
    count = basis.shape[2]
    most = torch.linalg.svdvals(own)[:, :count].square().sum(1)
    is_leading = (basis.mT @ own).square().sum((1, 2)) > LEADING * most
    leading = torch.linalg.svd(matrix, full_matrices=False).U[..., :count]
    return torch.where(is_leading[:, None, None], leading, basis)


def _drawn(
    draw: Callable[..., torch.Tensor], size: int, streams: Sequence[torch.Generator]
) -> torch.Tensor:
    """Draw values from each stream in single precision, whatever the default; Shape (V, size)."""
    return torch.stack([draw(size, generator=each, dtype=torch.float32) for each in streams])


def _products(first: Values, second: Values) -> Values:
    """Compute the inner product of two gradients in each parameter; Shape (V, 1) each."""
    return {
        name: (rows(value) * rows(second[name])).sum(1, keepdim=True)
        for name, value in first.items()
    }


def _ratios(over: Values, under: Values, clipping: Clipping | None) -> Values:
    """Divide by parameter, or the sums, as clients clip them; 1 if they do not; Shape (V, 1)."""
    if clipping is None:
        return {name: torch.ones_like(value) for name, value in over.items()}
    if clipping == "update":
        over, under = (dict.fromkeys(each, total([*each.values()])) for each in (over, under))
    return {name: (over[name] / under[name].clamp_min(FLOOR)).clamp_min(0) for name in over}


def greatest(errors: Sequence[Mapping[Stage, float]]) -> dict[Stage, float]:
    """Return the greatest error of each stage among those of several clients."""
    joined: dict[Stage, float] = {}
    for one in errors:
        joined |= {name: max(error, joined.get(name, error)) for name, error in one.items()}
    return joined


def stage_errors(candidates: Sequence[Candidate], samples: np.ndarray) -> dict[Stage, float]:
    """Compute the mean error of each stage that proposed samples to one client, in dB.

    Args:
        candidates: of the client.
        samples: its own; Shape (N, ...).
    """
    found = {stage(one): one.inputs for one in candidates if one.inputs is not None}
    wrong = {
        name: (inputs[assigned(samples, inputs)].clip(0, 1) - samples).reshape(len(samples), -1)
        for name, inputs in found.items()
    }
    return {
        name: float(np.mean(10 * np.log10(np.square(each).mean(1) + FLOOR)))
        for name, each in wrong.items()
    }
