"""What victims send, round after round, and how the server goes on between the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.encodings import Dense, Encoded
from gleak.clients.base import ClientSpec
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sending import RoundStreams, send_update
from gleak.local_training.base import LocalGradient
from gleak.models.kernels import differentiable_kernels
from gleak.models.parameters import trained_parameters
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.simulation.perturbation import perturbation


@dataclass
class Victim:
    """One client, or several whose updates the server sees in sum, between their rounds.

    Args:
        number: its place among the victims.
        inputs: Shape (N, *shape), on the device of the network.
        labels: Shape (N).
        members: positions of the samples behind each round, Shape (B).
        gradient: what its defence has it take its steps by, with an account of them; None: nothing.
        memories: what each client's defence kept back so far.
        perturbations: how much its defence changed what it sent, of each round so far.
    """

    number: int
    inputs: Tensor
    labels: Tensor
    members: list[Tensor]
    gradient: LocalGradient | None
    memories: list[Memory]
    perturbations: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Observed:
    """All that goes over the wire, and what is known of its making.

    Args:
        update: of every parameter, for all victims and rounds.
        broadcast: of every parameter, Shape (R, *shape); None where there is one round.
        members: Shape (V, R, B), which samples stand behind a round; None where there is one.
        noise_multipliers: Shape (V, S), of every local step (see
            `gleak.local_training.base.LocalGradient`); None of defences that leave the steps alone.
        perturbations: Shape (V, R), see `gleak.simulation.perturbation`.
    """

    update: dict[str, Encoded]
    broadcast: dict[str, np.ndarray] | None
    members: np.ndarray | None
    noise_multipliers: np.ndarray | None
    perturbations: np.ndarray


class Simulation:
    """Victims that train from what a server broadcasts, and the server.

    Args:
        client: how victims train.
        defense: what they do to an update.
        network: holds the parameters that are broadcast first; changed in place by later rounds.
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
        self.client, self.network, self.seed = client, network, seed
        self.defense = defense.rescaled(client.update_scale)
        place = next(network.parameters()).device
        self.victims = [
            Victim(
                number,
                torch.from_numpy(held).to(place),
                torch.from_numpy(told).to(place),
                client.round_positions(torch_stream(seed, "members", number)),
                defense.local_gradient(),
                [{} for _ in range(defense.clients_per_update)],
            )
            for number, (held, told) in enumerate(zip(inputs, labels, strict=True))
        ]

    def run(self) -> Observed:
        """All rounds."""
        several, broadcast, rounds = self.client.rounds > 1, [], []
        progress = Progress(self.client.rounds * len(self.victims), "clients")
        with progress, differentiable_kernels(self.network):
            for number in range(self.client.rounds):
                if several:
                    broadcast.append(self._parameters())
                sent = []
                for victim in self.victims:
                    sent.append(self._send(victim, number))
                    progress.advance()
                rounds.append(_joined(sent, axis=0))
                if number + 1 < self.client.rounds:
                    self._go_on(rounds[-1])
        return Observed(
            update=_joined(rounds, axis=1),
            broadcast=_stacked(broadcast) if several else None,
            members=self._members() if several else None,
            noise_multipliers=self._noise_multipliers(),
            perturbations=np.array([victim.perturbations for victim in self.victims]),
        )

    def _send(self, victim: Victim, number: int) -> dict[str, Encoded]:
        """One victim's update of one round, as the server sees it."""
        some = victim.members[number].to(victim.labels.device)
        sent, computed = zip(
            *(
                self._send_one(victim, own, number, party)
                for party, own in enumerate(deal(some, self.defense.clients_per_update))
            ),
            strict=True,
        )
        seen = sent[0] if len(sent) == 1 else _mean(sent)
        victim.perturbations.append(perturbation(seen, computed))
        return seen

    def _send_one(
        self, victim: Victim, own: Tensor, number: int, party: int
    ) -> tuple[dict[str, Encoded], dict[str, Tensor]]:
        """What one client computes of its own samples, as it sends it and without its defence.

        Args:
            victim: that it belongs to.
            own: positions of its samples.
            number: of the round.
            party: which of the victim's clients it is, counted from 0.
        """
        held = victim.inputs[own], victim.labels[own]
        whose = self.client, self.seed, victim.number, number
        parties = party_of(party, self.defense.clients_per_update)
        sent, plain = send_update(
            self.defense,
            partial(self.client.compute, self.network, *held, victim.gradient),
            self.network,
            *held,
            RoundStreams(
                stream_of("client", *whose, *parties), stream_of("defense", *whose, *parties)
            ),
            victim.memories[party],
        )
        if victim.gradient is not None:
            with drawing_from(stream_of("client", *whose, *parties)):
                plain = self.client.compute(self.network, *held)
        return sent, self.defense.at_sent_norm(_on_cpu(plain))

    @torch.no_grad()
    def _go_on(self, sent: dict[str, Encoded]) -> None:
        """Go along the mean of what the server reads in the victims' updates as gradients."""
        rate = self.client.server_rate
        for name, parameter in trained_parameters(self.network).items():
            mean = torch.from_numpy(sent[name].decode()).mean((0, 1))
            parameter.sub_(rate * mean.to(parameter))

    def _parameters(self) -> dict[str, np.ndarray]:
        return {
            name: value.detach().cpu().numpy().copy()
            for name, value in trained_parameters(self.network).items()
        }

    def _noise_multipliers(self) -> np.ndarray | None:
        accounts = [victim.gradient.noise_multipliers for victim in self.victims if victim.gradient]
        return np.array(accounts) if accounts else None

    def _members(self) -> np.ndarray:
        return np.stack([torch.stack(victim.members).numpy() for victim in self.victims])


def stream_of(
    purpose: str, client: ClientSpec, seed: int, victim: int, number: int, *party: int
) -> torch.Generator:
    """A victim's random numbers for one purpose in a round; where there are several, one each.

    Args:
        purpose: what they are for.
        client: how the victim trains.
        seed: of the run.
        victim: its number.
        number: of the round.
        party: see `party_of`.
    """
    of_round = (number,) if client.rounds > 1 else ()
    return torch_stream(seed, purpose, victim, *of_round, *party)


def party_of(party: int, summed: int) -> tuple[int, ...]:
    """What tells the streams of a victim's clients apart; nothing where it is one client."""
    return (party,) if summed > 1 else ()


def deal(values: Tensor, summed: int) -> Tensor:
    """A victim's samples by the clients whose sum it is; Shape (B, ...) to (clients, share, ...).

    They have equal shares, see `gleak.defenses.secure_aggregation`.
    """
    return values.unflatten(0, (summed, -1))


def _on_cpu(update: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in update.items()}


def _mean(sent: Sequence[dict[str, Encoded]]) -> dict[str, Encoded]:
    """The mean of what several clients sent, as the server reads it."""
    return {
        name: Dense(np.mean([update[name].decode() for update in sent], axis=0)) for name in sent[0]
    }


def _joined(parts: list[dict[str, Encoded]], axis: int) -> dict[str, Encoded]:
    """Each parameter along the axis of victims, 0, or rounds, 1; a defence encodes in one way."""
    return {name: _stack([part[name] for part in parts], axis) for name in parts[0]}


def _stack(parts: list[Any], axis: int) -> Encoded:
    """One part is taken as it is, for it may fill half of the memory."""
    encoded: Encoded = parts[0] if len(parts) == 1 else type(parts[0]).stack(parts, axis)
    return encoded


def _stacked(rounds: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([parameters[name] for parameters in rounds]) for name in rounds[0]}
