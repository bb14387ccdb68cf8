"""Cases and measures that tests of attacks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from gleak.artifacts.private import Private
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.data.natural_images import ImagePrior
from gleak.metrics.reconstruction.assignment import assign_samples, gather

Make = Callable[..., tuple[Observation, Private]]
"""Type of the fixtures `make_case` and `make_photo_case`."""


def natural_images(count: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Draw images from the prior of natural ones, clipped to [0, 1]; Shape (count, *shape)."""
    prior = ImagePrior.natural(shape, torch.zeros(1))
    codes = torch.randn(
        count, len(prior.mean), generator=torch.Generator().manual_seed(seed), dtype=torch.float32
    )
    return prior.coloured(codes).unflatten(1, shape).clamp(0, 1)


def matched(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Return the sample assigned to each true one."""
    return gather(estimate, assign_samples(truth, estimate), np.nan)


def psnr(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Compute the peak signal-to-noise ratio of the sample assigned to each true one, in dB."""
    return -10 * np.log10(((matched(truth, estimate) - truth) ** 2).mean((2, 3, 4)) + 1e-10)


def holding(
    seen: Observation, inputs: np.ndarray, labels: np.ndarray, client: str = "fedsgd"
) -> Observation:
    """Return the observation of clients with these samples."""
    network, spec = seen.model.requires_grad_(), parse("client", client)
    samples = zip(torch.from_numpy(inputs), torch.from_numpy(labels), strict=True)
    sent = [spec.compute(network, *own) for own in samples]
    network.requires_grad_(False)
    return replace(
        seen, update={name: torch.stack([own[name].detach() for own in sent]) for name in sent[0]}
    )
