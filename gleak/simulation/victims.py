"""Rounds of the simulated victims, and the server's steps between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.encodings import Dense, Encoded
from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import LocalGradient
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sending import RoundStreams, send_update, server_step
from gleak.models.differentiation import differentiable_kernels
from gleak.models.parameters import as_inputs, trained_parameters
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream


@dataclass
class Victim:
    """State of a victim: one client, or several whose updates are summed.

    Args:
        number: index of the victim.
        inputs: Shape (N, *shape), on the device of the network.
        labels: Shape (N).
        positions: of the samples of each round, Shape (B).
        gradient: substitute for the gradient in local steps, if the defence has one.
        memories: values not sent yet, for each of its clients.
        perturbations: of each round so far.
        sent_bytes: mean over its clients, of each round so far.
    """

    number: int
    inputs: Tensor
    labels: Tensor
    positions: list[Tensor]
    gradient: LocalGradient | None
    memories: list[Memory]
    perturbations: list[float] = field(default_factory=list)
    sent_bytes: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Streams:
    """Random streams of the clients of all victims."""

    client: ClientSpec
    clients_per_update: int
    seed: int

    def draw(self, purpose: str, victim: int, number: int, member: int) -> torch.Generator:
        """Return the stream of a victim's client, ``member``, in round ``number``."""
        round_key = (number,) if self.client.rounds > 1 else ()
        member_key = (member,) if self.clients_per_update > 1 else ()
        return torch_stream(self.seed, purpose, victim, *round_key, *member_key)


@dataclass(frozen=True)
class Observed:
    """Broadcasts and updates of all rounds, and private facts about them.

    Args:
        update: by parameter, for all victims and rounds.
        broadcast: by parameter, Shape (R, *shape); None for one round.
        positions: Shape (V, R, B), positions of the samples of each round; None for one round.
        noise_multipliers: Shape (V, S), for every local step (see
            `gleak.clients.gradient_descent.LocalGradient`); None for defences of updates only.
        perturbations: Shape (V, R), see `perturbation`.
        sent_bytes: Shape (V, R), mean over the clients of a victim.
    """

    update: dict[str, Encoded]
    broadcast: dict[str, np.ndarray] | None
    positions: np.ndarray | None
    noise_multipliers: np.ndarray | None
    perturbations: np.ndarray
    sent_bytes: np.ndarray


class Simulation:
    """Victims and the server that broadcasts to them.

    Args:
        client: of the victims.
        defense: of the victims.
        network: with the first parameters broadcast; changed in place by later rounds.
        inputs: Shape (V, N, *shape).
        labels: Shape (V, N).
        seed: of the run.
    """

    def __init__(
        self,
        client: ClientSpec,
        defense: DefenseSpec,
        network: nn.Module,
        inputs: np.ndarray,
        labels: np.ndarray,
        seed: int,
    ) -> None:
        self.client, self.network = client, network
        self.defense = defense.rescaled(client.protocol.update_scale)
        self.streams = Streams(client, defense.clients_per_update, seed)
        device = next(network.parameters()).device
        self.victims = [
            Victim(
                number,
                as_inputs(network, x),
                torch.from_numpy(y).to(device),
                client.round_positions(torch_stream(seed, "members", number)),
                defense.local_gradient(),
                [{} for _ in range(defense.clients_per_update)],
            )
            for number, (x, y) in enumerate(zip(inputs, labels, strict=True))
        ]

    def run(self) -> Observed:
        several = self.client.rounds > 1
        broadcast: list[dict[str, np.ndarray]] = []
        rounds: list[dict[str, Encoded]] = []
        progress = Progress(self.client.rounds * len(self.victims), "clients")
        with progress, differentiable_kernels(self.network):
            for number in range(self.client.rounds):
                if number:
                    mean = {
                        name: torch.from_numpy(value.decode()).mean((0, 1))
                        for name, value in rounds[-1].items()
                    }
                    server_step(self.network, mean, self.client.server_rate)
                if several:
                    trained = trained_parameters(self.network).items()
                    broadcast.append({k: v.detach().cpu().numpy().copy() for k, v in trained})
                updates = []
                for victim in self.victims:
                    updates.append(self._observe(victim, number))
                    progress.advance()
                rounds.append(_join(updates, axis=0))
        victims = self.victims
        accounts = [victim.gradient.noise_multipliers for victim in victims if victim.gradient]
        positions = [torch.stack(victim.positions).numpy() for victim in victims]
        names = broadcast[0] if several else {}
        return Observed(
            update=_join(rounds, axis=1),
            broadcast={name: np.stack([one[name] for one in broadcast]) for name in names} or None,
            positions=np.stack(positions) if several else None,
            noise_multipliers=np.array(accounts) if accounts else None,
            perturbations=np.array([victim.perturbations for victim in victims]),
            sent_bytes=np.array([victim.sent_bytes for victim in victims]),
        )

    def _observe(self, victim: Victim, number: int) -> dict[str, Encoded]:
        positions = victim.positions[number].to(victim.labels.device)
        shares = split_among_clients(positions, self.defense.clients_per_update)
        sent, computed = zip(
            *(self._send(victim, share, number, member) for member, share in enumerate(shares)),
            strict=True,
        )
        observed = sent[0]
        if len(sent) > 1:
            observed = {
                name: Dense(np.mean([update[name].decode() for update in sent], axis=0))
                for name in observed
            }
        victim.perturbations.append(perturbation(observed, computed))
        bits = np.mean([sum(value.bits for value in update.values()) for update in sent])
        victim.sent_bytes.append(float(bits) / 8)
        return observed

    def _send(
        self, victim: Victim, share: Tensor, number: int, member: int
    ) -> tuple[dict[str, Encoded], dict[str, Tensor]]:
        """Compute the update of one client of a victim, as sent and without its defence."""
        samples = victim.inputs[share], victim.labels[share]
        stream = partial(self.streams.draw, victim=victim.number, number=number, member=member)
        sent, plain = send_update(
            self.defense,
            partial(self.client.compute, self.network, *samples, victim.gradient),
            self.network,
            *samples,
            RoundStreams(stream("client"), stream("defense")),
            victim.memories[member],
        )
        if victim.gradient is not None:
            with drawing_from(stream("client")):
                plain = self.client.compute(self.network, *samples)
        on_cpu = {name: value.detach().cpu() for name, value in plain.items()}
        return sent, self.defense.at_sent_norm(on_cpu)


def split_among_clients(values: Tensor, clients_per_update: int) -> Tensor:
    """Split a victim's samples equally among its clients; (B, ...) to (clients, share, ...)."""
    return values.unflatten(0, (clients_per_update, -1))


def _join(updates: list[dict[str, Encoded]], axis: int) -> dict[str, Encoded]:
    """Concatenate updates along the axis of victims, 0, or rounds, 1."""
    if len(updates) == 1:
        return updates[0]  # not copied, since it may be very large
    values: dict[str, list[Any]] = {name: [one[name] for one in updates] for name in updates[0]}
    return {name: type(each[0]).stack(each, axis) for name, each in values.items()}


def perturbation(sent: Mapping[str, Encoded], computed: Sequence[Mapping[str, Tensor]]) -> float:
    """Compute ||sent - computed|| / ||computed|| of one victim in one round.

    Args:
        sent: update observed by the server; decoded Shape (1, 1, *shape).
        computed: update of each client without the defence, but with the norm at which it is sent
            (`DefenseSpec.at_sent_norm`); Shape (1, *shape).
    """
    decoded = {name: torch.from_numpy(value.decode()[0]) for name, value in sent.items()}
    return relative_error(decoded, mean_of(computed))


def mean_of(updates: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Compute the mean of updates by parameter."""
    if len(updates) == 1:
        return updates[0]
    return {name: torch.stack([each[name] for each in updates]).mean(0) for name in updates[0]}


def relative_error(values: Mapping[str, Tensor], true: Mapping[str, Tensor]) -> float:
    """Compute the L2 norm of the difference over that of the true values; 0 if both are zero."""
    error = sum(float((values[name] - value).square().sum()) for name, value in true.items())
    power = sum(float(value.square().sum()) for value in true.values())
    return sqrt(error / max(power, torch.finfo(torch.float32).tiny))
