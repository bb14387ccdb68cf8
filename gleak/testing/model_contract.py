"""Contract tests for models of users, to be called in their own tests.

from gleak.testing import check_model

def test_my_network():
    check_model(build_my_network, shape=(3, 32, 32), classes=10)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.private import Private
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.parts import ClientModel
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import reconstruct
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.metrics.score import match_to_truth
from gleak.models.differentiation import differentiable_kernels
from gleak.models.examination import check_trainable
from gleak.models.parameters import (
    double_copy,
    dtype_of,
    independent_copy,
    random_samples,
    trained_parameters,
)
from gleak.models.stochastic import deterministic_copy
from gleak.models.tracing import failing_layer

VICTIMS = 3
PROTOCOLS: tuple[tuple[str, ClientModel], ...] = (
    ("fedsgd+batch_size=2", "one_step"),
    ("fedavg+batch_size=2+local_steps=2+local_lr=0.1", "unrolled"),
    ("fedavg+batch_size=4+local_steps=2+local_lr=0.1+mini_batch=2+sends=weights", "unrolled"),
)
"""Clients, and the attacker's model of them under which the truth has distance zero."""
LARGEST_DISTANCES = {torch.float64: 1e-12, torch.float32: 1e-6}
"""Relative squared distance of the true samples' gradient to the observed one, by precision."""
Build = Callable[[tuple[int, ...], int], nn.Module]


def check_model(build: Build, shape: tuple[int, ...] = (3, 16, 16), classes: int = 10) -> None:
    """Check that clients can train a network and that attacks can reproduce the clients' updates.

    The network is examined. Clients of three protocols compute updates, which are compared with
    plain automatic differentiation. At the true samples and labels the objective of gradient
    matching must be zero up to rounding, in double precision (if the network supports it) and in
    single precision. One attack is run with inferred labels and scored.

    Args:
        build: function of the shape of a sample and the number of classes that returns the network,
            as in ``custom+factory=module.build``.
        shape: shape of a sample, without the batch.
        classes: number of logits.

    Raises:
        IncompatibleError: the network is not supported; names the reason and a remedy.
        AssertionError: an update or an objective is wrong, which is a bug in gleak.
    """
    torch.manual_seed(0)
    network = build(shape, classes).eval()
    check_trainable(network, shape, classes)
    certain = deterministic_copy(network)
    _check_client_gradient(certain, shape, classes)
    double = deterministic_copy(double_copy(certain, random_samples(certain, 2, shape)))
    models = {dtype_of(model): model for model in (double, certain)}
    methods: dict[str, Any] = {}
    for precision, model in models.items():
        largest = LARGEST_DISTANCES.get(precision, LARGEST_DISTANCES[torch.float32])
        for text, client_model in PROTOCOLS:
            client = parse("client", text)
            distances = truth_distance(model, client, client_model, shape, classes, methods)
            assert (distances <= largest).all(), (
                f"client {client}, {precision}: the distances of the true samples are "
                f"{distances.tolist()}, more than rounding ({largest:g})"
            )
    _check_attack(certain, shape, classes)


def truth_distance(
    network: nn.Module,
    client: ClientSpec,
    client_model: ClientModel,
    shape: tuple[int, ...],
    classes: int,
    verified_methods: dict[str, Any] | None = None,
) -> Tensor:
    """Compute the distance between the true samples' gradient and the observed one in an attack.

    The network has no random layers; the samples are random. The methods of computing gradients
    that were verified before are not verified again (`Observation.verified_methods`).

    Returns:
        Relative squared distance, Shape (V); zero up to rounding if the implementation is correct.
    """
    inputs, labels = _samples(network, client.batch_size, shape, classes)
    observation = _observe(network, client, inputs, labels, classes)
    observation.verified_methods.update(verified_methods or {})
    attack = parse("attack", f"dlg_adam+labels=known+client_model={client_model}")
    with differentiable_kernels(network):
        problem = GradientMatching.of(observation, attack.parts())
        distance = problem.evaluate(inputs.flatten(1)).distance
    if verified_methods is not None:
        verified_methods.update(observation.verified_methods)
    return distance


def _check_client_gradient(network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Check that a client's gradient is that of the mean loss of its batch, by `torch.autograd`."""
    client = parse("client", "fedsgd+batch_size=2")
    inputs, labels = _samples(network, client.batch_size, shape, classes)
    trained = trained_parameters(network)
    for samples, targets in zip(inputs, labels, strict=True):
        sent = client.compute(network, samples, targets)
        loss = functional.cross_entropy(network(samples.clone()), targets)
        values = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
        assert sent.keys() == trained.keys(), "a client must send the parameters that it trains"
        for name, value in zip(trained, values, strict=True):
            error = (sent[name][0] - value).norm()
            assert error <= 1e-4 * max(value.norm(), 1e-6), f"{name}: wrong gradient"


def _check_attack(network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Check that the results of an attack can be scored and that it infers labels if possible."""
    size = 2 if failing_layer(network, random_samples(network, 1, shape)) else 1
    client = parse("client", f"fedsgd+batch_size={size}")
    inputs, labels = _samples(network, size, shape, classes)
    observation = _observe(network, client, inputs, labels, classes)
    attack = parse("attack", "invertgrad+labels=known+iterations=2")
    found = reconstruct(attack, observation, 0)
    truth = Private(
        modality=observation.modality,
        inputs=inputs.numpy(),
        labels=labels.numpy(),
        indices=np.zeros_like(labels.numpy()),
    )
    error = parse("metric", "mse").measure(match_to_truth(truth, found))
    assert np.isfinite(error).all(), "the attack's samples cannot be scored"
    try:
        inferred = reconstruct(parse("attack", "invertgrad+iterations=1"), observation, 0).labels
    except IncompatibleError:
        return
    if size == 1:
        assert (inferred == labels.numpy()).all(), "the label of a single sample is not found"


def _samples(
    network: nn.Module, size: int, shape: tuple[int, ...], classes: int
) -> tuple[Tensor, Tensor]:
    """Draw inputs, Shape (V, N, *shape), and return them with labels, Shape (V, N)."""
    inputs = random_samples(network, VICTIMS * size, shape).unflatten(0, (VICTIMS, size))
    return inputs, torch.arange(VICTIMS * size).unflatten(0, (VICTIMS, size)) % classes


def _observe(
    network: nn.Module, client: ClientSpec, inputs: Tensor, labels: Tensor, classes: int
) -> Observation:
    """Return the observation of the clients' updates for these samples, with granted labels."""
    batches = zip(inputs, labels, strict=True)
    network = client.run(network)
    updates = [client.compute(network, *batch) for batch in batches]
    names = updates[0].keys()
    return Observation(
        update={name: torch.stack([one[name] for one in updates]).detach() for name in names},
        sent={},
        model=independent_copy(network).requires_grad_(False),
        modality="image" if inputs.ndim == 5 else "tabular",
        input_shape=tuple(inputs.shape[2:]),
        classes=classes,
        protocol=client.protocol,
        granted={"labels": labels},
        victim_ids=np.arange(len(inputs)),
        seed=0,
    )
