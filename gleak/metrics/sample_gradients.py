"""Gradients of a client's samples, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.models.broadcast import load_network
from gleak.runtime.seeding import stream, torch_stream

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.artifacts.model import Model


def gradient_norms(model: Model, data: Dataset, samples: int, seed: int) -> dict[str, np.ndarray]:
    """Norms of each sample's gradients: of its cross-entropy, and of a change of the logits.

    Args:
        model: the parameters, those of its architecture.
        data: a client's, of the shape and with the classes of the model.
        samples: how many to draw from its train split, fewer where it has fewer.
        seed: of the draw, and of the change of the logits: a direction that all samples share, of
            sum zero, since adding the same to all logits changes no loss.

    Returns:
        By parameter that requires a gradient; Shape (2, N): first of cross-entropy, per unit of its
        gradient at the logits, then of the direction, which does not depend on the label. Samples
        whose loss has no gradient are left out.

    Raises:
        ArtifactError: see `gleak.models.broadcast.load_network`.
    """
    network = load_network(model, "the parameters")
    labels = data.labels("train")
    random = stream(seed, "audited samples")
    chosen = random.choice(len(labels), min(samples, len(labels)), replace=False)
    inputs = torch.from_numpy(data.samples("train", chosen))
    trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
    if not trained:
        return {}
    change = torch.randn(1, model.classes, generator=torch_stream(seed, "change of the logits"))
    norms = [
        _norms(network, list(trained.values()), sample, int(label), change - change.mean())
        for sample, label in zip(inputs.split(1), labels[chosen], strict=True)
    ]
    kept = np.array([each for each in norms if each]).reshape(-1, 2, len(trained))
    return dict(zip(trained, kept.transpose(2, 1, 0), strict=True))


def _norms(
    network: nn.Module, trained: list[Tensor], sample: Tensor, label: int, change: Tensor
) -> list[list[float]]:
    """Of some parameters; an empty list where the softmax is one-hot at the label exactly."""
    logits = network(sample)
    direction = functional.softmax(logits.detach().double(), dim=1)
    direction[:, label] = -direction[:, torch.arange(direction.shape[1]) != label].sum()
    if not (length := direction.norm()):
        return []
    found = [
        torch.autograd.grad(
            logits, trained, each.to(logits.dtype), retain_graph=True, materialize_grads=True
        )
        for each in (direction / length, change)
    ]
    return [[float(gradient.norm()) for gradient in gradients] for gradients in found]
