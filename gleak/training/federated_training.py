"""Rounds of federated training, and the partition of the train split among clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gleak.artifacts.protocol import Protocol
from gleak.clients.gradient_descent import descend, mini_batches
from gleak.core.lazy import torch
from gleak.defenses.base import Memory
from gleak.defenses.sending import RoundStreams, send_update, server_step
from gleak.models.parameters import as_inputs
from gleak.runtime.checkpointing import Part, State, strip_prefix
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import stream, torch_stream
from gleak.training.base import History
from gleak.training.central_training import test_accuracy

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.training.federated import Federated


@dataclass
class Client:
    """State of a client between its rounds.

    Args:
        number: index of the client.
        share: positions of its samples in the train split; Shape (n_k).
        memory: values not sent yet.
    """

    number: int
    share: np.ndarray
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Result of a client's round.

    Args:
        samples: number of its samples.
        gradient: mean gradient of its local steps, decoded from what was sent.
        buffers: running statistics of normalisation after its steps; they are not defended.
        loss: mean training loss of its steps.
    """

    samples: int
    gradient: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    loss: float


def run_rounds(
    network: torch.nn.Module, dataset: Dataset, training: Federated, seed: int, part: Part
) -> History:
    """Train a network in place by federated averaging.

    Args:
        network: changed in place.
        dataset: dataset whose train split is divided among the clients.
        training: hyperparameters.
        seed: seed of the run.
        part: part of the job's checkpoint; the training resumes from it.

    Returns:
        Mean loss of the chosen clients and test accuracy after every round.
    """
    history, federation = History(), Federation(network, dataset, training, seed)
    if found := part.stored:
        history.resume(found)
        federation.resume(found)
    with Progress(training.rounds, "training rounds") as progress, part.stepping():
        progress.advance(len(history.train_loss))
        for _ in part.steps(
            lambda: len(history.train_loss) < training.rounds,
            lambda: {**history.state(), **federation.state()},
        ):
            loss = federation.run_round(len(history.train_loss))
            history.append(loss, test_accuracy(network, dataset))
            progress.advance(loss=history.train_loss[-1])
    return history


class Federation:
    """Server with the parameters of the network, and its clients."""

    def __init__(
        self, network: torch.nn.Module, dataset: Dataset, training: Federated, seed: int
    ) -> None:
        self.network, self.dataset, self.training, self.seed = network, dataset, training, seed
        labels, random = dataset.labels("train"), stream(seed, "shares")
        shares = partition(labels, training.clients, training.alpha, random)
        self.clients = [Client(number, share) for number, share in enumerate(shares)]

    def state(self) -> State:
        """Return the state between rounds: the parameters, and the values not sent yet."""
        memories = {
            f"memory.{client.number}.{name}": value
            for client in self.clients
            for name, value in client.memory.items()
        }
        parameters = {f"network.{name}": each for name, each in self.network.state_dict().items()}
        return {**memories, **parameters}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state from one that contains that of `state`."""
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        self.network.load_state_dict(strip_prefix("network", tensors))
        for client in self.clients:
            client.memory = strip_prefix(f"memory.{client.number}", tensors)

    def run_round(self, number: int) -> float:
        """Train the chosen clients from the same parameters, and take a step along their mean.

        The mean is weighted by their samples: w <- w - lr local_steps sum(n_k/n g_k), which is the
        mean of their parameters without a defence (CPL section 2.1).

        Returns:
            The mean training loss.
        """
        random = stream(self.seed, "chosen clients", number)
        chosen = random.choice(len(self.clients), self.training.chosen, replace=False)
        buffers = {name: value.clone() for name, value in self.network.named_buffers()}
        reports = []
        for position in chosen:
            self._set_buffers(buffers)
            reports.append(self._train(self.clients[position], number))
        weights = np.array([report.samples for report in reports], dtype=np.float64)
        weights /= weights.sum()
        self._server_step(reports, weights)
        return float(weights @ [report.loss for report in reports])

    def _train(self, client: Client, number: int) -> Report:
        """Run a client's local steps; of the network, only the buffers change."""
        training, device = self.training, next(self.network.parameters()).device
        inputs = as_inputs(self.network, self.dataset.samples("train", client.share))
        labels = torch.from_numpy(self.dataset.labels("train")[client.share]).to(device)
        size = min(training.batch_size, len(labels))
        self.network.train()
        losses: list[torch.Tensor] = []

        def compute() -> dict[str, torch.Tensor]:
            batches = mini_batches(len(labels), size, training.local_steps, shuffled=True)
            gradient = training.defense.local_gradient()
            protocol = Protocol(local_lr=training.lr)
            descent = descend(self.network, inputs, labels, batches, protocol, gradient)
            losses.append(descent.losses)
            return {name: value[None] for name, value in descent.mean_gradient.items()}

        streams = RoundStreams(
            torch_stream(self.seed, "local training", number, client.number),
            torch_stream(self.seed, "local defense", number, client.number),
        )
        sent, _ = send_update(
            training.defense, compute, self.network, inputs, labels, streams, client.memory
        )
        return Report(
            samples=len(labels),
            gradient={name: torch.from_numpy(each.decode()[0])[0] for name, each in sent.items()},
            buffers={name: value.clone() for name, value in self.network.named_buffers()},
            loss=float(torch.cat(losses).mean()),
        )

    def _server_step(self, reports: Sequence[Report], weights: np.ndarray) -> None:
        gradient = _weighted_means([report.gradient for report in reports], weights)
        server_step(self.network, gradient, self.training.lr * self.training.local_steps)
        self._set_buffers(_weighted_means([report.buffers for report in reports], weights))

    def _set_buffers(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self.network.named_buffers():
                buffer.copy_(values[name])


def _weighted_means(
    values: Sequence[dict[str, torch.Tensor]], weights: np.ndarray
) -> dict[str, torch.Tensor]:
    """Average tensors of the same name over clients."""
    return {name: _weighted_mean([each[name] for each in values], weights) for name in values[0]}


def _weighted_mean(values: Sequence[torch.Tensor], weights: np.ndarray) -> torch.Tensor:
    """Compute the mean in double precision; for integers, such as counters, it is rounded."""
    rows = torch.stack([value.double() for value in values])
    mean = torch.tensordot(torch.from_numpy(weights).to(rows), rows, dims=1)
    return mean if values[0].is_floating_point() else mean.round()


def partition(
    labels: np.ndarray, clients: int, alpha: float | None, random: np.random.Generator
) -> list[np.ndarray]:
    """Draw a partition of the samples among clients.

    Args:
        labels: labels of the split, Shape (M), with M at least ``clients``.
        clients: number of clients; each gets at least one sample.
        alpha: parameter of the Dirichlet distribution by which each class is divided (Yurochkin et
            al. 2019); None: equal random shares.
        random: random stream.

    Returns:
        Positions of each client's samples, Shape (n_k).
    """
    if alpha is None:
        return np.array_split(random.permutation(len(labels)), clients)
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        parts = random.dirichlet(np.full(clients, alpha))
        edges = (np.cumsum(parts)[:-1] * len(members)).astype(int)
        for share, chunk in zip(shares, np.split(members, edges), strict=True):
            share.extend(chunk.tolist())
    for share in shares:
        if not share:
            share.append(max(shares, key=len).pop())
    return [np.array(share) for share in shares]
