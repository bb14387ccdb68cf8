"""The rounds of federated training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from gleak.defenses.base import Memory
from gleak.defenses.sending import RoundStreams, send_update
from gleak.local_training.gradient_descent import descend, mini_batches
from gleak.models.parameters import trained_parameters
from gleak.runtime.checkpointing import Part, State, strip_prefix
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import stream, torch_stream
from gleak.training.base import History
from gleak.training.evaluate import test_accuracy
from gleak.training.partition import divide

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.training.federated import Federated


@dataclass
class Client:
    """One client, between its rounds.

    Args:
        number: its place among the clients.
        share: positions of its samples in the train split; Shape (n_k).
        memory: what its defence kept back so far.
    """

    number: int
    share: np.ndarray
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What a client brings to the server.

    Args:
        samples: how many it holds.
        gradient: mean gradient of its local steps, as the server reads what was sent.
        buffers: running statistics of normalisation after its steps; they are not defended.
        loss: mean training loss of its steps.
    """

    samples: int
    gradient: dict[str, Tensor]
    buffers: dict[str, Tensor]
    loss: float


def run_rounds(
    network: nn.Module, dataset: Dataset, training: Federated, seed: int, part: Part
) -> History:
    """Train in place; mean loss of the chosen clients and test accuracy after every round.

    Args:
        network: changed in place.
        dataset: whose train split the clients share.
        training: how they train.
        seed: of the run.
        part: of the job's journal; the training goes on where it stands there.
    """
    history, federation = History(), Federation(network, dataset, training, seed)
    if found := part.stored:
        history.resume(found)
        federation.resume(found)
    with Progress(training.rounds, "training rounds") as progress, part.stepping():
        progress.advance(len(history.train_loss))
        for number in range(len(history.train_loss), training.rounds):
            part.step(lambda: {**history.state(), **federation.state()})
            history.train_loss.append(federation.run_round(number))
            history.test_accuracy += test_accuracy(network, dataset)
            progress.advance(loss=history.train_loss[-1])
    return history


class Federation:
    """A server, whose parameters are those of the network, and its clients."""

    def __init__(
        self, network: nn.Module, dataset: Dataset, training: Federated, seed: int
    ) -> None:
        self.network, self.dataset, self.training, self.seed = network, dataset, training, seed
        self.distance = training.lr * training.local_steps
        labels, random = dataset.labels("train"), stream(seed, "shares")
        shares = divide(labels, training.clients, training.alpha, random)
        self.clients = [Client(number, share) for number, share in enumerate(shares)]

    def state(self) -> State:
        """What one round leaves to the next: the parameters, and what defences kept back."""
        memories = {
            f"memory.{client.number}.{name}": value
            for client in self.clients
            for name, value in client.memory.items()
        }
        parameters = {f"network.{name}": each for name, each in self.network.state_dict().items()}
        return {**memories, **parameters}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave; of a larger state the rest is left alone."""
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        self.network.load_state_dict(strip_prefix("network", tensors))
        for client in self.clients:
            client.memory = strip_prefix(f"memory.{client.number}", tensors)

    def run_round(self, number: int) -> float:
        """Let the chosen clients train from the same parameters, and step by their mean.

        The mean is weighted by the samples they hold: w <- w - lr local_steps sum(n_k/n g_k), which
        is the mean of their parameters where nothing is defended (CPL section 2.1).

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
        self._step(reports, weights)
        return float(weights @ [report.loss for report in reports])

    def _train(self, client: Client, number: int) -> Report:
        """A client's local steps; only the network's buffers change, and go into the report."""
        training, place = self.training, next(self.network.parameters()).device
        inputs = torch.from_numpy(self.dataset.samples("train", client.share)).to(place)
        labels = torch.from_numpy(self.dataset.labels("train")[client.share]).to(place)
        size = min(training.batch_size, len(labels))
        self.network.train()
        losses: list[Tensor] = []

        def compute() -> dict[str, Tensor]:
            batches = mini_batches(len(labels), size, training.local_steps, shuffled=True)
            gradient = training.defense.local_gradient()
            local = descend(
                self.network, inputs, labels, batches, training.lr, "cross_entropy", gradient
            )
            losses.append(local.losses)
            return {name: value[None] for name, value in local.mean_gradient.items()}

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

    @torch.no_grad()
    def _step(self, reports: Sequence[Report], weights: np.ndarray) -> None:
        for name, parameter in trained_parameters(self.network).items():
            mean = _mean([report.gradient[name] for report in reports], weights)
            parameter.sub_(self.distance * mean.to(parameter))
        means = {
            name: _mean([report.buffers[name] for report in reports], weights)
            for name in reports[0].buffers
        }
        self._set_buffers(means)

    def _set_buffers(self, values: dict[str, Tensor]) -> None:
        for name, buffer in self.network.named_buffers():
            buffer.copy_(values[name])


def _mean(values: Sequence[Tensor], weights: np.ndarray) -> Tensor:
    """Weighted mean in double precision; of whole numbers, such as counters, a whole number."""
    rows = torch.stack([value.double() for value in values])
    mean = torch.tensordot(torch.from_numpy(weights).to(rows), rows, dims=1)
    return mean if values[0].is_floating_point() else mean.round()
