"""Knowledge of a server about the client whose update it attacks, and checks of attacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api import tensors
from gleak.api.given_specs import ClientLike, as_spec
from gleak.api.tensors import (
    ArrayLike,
    Labels,
    Shape,
    checked_count,
    checked_inputs,
    checked_labels,
    tensor_of,
)
from gleak.api.user_network import GivenNetwork, describe_samples, modality_of
from gleak.artifacts.encodings import Dense, Encoded, Sparse
from gleak.artifacts.model import Knowledge, Secret
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import GRANTS, Granted, Update
from gleak.attacks import run_attack
from gleak.attacks.attacker import AttackerSpec
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError, nearest
from gleak.core.registry import load, parse
from gleak.crafting.base import CraftingSpec
from gleak.defenses.base import DefenseSpec, NoDefense
from gleak.defenses.secure_aggregation import SecureAggregation
from gleak.defenses.sending import encode_received
from gleak.knowledge.loading import load_knowledge
from gleak.models.batch_norm import batch_norm_passes
from gleak.models.layer_search import first_dense_layer
from gleak.models.parameters import trained_parameters

WHERE, ORIGIN = "gradients: ", "the model"
NO_DEFENSE = NoDefense()
AUXILIARY = ("auxiliary_inputs", "auxiliary_labels")


@dataclass(frozen=True)
class Setting:
    """Knowledge of a server about the client whose update it attacks.

    Args:
        network: with the broadcast parameters, in evaluation mode.
        shape: of a sample.
        classes: number of logits.
        client: batch size, loss and local steps.
        secret: of a server that crafted the parameters; None for an honest one.
        defense: of the client, or of the clients of a sum.
    """

    network: nn.Module
    shape: Shape
    classes: int
    client: ClientSpec
    secret: Secret | None = None
    defense: DefenseSpec = NO_DEFENSE

    @property
    def protocol(self) -> Protocol:
        """Training of the client, or of the clients of a sum, as the server knows it."""
        return self.defense.protocol_of(self.client)

    def update(
        self, values: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray] | None = None
    ) -> Update:
        """Return checked gradients as the update of a victim.

        Masks are 1 where it sent values; of other parameters the defence says what was sent.
        """
        shapes = {name: value.shape for name, value in values.items()}
        run_attack.check_shapes(shapes, trained_parameters(self.network), None, WHERE, ORIGIN)
        sent = masks or {}
        if unknown := sorted(sent.keys() - values.keys(), key=str):
            raise ArtifactError(
                f"sent: unknown parameter {unknown[0]!r}; {nearest(unknown[0], list(values))}"
            )
        encoded = self._encoded(values)
        for name, mask in sent.items():
            if type(encoded[name]) not in (Dense, Sparse):
                raise SpecError(
                    f"sent: {name} is sent in a code by defense {self.defense}; leave its mask out"
                )
            encoded[name] = _masked(name, values[name], mask)
        update = Update(protocol=self.protocol, update=encoded)
        update.validate("gradients")
        scale = self.client.protocol.update_scale
        for name, value in values.items() if scale != 1 else ():
            with np.errstate(all="ignore"):
                gradient = value / scale
            if not np.isfinite(gradient).all() or (value.any() and not gradient.any()):
                raise ArtifactError(
                    f"gradients: {name} over the learning rate and the number of steps is out of "
                    f"the range of {value.dtype}; check local_lr and local_steps"
                )
        return update

    def _encoded(self, values: Mapping[str, np.ndarray]) -> dict[str, Encoded]:
        """Encode parameters, without axes of victim and round, as the defence sends them."""
        rows = {name: torch.from_numpy(value)[None] for name, value in values.items()}
        try:
            return encode_received(self.defense, rows)
        except ArtifactError as error:
            raise ArtifactError(f"gradients: {error}") from None

    def granted(self, given: Mapping[str, ArrayLike], labels: Labels | None) -> dict[str, Granted]:
        """Return the checked grants by name."""
        if not isinstance(given, Mapping):
            raise SpecError(
                f"grants is a {type(given).__name__}; give a mapping by name, such as "
                "{'mean_input': ...}"
            )
        if unknown := sorted(given.keys() - set(GRANTS), key=str):
            raise SpecError(f"unknown grant {unknown[0]!r}; {nearest(unknown[0], GRANTS)}")
        values = {name: self._grant(name, value) for name, value in given.items()}
        if len({len(values[name]) for name in AUXILIARY if name in values}) > 1:
            raise ArtifactError(
                f"grants: {len(values['auxiliary_inputs'])} auxiliary_inputs and "
                f"{len(values['auxiliary_labels'])} auxiliary_labels; give one label for each"
            )
        if labels is not None:
            if "labels" in values:
                raise SpecError("labels are given twice: as labels, and in grants; leave one out")
            values["labels"] = self._grant("labels", labels)
        return {
            name: Granted(grant=name, values=value[None].numpy()) for name, value in values.items()
        }

    def _grant(self, name: str, given: Any) -> Tensor:
        samples, place = self.client.batch_size, f"grant {name}"
        match name:
            case "labels":
                return checked_labels(given, samples, self.classes).sort().values
            case "auxiliary_labels":
                return checked_labels(given, None, self.classes, place)
            case "auxiliary_inputs":
                return checked_inputs(given, self.shape, place)
            case "mean_input":
                mean = tensor_of(place, given)
                if mean.shape != self.shape:
                    raise ArtifactError(
                        f"{place}: shape {tuple(mean.shape)}, expected samples of {self.shape}"
                    )
                return checked_inputs(mean[None], self.shape, place)[0]
            case "batch_norm_statistics":
                return self._statistics(tensor_of(place, given), place)
            case "class_sample":
                values = checked_inputs(given, self.shape, place)
            case _:
                values = self._embeddings(tensor_of(place, given), place)
        if len(values) != samples:
            raise ArtifactError(
                f"{place}: {len(values)} rows, expected {samples}: one for each sample of the "
                "client"
            )
        return values

    def _embeddings(self, given: Tensor, place: str) -> Tensor:
        """Check the inputs of the network's first dense layer."""
        layer = first_dense_layer(self.network, self.shape)
        if layer is None:
            raise IncompatibleError(f"{place}: this model has no dense layer; leave the grant out")
        features = self.network.get_submodule(layer.name).in_features
        if given.ndim != 2 or given.shape[1] != features or not given.isfinite().all():
            raise ArtifactError(
                f"{place}: shape {tuple(given.shape)}, expected finite values of shape "
                f"{(self.client.batch_size, features)}: the inputs of layer {layer.name!r}"
            )
        return tensors.floating(given)

    def _statistics(self, given: Tensor, place: str) -> Tensor:
        """Check statistics of batch normalisation against the network's layers."""
        channels = [layer.num_features for layer in batch_norm_passes(self.network, self.shape)]
        if not channels:
            raise IncompatibleError(
                f"{place}: no batch normalisation layer runs in this model, so its clients have no "
                "such statistics; leave the grant out"
            )
        if given.shape != (2, sum(channels)):
            raise ArtifactError(
                f"{place}: shape {tuple(given.shape)}, expected {(2, sum(channels))}: means and "
                f"variances of layers of {channels} channels in a row, as "
                "gleak.batch_norm_statistics returns them"
            )
        if not given.isfinite().all() or (given[1] < 0).any():
            raise ArtifactError(f"{place}: values that are not finite, or negative variances")
        return given.float()

    def check(self, spec: AttackerSpec, granted: frozenset[str]) -> None:
        """Check that an attack can be run; an error names attacks that can be."""
        try:
            self._check(spec, granted)
        except IncompatibleError as error:
            others = [name for name, cls in load(spec.kind).items() if self._serves(cls(), granted)]
            advice = f"; attacks that can be run here: {', '.join(others)}" if others else ""
            raise IncompatibleError(f"{error}{advice}") from None
        if self.secret and spec.crafting:
            given = (self.secret, self.network, self.shape, self.classes)
            crafting_of(self.secret).check_secret(*given)

    def _check(self, spec: AttackerSpec, granted: frozenset[str]) -> None:
        samples = describe_samples(self.shape, self.classes)
        spec.check(samples, GivenNetwork(), self.client)
        spec.check_defense(self.client, self.defense)
        spec.check_crafting(crafting_of(self.secret))
        run_attack.check_granted(spec, granted)
        try:
            self.client.check_network(self.network, self.shape)
            self.defense.check_network(self.network, self.shape)
            network = self.client.run(self.network)
            spec.check_network(network, self.shape, self.classes, self.client)
            self._check_clients()
        except IncompatibleError as error:
            raise IncompatibleError(f"{spec.kind} {spec} on this model: {error}") from None

    def _check_clients(self) -> None:
        """Check that a server made parameters for all clients of the sum."""
        own = crafting_of(self.secret).client_parameters(self.network) or {}
        number = self.defense.clients_per_update
        for values in own.values():
            if number > len(values):
                raise IncompatibleError(
                    f"the server made parameters for {len(values)} clients, but clients={number} "
                    "are summed; craft a model with more groups of kernels, or sum fewer clients"
                )

    def _serves(self, spec: Any, granted: frozenset[str]) -> bool:
        try:
            self._check(spec, granted)
            return not spec.knowledge
        except IncompatibleError:
            return False

    def observe(
        self,
        spec: AttackerSpec,
        update: Update,
        granted: Mapping[str, Granted],
        knowledge: Mapping[str, nn.Module],
        seed: int,
    ) -> Observation:
        """Return what the attack is given: only the parameters and the grants that it names."""
        only = run_attack.parameters_read(self.network, spec.reads, self.shape)
        read = {name: each for name, each in update.update.items() if only is None or name in only}
        network = self.network, modality_of(self.shape), self.shape, self.classes, ORIGIN
        return run_attack.observation_of(
            run_attack.Target(*network),
            replace(update, update=read),
            {name: granted[name] for name in sorted(spec.grants & granted.keys())},
            only=only,
            where=WHERE,
            seed=seed,
            secret=self.secret.values if self.secret and spec.crafting else {},
            knowledge=knowledge,
        )


def as_known(
    given: str | DefenseSpec, client: ClientLike, clients: SupportsIndex | None, one: ClientSpec
) -> DefenseSpec:
    """Return the defence that the server knows, of a sum if several clients are attacked.

    Args:
        given: the defence.
        client: as it was given.
        clients: number of clients of a sum, as it was given; None: not given.
        one: the spec of the client.

    Raises:
        SpecError: the number is not positive, or that of another sum; a `Protocol` of clients under
            another defence.
        IncompatibleError: the defence does not support the client.
    """
    defense: DefenseSpec = as_spec("defense", given)
    protocol = client if isinstance(client, Protocol) else None
    number = None if clients is None else checked_count("clients", clients)
    stated = None if protocol is None else protocol.clients
    if number is not None and stated not in (None, number):
        raise SpecError(f"clients = {number}, but {stated} by the protocol; leave one out")
    members = number or stated
    if members is not None and members > 1 and isinstance(defense, NoDefense):
        defense = SecureAggregation(clients=members)
    if members not in (None, defense.clients_per_update):
        raise SpecError(
            f"clients: {members} in the sum, but defense {defense} is that of "
            f"{defense.clients_per_update}; for a defence of each give "
            f"defense='secure_aggregation+clients={members}+each=...'"
        )
    if protocol is not None:
        _check_stated(protocol, defense)
    defense.check(one)
    return defense


def _check_stated(protocol: Protocol, defense: DefenseSpec) -> None:
    """Raise `SpecError` if a protocol was stated under another defence."""
    for name in ("clipping", "pruning", "norm_if_clipped"):
        stated, own = getattr(protocol, name), getattr(defense, name)
        is_older = name == "norm_if_clipped" and stated is None
        if stated != own and not is_older:
            raise SpecError(
                f"client: its protocol has {name} {stated}, but defense {defense} has {own}; give "
                "the defence of the clients, which the spec of an update.h5 names"
            )


def _masked(name: str, value: np.ndarray, mask: np.ndarray) -> Sparse:
    """Return the gradient of a parameter of which some values were sent, in one round."""
    if not np.isin(mask, (0, 1)).all():
        raise ArtifactError(f"sent: {name}: values other than true and false, 1 and 0")
    if mask.shape != value.shape:
        raise ArtifactError(
            f"sent: {name}: a mask of shape {mask.shape} for a gradient of shape {value.shape}"
        )
    if value[mask == 0].any():
        raise ArtifactError(
            f"sent: {name}: the mask leaves out values that are not zero; set values that were not "
            "sent to zero, or correct the mask"
        )
    (positions,) = mask.ravel().nonzero()
    entries = value.ravel()[positions]
    return Sparse(positions[None, None], entries[None, None], np.array(value.shape))


def crafting_of(secret: Secret | None) -> CraftingSpec:
    """Return the crafting that made a secret; the honest server without one."""
    name = secret.spec.rpartition("/")[2] if secret else "honest"
    crafting: CraftingSpec = parse("crafting", name)
    return crafting


def load_networks(spec: AttackSpec, paths: Iterable[Path], shape: Shape) -> dict[str, nn.Module]:
    """Load the networks that an attack's spec names, by name, for samples of this shape."""
    files = {Knowledge.read(path, only=()).knowledge: path for path in paths}
    for needed in spec.knowledge:
        if str(needed.trained) not in files:
            raise IncompatibleError(
                f"attack {spec} needs the network {needed.trained}, trained on public data; give "
                f"its file, results/knowledge/<dataset>/{needed.trained}/knowledge.h5 of the "
                f"workflow (given: {', '.join(files) or 'none'})"
            )
    used = [files[str(needed.trained)] for needed in spec.knowledge]
    return dict(load_knowledge(path, shape) for path in used)
