"""Multiply-adds, calls and bytes of the jobs of each stage, for `gleak.studies.estimate`.

    multiply_adds of an attack = victims x samples x evaluations x passes x those of a forward pass

with 12 passes for gradient matching and 3 for feature inversion (`AttackSpec.passes`). Gradients of
convolutions are formed for each victim, which takes 10 ns a parameter. An attack that repeats a
client's local steps does so in each evaluation. Training takes epochs x samples x 3 passes,
training of knowledge steps x batch_size x 3. A client takes 3 for each gradient of a sample, also
when it audits parameters.

On disk a sample is a byte per intensity in ``dataset.h5`` and four elsewhere, a parameter four;
compression, sparse updates, snapshots and secrets are not counted. Properties that only a dataset's
files determine are assumed: `ASSUMED_CLASSES`, and `ASSUMED_SAMPLES` in each split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from gleak.core.registry import parse
from gleak.knowledge.base import Pretraining
from gleak.metrics.audits.base import REACH_SAMPLES
from gleak.simulation.grants import AUXILIARY
from gleak.studies.cell import Cell

WEIGHT_WORK = 400
"""Multiply-adds that take as long as forming the gradient of a convolution's parameter, 10 ns."""
GRADIENT_FACTOR = 3
FLOAT_BYTES = 4
ASSUMED_CLASSES = 100
ASSUMED_SAMPLES = 10_000


def _work_of_training(cell: Cell) -> float:
    samples = _samples(cell, "train")
    passes: float = cell.training.epochs_of_data(samples) * samples * GRADIENT_FACTOR
    return passes * _forward(cell)


def _work_of_knowledge(pretraining: Pretraining) -> float:
    spec = pretraining.knowledge
    public = Cell({"dataset": pretraining.dataset})
    work = spec.multiply_adds(pretraining.dataset.shape, _classes(public))
    return spec.passes * GRADIENT_FACTOR * work


def _bytes_of_knowledge(pretraining: Pretraining) -> float:
    public = Cell({"dataset": pretraining.dataset})
    parameters = pretraining.knowledge.parameters(pretraining.dataset.shape, _classes(public))
    return FLOAT_BYTES * (parameters + 2 * _samples(public, "train"))


def _bytes_of_dataset(cell: Cell) -> float:
    width = 1 if cell.dataset.modality == "image" else FLOAT_BYTES
    samples = _samples(cell, "train") + _samples(cell, "test")
    return samples * prod(cell.dataset.shape) * width


def _work_of_drift(cell: Cell) -> float:
    """Return the multiply-adds of recomputing the local steps and one gradient of the batch."""
    client = cell.client
    gradients = client.gradients_per_sample + 1 if client.local_descent else 0
    return gradients * _work_of_gradient(cell)


def _work_of_clients(cell: Cell) -> float:
    return cell.client.gradients_per_sample * _work_of_gradient(cell) + _work_of_drift(cell)


def _work_of_gradient(cell: Cell) -> float:
    """Return the multiply-adds of one gradient of every victim's batch."""
    client = cell.client
    return float(client.victims * client.batch_size * GRADIENT_FACTOR * _forward(cell))


def _bytes_of_truth(cell: Cell) -> float:
    """Return the size, in bytes, of the truth and of the granted parts of it."""
    samples = 2 * cell.client.victims * cell.client.batch_size + AUXILIARY + 1
    return samples * prod(cell.dataset.shape) * FLOAT_BYTES


def _bytes_of_reconstruction(cell: Cell) -> float:
    client = cell.client
    return client.victims * client.batch_size * prod(cell.dataset.shape) * FLOAT_BYTES


def _attack_work(cell: Cell) -> float:
    """Return the multiply-adds of the whole budget of every victim."""
    client, attack = cell.client, cell.attack
    forward = attack.samples_searched(client) * attack.passes * _forward(cell)
    return float(client.victims * _attack_calls(cell) * (forward + _work_of_weights(cell)))


def _attack_calls(cell: Cell) -> float:
    """Return the number of gradients of the batch of all victims."""
    steps = cell.client.gradients_per_sample if cell.attack.repeats_local_steps else 1
    calls: float = steps * cell.attack.evaluations
    return calls


def _work_of_weights(cell: Cell) -> float:
    """Return the multiply-adds that take as long as forming the gradient of the convolutions.

    Gradients of dense layers are not formed, so networks that begin with one are left out.
    """
    if cell.model.first_layer == "dense":
        return 0.0
    parameters: int = cell.model.parameters(cell.dataset.shape, _classes(cell))
    return parameters * WEIGHT_WORK


def _audit_work(cell: Cell) -> float:
    """Return the multiply-adds of a client's gradients on the parameters that it received."""
    samples: int = 2 * parse("metric", "audit_dominance").samples + REACH_SAMPLES
    return samples * GRADIENT_FACTOR * _forward(cell)


def no_cost(subject: Any) -> float:
    """Return zero, the cost of stages whose cost is negligible."""
    return 0.0


def _samples(cell: Cell, split: str) -> int:
    sizes: dict[str, int] | None = cell.dataset.sizes
    return ASSUMED_SAMPLES if sizes is None else sizes[split]


def _classes(cell: Cell) -> int:
    return cell.dataset.classes or ASSUMED_CLASSES


def _forward(cell: Cell) -> int:
    """Return the multiply-adds of one sample's forward pass."""
    work: int = cell.model.multiply_adds(cell.dataset.shape, _classes(cell))
    return work


def update_bytes(cell: Cell) -> int:
    """Return the size, in bytes, of the updates of all victims as dense single-precision values."""
    victims: int = cell.client.victims
    return victims * model_bytes(cell)


def model_bytes(cell: Cell) -> int:
    """Return the size, in bytes, of a cell's parameters as dense single-precision values."""
    parameters: int = cell.model.parameters(cell.dataset.shape, _classes(cell))
    return parameters * FLOAT_BYTES


COSTS: Mapping[str, tuple[Callable[[Any], float], Callable[[Any], float]]] = {
    "prepare_dataset": (no_cost, _bytes_of_dataset),
    "train_knowledge": (_work_of_knowledge, _bytes_of_knowledge),
    "train_model": (_work_of_training, model_bytes),
    "take_captured_model": (_work_of_training, model_bytes),
    "craft_parameters": (no_cost, model_bytes),
    "simulate_clients": (
        _work_of_clients,
        lambda cell: update_bytes(cell) + _bytes_of_truth(cell),
    ),
    "take_captured_update": (no_cost, update_bytes),
    "take_captured_truth": (_work_of_drift, _bytes_of_truth),
    "attack": (_attack_work, _bytes_of_reconstruction),
    "attack_shard": (
        lambda shard: _attack_work(shard.cell) / shard.count,
        lambda shard: _bytes_of_reconstruction(shard.cell) // shard.count,
    ),
    "gather_shards": (no_cost, _bytes_of_reconstruction),
    "score_parameters": (_audit_work, no_cost),
    "search": (lambda part: part.search.trials * _attack_work(part.search.cell), no_cost),
}
"""Multiply-adds and bytes of a job of each stage; other stages are negligible."""

CALLS: Mapping[str, Callable[[Any], float]] = {
    "attack": _attack_calls,
    "attack_shard": lambda shard: _attack_calls(shard.cell),
    "search": lambda part: part.search.trials * _attack_calls(part.search.cell),
    "train_knowledge": lambda pretraining: pretraining.knowledge.batches,
}
"""Number of evaluations of a batch by a job of each stage."""
