"""Rounds of the simulated victims, the server's steps between them, and the drift of clients.

Drift is the difference between several local steps and one step on the whole batch. Attacks that
treat an update as one gradient of all its samples (AGIC Equation 4) assume that there is little.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.encodings import Encoded
from gleak.artifacts.protocol import Loss
from gleak.clients.base import ClientSpec
from gleak.clients.gradient_descent import LocalGradient, gradients
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.defenses.sending import RoundStreams, send_update, server_step
from gleak.models.differentiation import differentiable_kernels
from gleak.models.parameters import Tensors, as_inputs, broadcast_state, trained_parameters
from gleak.models.stochastic import deterministic_copy
from gleak.runtime.checkpointing import Journal
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import derived_seed, drawing_from, torch_stream
from gleak.training.base import InitialisedSpec

MAX_DRIFT = 0.5
TINY = np.finfo(np.float32).tiny
log = logging.getLogger(__name__)


@dataclass
class Victim:
    """State of a victim: one client, or several whose updates are summed.

    The positions of samples, Shape (B), the perturbations and the bytes sent are those of each
    round; memories are those of each client.
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
        victim += self.client.first * self.client.repeats
        return torch_stream(self.seed, purpose, victim, *round_key, *member_key)


@dataclass(frozen=True)
class Observed:
    """Broadcasts and updates of all rounds, and private facts about them.

    Args:
        update: by parameter, for all victims and rounds.
        broadcast: by parameter or buffer, Shape (R, *shape); None for one round.
        positions: of the samples that the steps take, Shape (V, R, B), where one that is left out
            is replaced by another; None for one round that takes all.
        noise_multipliers: see `LocalGradient`, Shape (V, S); None for defences of updates only.
        perturbations: see `perturbation`, Shape (V, R).
        sent_bytes: mean over the clients of a victim, Shape (V, R).
    """

    update: dict[str, Encoded]
    broadcast: dict[str, np.ndarray] | None
    positions: np.ndarray | None
    noise_multipliers: np.ndarray | None
    perturbations: np.ndarray
    sent_bytes: np.ndarray


class Simulation:
    """Victims and the server that broadcasts to them.

    Shapes: inputs (V, N, *shape), labels (V, N). Later rounds change the network in place; those
    before which others train it (`ClientSpec.training_before`) need their dataset. The clients of a
    sum may be sent parameters of their own, by name, Shape (clients, *shape), which replace those
    of the network before each trains.
    """

    def __init__(
        self,
        client: ClientSpec,
        defense: DefenseSpec,
        network: nn.Module,
        inputs: np.ndarray,
        labels: np.ndarray,
        seed: int,
        dataset: Dataset | None = None,
        client_parameters: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self.client_parameters = client_parameters
        self.client, self.network, self.dataset, self.seed = client, network, dataset, seed
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
                    self._train_others(number)
                if several:
                    state = broadcast_state(self.network).items()
                    broadcast.append({k: v.detach().cpu().numpy().copy() for k, v in state})
                updates = []
                for victim in self.victims:
                    updates.append(self._observe(victim, number))
                    progress.advance()
                rounds.append(join_updates(updates, axis=0))
        victims = self.victims
        accounts = [victim.gradient.noise_multipliers for victim in victims if victim.gradient]
        positions = np.stack([self._taken(victim) for victim in victims])
        takes_all = all(len(np.unique(own)) == self.client.batch_size for own in positions)
        names = broadcast[0] if several else {}
        return Observed(
            update=join_updates(rounds, axis=1),
            broadcast={name: np.stack([one[name] for one in broadcast]) for name in names} or None,
            positions=positions if several or not takes_all else None,
            noise_multipliers=np.array(accounts) if accounts else None,
            perturbations=np.array([victim.perturbations for victim in victims]),
            sent_bytes=np.array([victim.sent_bytes for victim in victims]),
        )

    def _train_others(self, number: int) -> None:
        """Train the network before a round, in place, as others do; layers keep their modes."""
        training = self.client.training_before(number)
        if training is None:
            return
        assert isinstance(training, InitialisedSpec), "checked by the client"
        assert self.dataset is not None, "given where others train"
        modes = [(layer, layer.training) for layer in self.network.modules()]
        seed = derived_seed(self.seed, f"training before round {number}")
        training.fit(self.network, self.dataset, seed, Journal().part())
        for layer, mode in modes:
            layer.training = mode

    def _taken(self, victim: Victim) -> np.ndarray:
        """Return the positions of the samples that a victim's steps take, Shape (R, B)."""
        taken: list[Tensor] = []
        for number, positions in enumerate(victim.positions):
            shares = split_among_clients(positions, self.defense.clients_per_update)
            for member, share in enumerate(shares):
                stream = self.streams.draw("client", victim.number, number, member)
                taken.append(taken_samples(self.client, victim.inputs[share], share, stream))
        return torch.cat(taken).view(len(victim.positions), -1).numpy()

    def _observe(self, victim: Victim, number: int) -> dict[str, Encoded]:
        positions = victim.positions[number].to(victim.labels.device)
        shares = split_among_clients(positions, self.defense.clients_per_update)
        sent, computed = zip(
            *(self._send(victim, share, number, member) for member, share in enumerate(shares)),
            strict=True,
        )
        observed = sent[0]
        if self.defense.clients_per_update > 1:
            decoded = (
                {name: torch.from_numpy(value.decode()[0]) for name, value in update.items()}
                for update in sent
            )
            mean = {**mean_of(decoded, len(sent))}
            server = self.streams.draw("server defense", victim.number, number, 0)
            observed = {
                name: encode(value)
                for name, value in self.defense.protect_mean(mean, computed, server).items()
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
        with torch.no_grad():
            for name, values in self.client_parameters.items():
                self.network.get_parameter(name).copy_(torch.from_numpy(values[member]))
        stream = partial(self.streams.draw, victim=victim.number, number=number, member=member)
        sent, plain = send_update(
            self.defense,
            partial(self.client.compute, self.network, *samples, victim.gradient),
            self.network,
            _fed(self.client, samples[0], stream("client")),
            samples[1],
            RoundStreams(stream("client"), stream("defense")),
            victim.memories[member],
        )
        if victim.gradient is not None:
            with drawing_from(stream("client")):
                plain = self.client.compute(self.network, *samples)
        on_cpu = {name: value.detach().cpu() for name, value in plain.items()}
        return sent, self.defense.at_sent_norm(on_cpu)


class TakenSamples(LocalGradient):
    """Substitute for gradients that records the labels of each step's samples, Shape (B) each."""

    def __init__(self) -> None:
        self.noise_multipliers = []
        self.labels: list[Tensor] = []

    def __call__(
        self, model: nn.Module, parameters: Tensors, inputs: Tensor, labels: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensors]:
        self.labels.append(labels)
        return inputs.new_zeros(()), {k: torch.zeros_like(v) for k, v in parameters.items()}


def taken_samples(
    client: ClientSpec, inputs: Tensor, positions: Tensor, stream: torch.Generator
) -> Tensor:
    """Return the positions of a client's samples, (B), where those that no step takes are replaced.

    A mini-batch that is too small may be left out (``drop_last``), and there may be too few steps.
    In place of such a sample is one that is taken. The stream is that of the client's update.
    """
    protocol = client.protocol
    if protocol.mini_batch * protocol.local_steps >= len(positions) and not protocol.drop_last:
        return positions
    record, network = TakenSamples(), nn.utils.skip_init(nn.Linear, 1, 1, device=inputs.device)
    with drawing_from(stream):
        client.compute(network, inputs, positions, record)
    taken = torch.cat(record.labels)
    return torch.where(torch.isin(positions, taken), positions, taken[0])


def _fed(client: ClientSpec, inputs: Tensor, stream: torch.Generator) -> Tensor:
    """Return a client's samples of its first epoch, given the stream of its update."""
    with drawing_from(stream):
        return client.feed(inputs)


def split_among_clients(values: Tensor, clients_per_update: int) -> Tensor:
    """Split a victim's samples equally among its clients; (B, ...) to (clients, share, ...)."""
    return values.unflatten(0, (clients_per_update, -1))


def clients_of_samples(labels: np.ndarray, clients_per_update: int) -> np.ndarray | None:
    """Return the number of each sample's client, Shape (V, N) as the labels; None for one."""
    if clients_per_update == 1:
        return None
    numbers = np.arange(labels.shape[1]) // (labels.shape[1] // clients_per_update)
    return np.broadcast_to(numbers, labels.shape).copy()


def join_updates(updates: list[dict[str, Encoded]], axis: int) -> dict[str, Encoded]:
    """Concatenate updates along the axis of victims, 0, or rounds, 1."""
    if len(updates) == 1:
        return updates[0]  # not copied, since it may be very large
    values: dict[str, list[Any]] = {name: [one[name] for one in updates] for name in updates[0]}
    return {name: type(each[0]).stack(each, axis) for name, each in values.items()}


def perturbation(sent: Mapping[str, Encoded], computed: Sequence[Mapping[str, Tensor]]) -> float:
    """Compute ||sent - computed|| / ||computed|| of one victim in one round.

    ``computed`` are the updates of its clients without the defence, but with the norm at which they
    are sent (`DefenseSpec.at_sent_norm`).
    """
    decoded = {name: torch.from_numpy(value.decode()[0]) for name, value in sent.items()}
    return relative_error(decoded, mean_of(computed, len(computed)))


def mean_of(updates: Iterable[Mapping[str, Tensor]], count: int) -> Mapping[str, Tensor]:
    """Compute the mean of updates by parameter, of which two need to be in memory at once."""
    remaining = iter(updates)
    first = next(remaining)
    if count == 1:
        return first
    total = {name: value.clone() for name, value in first.items()}
    for update in remaining:
        for name, value in update.items():
            total[name] += value
    return {name: value / count for name, value in total.items()}


def relative_error(values: Mapping[str, Tensor], true: Mapping[str, Tensor]) -> float:
    """Compute the L2 norm of the difference over that of the true values; 0 if both are zero."""
    error = sum(float((values[name] - value).square().sum()) for name, value in true.items())
    power = sum(float(value.square().sum()) for value in true.values())
    return sqrt(error / max(power, TINY))


def epoch_change(observed: Observed) -> np.ndarray | None:
    """Compute how far a sample's updates in the first and in the last epoch are apart.

    ||u' - u|| / ||u||, where u is the update of the first round that used the sample, and u' that
    of the last; the mean over a victim's samples.

    Returns:
        Shape (V); None for one round.
    """
    if observed.positions is None or observed.positions.shape[1] == 1:
        return None
    decoded = [encoded.decode() for encoded in observed.update.values()]
    updates = np.concatenate([each.reshape(*each.shape[:2], -1) for each in decoded], axis=2)
    means = []
    for sent, positions in zip(updates, observed.positions, strict=True):
        used = (positions[None] == np.unique(positions)[:, None, None]).any(2)
        first, last = used.argmax(1), used.shape[1] - 1 - used[:, ::-1].argmax(1)
        change = np.linalg.norm(sent[last] - sent[first], axis=1)
        means.append(np.mean(change / np.maximum(np.linalg.norm(sent[first], axis=1), TINY)))
    return np.array(means)


def fed_inputs(
    client: ClientSpec, inputs: np.ndarray, seed: int, clients_per_update: int
) -> np.ndarray:
    """Return the victims' samples as their networks get them in the first epoch; (V, N, *shape).

    They differ from the given ones by the client's augmentation, drawn as in its update.
    """
    if client.augmentation is None:
        return inputs
    streams, fed = Streams(client, clients_per_update, seed), []
    for victim, samples in enumerate(inputs):
        parts = []
        shares = split_among_clients(torch.from_numpy(samples), clients_per_update)
        for member, share in enumerate(shares):
            parts.append(_fed(client, share, streams.draw("client", victim, 0, member)))
        fed.append(torch.cat(parts).numpy())
    return np.stack(fed)


def measure_drift(
    client: ClientSpec,
    network: nn.Module,
    inputs: np.ndarray,
    labels: np.ndarray,
    seed: int,
    clients_per_update: int,
) -> np.ndarray | None:
    """Compute the relative error of each victim's mean gradient as gradient of its whole batch.

    Both are computed without stochastic layers such as dropout, whose masks attackers do not know,
    so that they only differ by the steps. The order of samples is that of the update, drawn again.
    For clients observed for several rounds it is the drift of the first round. A warning is logged
    if that of a victim is larger than `MAX_DRIFT`.

    Shapes: inputs (V, N, *shape), labels (V, N), result (V); None for clients with one step.
    """
    if client.local_descent is None:
        return None
    device, network = next(network.parameters()).device, deterministic_copy(network)
    streams = Streams(client, clients_per_update, seed)
    whole_batches = fed_inputs(client, inputs, seed, clients_per_update)
    drift = np.zeros(len(labels))
    with Progress(len(labels), "drift of the clients") as progress:
        for victim in range(len(labels)):
            first = client.round_positions(torch_stream(seed, "members", victim))[0].numpy()
            x = as_inputs(network, inputs[victim][first])
            y = torch.from_numpy(labels[victim][first]).to(device)
            shares = (split_among_clients(values, clients_per_update) for values in (x, y))
            means = []
            for member, samples in enumerate(zip(*shares, strict=True)):
                with drawing_from(streams.draw("client", victim, 0, member)):
                    means.append(client.local_descent(network, *samples).mean_gradient)
            fed = as_inputs(network, whole_batches[victim][first])
            whole = gradients(network, {**trained_parameters(network)}, fed, y, client.protocol)
            drift[victim] = relative_error(mean_of(means, len(means)), whole)
            progress.advance()
    if drift.max() > MAX_DRIFT:
        log.warning(
            "client %s: the mean gradient of the local steps differs from that of the whole batch "
            "by up to %.2g times its norm; attacks with client_model=one_step approximate the "
            "steps by one batch: choose a smaller local_lr, or client_model=unrolled",
            client,
            drift.max(),
        )
    return drift
