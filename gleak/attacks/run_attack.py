"""Workflow stage that runs an attack and writes ``reconstruction.h5``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.granted import Granted
from gleak.artifacts.model import Model, Secret
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.update import Update
from gleak.attacks.base import AttackSpec
from gleak.core.errors import ArtifactError
from gleak.knowledge.loading import load_knowledge
from gleak.models.broadcast import load_network, read_model_spec
from gleak.models.differentiation import differentiable_kernels
from gleak.models.parameters import check_trained, trained_parameters
from gleak.observation import Observation
from gleak.runtime.checkpointing import FILE, Journal, origin_of
from gleak.runtime.device import choose_device
from gleak.runtime.seeding import derived_seed

ALL = slice(None)
PROTOCOL = ("batch_size", "mini_batch", "local_steps", "local_lr", "loss", "content", "epochs")
"""Fields of an update that describe the client's training, named as in `Observation`."""
Reads = Callable[[nn.Module, tuple[int, ...]], frozenset[str] | None]
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
    without the interruption.

    Args:
        spec: the attack.
        update_path: ``update.h5``.
        parameters_path: ``model.h5`` or ``parameters.h5``, as broadcast.
        granted_paths: files of the grants that the attack needs, by name.
        output: ``reconstruction.h5``.
        secret_path: ``secret.h5``, if the attack needs it.
        knowledge_paths: files ``knowledge.h5`` that the attack needs.
        victims: the victims of this shard; all by default.
        cell_victims: number of victims of the cell, if this is a shard.
        seed: seed of the run.
        device: "auto", "cpu" or "cuda".

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
    specs = [spec, read_model_spec(parameters_path)]
    origin = origin_of(__name__, specs, files, [victims.start, victims.stop], seed)
    with Journal(output.with_name(FILE), origin) as journal:
        reconstruct(spec, replace(observation, journal=journal), seed).write(output)
    return journal.earlier


def reconstruct(spec: AttackSpec, observation: Observation, seed: int) -> Reconstruction:
    """Run an attack on an observation and add spec, seed and modality to the reconstruction.

    Args:
        spec: the attack.
        observation: everything the attacker knows.
        seed: seed of the run.
    """
    with differentiable_kernels(observation.model):
        found = spec.reconstruct(observation)
    return replace(
        found,
        spec=f"{observation.spec}/{spec}",
        seed=seed,
        modality=observation.modality,
    )


def everything(network: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Return None: all parameters are used."""


def observe(
    update_path: Path,
    parameters_path: Path,
    granted_paths: Mapping[str, Path],
    *,
    reads: Reads = everything,
    secret_path: Path | None = None,
    knowledge_paths: Iterable[Path] = (),
    victims: slice = ALL,
    seed: int,
    device: str = "auto",
) -> Observation:
    """Read everything an attacker knows from its files; arguments as in `attack`.

    ``reads`` selects the parameters whose updates are loaded.

    The attacker's seed is derived from the run's. With the run's own seed it could repeat the
    random numbers of a client, such as the noise of a defence.

    Raises:
        ArtifactError: a bad file, an update that does not fit the parameters, or knowledge of
            samples of another shape.
        IncompatibleError: the attack uses the update of a frozen parameter.
    """
    broadcast = Model.read(parameters_path)
    target = choose_device(device)
    network = load_network(broadcast, str(parameters_path)).to(target)
    input_shape = tuple(map(int, broadcast.input_shape))
    trained = trained_parameters(network)
    only = reads(network, input_shape)
    check_trained(network, only or frozenset())
    network.requires_grad_(False)
    update = Update.read(update_path, only=only, victims=victims)
    _check_origin(update, trained, only, f"{update_path}", f"{parameters_path}")
    decoded = {name: encoded.decode() for name, encoded in update.update.items()}
    received = _tensors(decoded, target)
    broadcasts = _tensors(update.broadcast or {}, target)
    _check_broadcast(broadcasts, trained, update.rounds, f"{update_path}")
    return Observation(
        update=received,
        sent=_sent_masks(update, target),
        model=network,
        modality=broadcast.modality,
        input_shape=input_shape,
        classes=broadcast.classes,
        **{name: getattr(update, name) for name in PROTOCOL},
        broadcast=broadcasts,
        granted={
            grant: _per_victim(Granted.read(path, victims=victims), update.victims, target)
            for grant, path in granted_paths.items()
        },
        victim_ids=(victims.start or 0) + np.arange(update.victims),
        seed=derived_seed(seed, "attack"),
        spec=update.spec,
        secret=Secret.read(secret_path).values if secret_path else {},
        knowledge=_networks(knowledge_paths, input_shape, target),
    )


def _tensors(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value).to(device) for name, value in arrays.items()}


def _networks(
    paths: Iterable[Path], input_shape: tuple[int, ...], device: torch.device
) -> dict[str, nn.Module]:
    """Load the networks of the attacker's knowledge, by name."""
    loaded = (load_knowledge(path, input_shape) for path in paths)
    return {name: network.to(device).requires_grad_(False) for name, network in loaded}


def _per_victim(granted: Granted, victims: int, device: torch.device) -> Tensor:
    """Return the granted values of each victim; shared ones are stored only once."""
    values = torch.from_numpy(granted.values).to(device)
    return values.expand(victims, *values.shape[1:]) if granted.shared else values


def _sent_masks(update: Update, device: torch.device) -> dict[str, Tensor]:
    """Return masks of the values that were sent, for parameters that were sent in part."""
    masks = {name: encoded.sent() for name, encoded in update.update.items()}
    return _tensors({name: mask for name, mask in masks.items() if mask is not None}, device)


def _check_broadcast(
    broadcasts: Mapping[str, Tensor], trained: Mapping[str, Tensor], rounds: int, where: str
) -> None:
    """Check that updates of several rounds include the parameters broadcast before each round."""
    if not broadcasts and rounds > 1:
        raise ArtifactError(
            f"{where}: has {rounds} rounds, but no /broadcast with the parameters before each"
        )
    for name, parameter in trained.items() if broadcasts else ():
        found = tuple(broadcasts[name].shape) if name in broadcasts else None
        if found != (rounds, *parameter.shape):
            raise ArtifactError(
                f"{where}: /broadcast/{name} has shape {found}, expected "
                f"{(rounds, *parameter.shape)}; use the update and the parameters of one client"
            )


def _check_origin(
    update: Update,
    trained: Mapping[str, Tensor],
    only: frozenset[str] | None,
    where: str,
    origin: str,
) -> None:
    """Check that an update has values for every trained parameter that is used, and no others.

    Checked before anything is decoded, because a sparse parameter may declare any shape.
    """
    expected = {
        name: tuple(value.shape) for name, value in trained.items() if only is None or name in only
    }
    found = {name: encoded.weight_shape for name, encoded in update.update.items()}
    for name in expected | found:
        if found.get(name) != expected.get(name):
            raise ArtifactError(
                f"{where}: /update/{name} has shape {found.get(name)}, but in {origin} it has "
                f"{expected.get(name)}; the update does not belong to these parameters"
            )
