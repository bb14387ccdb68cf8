"""Workflow stages that run an attack, and write ``reconstruction.h5``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gleak.artifacts.encodings import Encoded, Factored
from gleak.artifacts.model import Model, Secret
from gleak.artifacts.reconstruction import Reconstruction, join_victims
from gleak.artifacts.update import Granted, Update
from gleak.attacks.attacker import AttackerSpec
from gleak.attacks.base import AttackSpec
from gleak.attacks.matching.quantisation_cells import cells_of
from gleak.attacks.observation import Observation
from gleak.attacks.observed_direction import as_gradient
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.lazy import torch
from gleak.knowledge.loading import load_knowledge
from gleak.models.batch_norm import run_by_clients
from gleak.models.broadcast import load_network, read_model_spec
from gleak.models.differentiation import differentiable_kernels
from gleak.models.parameters import broadcast_state, check_trained, trained_parameters
from gleak.runtime.checkpointing import FILE, Journal, origin_of
from gleak.runtime.device import choose_device, device_name
from gleak.runtime.provenance import load
from gleak.runtime.seeding import derived_seed

ALL = slice(None)
Reads = Callable[["torch.nn.Module", tuple[int, ...]], frozenset[str] | None]
"""Function of a network and the shape of a sample; see `AttackSpec.reads`."""


def share(victims: int, shard: int, shards: int) -> slice:
    """Return the victims of one of several nearly equal shards; ``shard`` counts from 1."""
    return slice(victims * (shard - 1) // shards, victims * shard // shards)


def attack(
    spec: AttackSpec,
    update_path: Path,
    parameters_path: Path,
    granted_paths: Mapping[str, Path],
    output: Path,
    *,
    secret_path: Path | None = None,
    knowledge_paths: Iterable[Path] = (),
    victims: slice = ALL,
    cell_victims: int = 1,
    seed: int,
    device: str = "auto",
) -> dict[str, float]:
    """Attack the victims of an update and write the reconstruction.

    An interrupted attack resumes from ``checkpoint.h5`` beside the output, with the same result as
    without the interruption. The paths are those of ``update.h5``, of ``model.h5`` or
    ``parameters.h5`` as broadcast, and of what the attack needs: grants by name, ``secret.h5``,
    files ``knowledge.h5``. A shard has some of the cell's victims.

    Returns:
        See `gleak.runtime.checkpointing.Journal.earlier`.
    """
    knowledge_paths = list(knowledge_paths)
    observation = observe(
        update_path,
        parameters_path,
        granted_paths,
        reads=spec.reads,
        secret_path=secret_path,
        knowledge_paths=knowledge_paths,
        victims=victims,
        seed=seed,
        device=device,
    )
    observation = replace(observation, cell_victims=cell_victims)
    secrets = [] if secret_path is None else [secret_path]
    files = [update_path, parameters_path, *granted_paths.values(), *secrets, *knowledge_paths]
    protocol = observation.protocol
    specs = [spec, read_model_spec(parameters_path), protocol.optimizer, protocol.schedule]
    origin = origin_of(__name__, specs, files, [victims.start, victims.stop], seed)
    used = device_name(next(observation.model.parameters()).device)
    with Journal(output.with_name(FILE), origin, used) as journal:
        reconstruct(spec, replace(observation, journal=journal), seed).write(output)
    return journal.earlier


def gather_shards(shards: Sequence[Path], output: Path) -> None:
    """Write one reconstruction with the victims of all shards, in order.

    Raises:
        ArtifactError: the shards differ in the number of samples found.
    """
    parts = [Reconstruction.read(path) for path in shards]
    samples = {part.inputs.shape[1] for part in parts}
    if len(samples) > 1:
        raise ArtifactError(
            f"{output}: the shards contain different numbers of samples, {sorted(samples)}, as is "
            "possible for an attack with counted=spectrum; run it with shards=1"
        )
    join_victims(parts).write(output)


def total_cost(shards: Sequence[Path]) -> dict[str, Any]:
    """Return the cost of all shards: the sum of times, the largest peak of memory, the device."""
    facts = [load(path.parent) for path in shards]
    added = {key: sum(fact[key] for fact in facts) for key in ("seconds", "cpu_seconds")}
    peak = max(fact["peak_memory_mb"] for fact in facts)
    return {**added, "peak_memory_mb": peak, "device": facts[0]["device"]}


def reconstruct(spec: AttackSpec, observation: Observation, seed: int) -> Reconstruction:
    """Run an attack on an observation and add spec, seed and modality to the reconstruction.

    Raises:
        IncompatibleError: the attack does not support the network, or lacks a grant.
    """
    check_granted(spec, observation.granted)
    with differentiable_kernels(observation.model):
        reconstruction = spec.reconstruct(_rounds_read(spec, observation))
    path = f"{observation.spec}/{spec}"
    return replace(reconstruction, spec=path, seed=seed, modality=observation.modality)


def rehearse(spec: AttackSpec, observation: Observation) -> None:
    """Run an attack's computations on a GPU once; see `AttackSpec.rehearse`."""
    check_granted(spec, observation.granted)
    with differentiable_kernels(observation.model):
        spec.rehearse(_rounds_read(spec, observation))


def _rounds_read(spec: AttackSpec, observation: Observation) -> Observation:
    """Return all rounds, in host memory, or the only one that an attack reads, on the device."""
    several = observation.rounds > 1 and not spec.reads_all_rounds
    return observation.of_round(0) if several else observation


def check_granted(spec: AttackerSpec, granted: Collection[str]) -> None:
    """Raise `IncompatibleError` if an attack needs a grant that is not among those given."""
    missing = sorted(spec.grants - set(granted))
    if missing:
        raise IncompatibleError(
            f"{spec.kind} {spec} needs grants that are not given: {', '.join(missing)}; give them, "
            "or use an attack that does not need them"
        )


def observe(
    update_path: Path,
    parameters_path: Path,
    granted_paths: Mapping[str, Path],
    *,
    reads: Reads = lambda network, input_shape: None,
    secret_path: Path | None = None,
    knowledge_paths: Iterable[Path] = (),
    victims: slice = ALL,
    seed: int,
    device: str = "auto",
) -> Observation:
    """Read everything an attacker knows from its files; arguments as in `attack`.

    ``reads`` selects the parameters whose updates are loaded, by default all.

    Raises:
        ArtifactError: a bad file, an update that does not fit the parameters, or knowledge of
            samples of another shape.
        IncompatibleError: the attack uses the update of a frozen parameter.
    """
    broadcast = Model.read(parameters_path)
    network = load_network(broadcast, str(parameters_path)).to(choose_device(device))
    input_shape = tuple(map(int, broadcast.input_shape))
    only = parameters_read(network, reads, input_shape)
    return observation_of(
        Target(network, broadcast.modality, input_shape, broadcast.classes, str(parameters_path)),
        Update.read(update_path, only=only, victims=victims),
        {grant: Granted.read(path, victims=victims) for grant, path in granted_paths.items()},
        only=only,
        where=f"{update_path}: /update/",
        first_victim=victims.start or 0,
        seed=seed,
        secret=Secret.read(secret_path).values if secret_path else {},
        knowledge=dict(load_knowledge(path, input_shape) for path in knowledge_paths),
    )


def parameters_read(
    network: torch.nn.Module, reads: Reads, input_shape: tuple[int, ...]
) -> frozenset[str] | None:
    """Return the names of the parameters whose updates an attack reads; None for all."""
    only = reads(network, input_shape)
    check_trained(network, only or frozenset())
    return only


@dataclass(frozen=True)
class Target:
    """Network that is attacked, with the broadcast parameters in evaluation mode, and its samples.

    The origin names it in errors.
    """

    network: torch.nn.Module
    modality: str
    input_shape: tuple[int, ...]
    classes: int
    origin: str


def observation_of(
    target: Target,
    update: Update,
    granted: Mapping[str, Granted],
    *,
    only: frozenset[str] | None,
    where: str,
    first_victim: int = 0,
    seed: int,
    secret: Mapping[str, np.ndarray],
    knowledge: Mapping[str, torch.nn.Module],
) -> Observation:
    """Return everything an attacker knows, on the device of the network.

    Updates of several rounds stay in host memory, of which `Observation.of_round` moves one.

    The attacker's seed is derived from the run's. With the run's own seed it could repeat the
    random numbers of a client, such as the noise of a defence.

    The parameters of the network are frozen. The update is restricted to those in ``only``, None
    for all; ``where`` is the prefix of their names in errors.

    Raises:
        ArtifactError: the update does not fit the network.
    """
    network, like = target.network, next(target.network.parameters())
    trained = trained_parameters(network)
    shapes = {name: encoded.weight_shape for name, encoded in update.update.items()}
    check_shapes(shapes, trained, only, where, target.origin)
    network.requires_grad_(False)
    storage = like.device if update.rounds == 1 else torch.device("cpu")
    received = _tensors({name: own.decode() for name, own in update.update.items()}, storage)
    masks = {name: own.sent() for name, own in update.update.items()}
    broadcasts = _tensors(update.broadcast or {}, storage)
    _check_broadcast(broadcasts, network, trained, update.rounds, where.partition(":")[0])
    observed = Observation(
        update={name: value.to(trained[name].dtype) for name, value in received.items()},
        sent=_tensors({k: mask for k, mask in masks.items() if mask is not None}, storage),
        cells=cells_of(update.update, storage),
        bases=_tensors(_bases(update.update), storage),
        model=run_by_clients(network, update.protocol.batch_norm),
        modality=target.modality,
        input_shape=target.input_shape,
        classes=target.classes,
        protocol=update.protocol,
        broadcast=broadcasts,
        granted={
            grant: _per_victim(values, update.victims, like) for grant, values in granted.items()
        },
        victim_ids=first_victim + np.arange(update.victims),
        seed=derived_seed(seed, "attack"),
        spec=update.spec,
        secret=secret,
        knowledge={name: own.to(like).requires_grad_(False) for name, own in knowledge.items()},
    )
    return as_gradient(observed)


def _tensors(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value).to(device) for name, value in arrays.items()}


def _bases(update: Mapping[str, Encoded]) -> dict[str, np.ndarray]:
    """Return orthonormal bases of the columns of parameters that were sent as products."""
    products = {name: own for name, own in update.items() if isinstance(own, Factored)}
    return {
        name: np.linalg.qr(own.left)[0] * own.left.any(-2, keepdims=True)
        for name, own in products.items()
    }


def _per_victim(granted: Granted, victims: int, like: torch.Tensor) -> torch.Tensor:
    """Return the granted values of each victim, in the network's precision unless integers."""
    values = torch.from_numpy(granted.values).to(like.device)
    values = values.to(like) if values.is_floating_point() else values
    return values.expand(victims, *values.shape[1:]) if granted.shared else values


def _check_broadcast(
    broadcasts: Mapping[str, torch.Tensor],
    network: torch.nn.Module,
    trained: Collection[str],
    rounds: int,
    where: str,
) -> None:
    """Check that updates of several rounds include the parameters broadcast before each round."""
    if not broadcasts and rounds > 1:
        raise ArtifactError(
            f"{where}: has {rounds} rounds, but no /broadcast with the parameters before each"
        )
    state = broadcast_state(network)
    known = state.keys() & {*trained, *broadcasts} if broadcasts else ()
    for name in sorted(known):
        shape = tuple(broadcasts[name].shape) if name in broadcasts else None
        expected = (rounds, *state[name].shape)
        if shape != expected:
            raise ArtifactError(
                f"{where}: /broadcast/{name} has shape {shape}, expected {expected}; use the "
                "update and the parameters of one client"
            )


def check_shapes(
    shapes: Mapping[str, tuple[int, ...]],
    trained: Mapping[str, torch.Tensor],
    only: Collection[str] | None,
    prefix: str,
    origin: str,
) -> None:
    """Check that an update has values for every trained parameter that is used, and no others.

    Checked before anything is decoded, because a sparse parameter may declare any shape. The error
    names the first parameter that differs, after ``prefix``, and the ``origin`` of the network.
    """
    expected = {
        name: tuple(value.shape) for name, value in trained.items() if only is None or name in only
    }
    for name in {**expected, **shapes}:
        given, wanted = (
            f"has shape {known[name]}" if name in known else "is missing"
            for known in (shapes, expected)
        )
        if given != wanted:
            unused = (
                f"; if {name} had no gradient, give None for it, or freeze it "
                "(requires_grad_(False))"
            )
            raise ArtifactError(
                f"{prefix}{name} {given}, but in {origin} it {wanted}; the update does not belong "
                f"to these parameters{'' if name in shapes else unused}"
            )
