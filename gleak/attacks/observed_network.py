"""Properties of the network and the defence that an observation shows."""

from __future__ import annotations

from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.models.differentiation import has_kinks
from gleak.models.layer_search import dense_inputs, first_dense_input, first_dense_layer
from gleak.runtime.seeding import torch_stream

PROBES = 6
"""Random samples that show whether a network has kinks."""


def random_samples(observation: Observation, count: int) -> torch.Tensor:
    """Draw uniform samples, always the same; Shape (N, *shape)."""
    generator = torch_stream(observation.seed, "best")
    shape = (count, *observation.input_shape)
    samples = torch.rand(shape, generator=generator, dtype=torch.float32)
    return samples.to(next(observation.model.parameters()))


def is_kinked(observation: Observation) -> bool:
    """Return True if the network computes a ReLU, a maximum or another function with kinks."""
    return has_kinks(observation.model, random_samples(observation, PROBES))


def has_hidden_zeros(observation: Observation) -> bool:
    """Return True if a defence has set values to zero without saying so, as `soteria` does.

    The server knows, or it shows (`has_zero_columns`), except where rounding makes zeros, or in the
    gradient of a layer that takes the samples, whose dark pixels are zeros too.
    """
    if observation.protocol.pruning is not None:
        return True
    if observation.sent or observation.cells or observation.bases or reads_samples(observation):
        return False
    return has_zero_columns(observation)


def has_zero_columns(observation: Observation) -> bool:
    """Return True if a defence has set columns of the first dense layer's gradient to zero.

    Soteria does. A ReLU before the layer leaves some, too, as in the gradient of random samples:
    then more than half of the other columns must be zero.
    """
    samples = random_samples(observation, observation.batch_size)
    with torch.no_grad():
        entry = first_dense_input(observation.model, samples)
    if entry is None or f"{entry.layer}.weight" not in observation.update:
        return False
    zero = (observation.update[f"{entry.layer}.weight"][0] == 0).all(-2).double().mean().item()
    natural = (entry.embeddings == 0).all(0).double().mean().item()
    return zero > (1 + natural) / 2 if natural else zero > 0


def has_hidden_dense_layer(observation: Observation) -> bool:
    """Return True if the first dense layer takes features of the samples, and is not the last.

    It runs once, on one vector per sample, as `first_dense_input` has it.
    """
    samples = random_samples(observation, observation.batch_size)
    with torch.no_grad():
        entry = first_dense_input(observation.model, samples)
        dense = dense_inputs(observation.model, samples)
    if entry is None or entry.layer == dense[-1].layer:
        return False
    first = first_dense_layer(observation.model, observation.input_shape)
    takes_samples = first is not None and first.takes_samples
    return f"{entry.layer}.weight" in observation.update and not takes_samples


def reads_samples(observation: Observation) -> bool:
    """Return True if a dense layer takes the samples, and has a neuron for each at least."""
    layer = first_dense_layer(observation.model, observation.input_shape)
    if layer is None or not layer.takes_samples or f"{layer.name}.weight" not in observation.update:
        return False
    return len(observation.model.get_parameter(f"{layer.name}.weight")) >= observation.batch_size
