"""Federated training by many clients, among whom the train split is divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.protocol import Protocol
from gleak.clients.gradient_descent import descend, mini_batches
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec, Memory, NoDefense
from gleak.defenses.sending import RoundStreams, send_update, server_step
from gleak.models.parameters import as_inputs
from gleak.runtime.checkpointing import Part, State, strip_prefix
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import stream, torch_stream
from gleak.training.base import History, InitialisedSpec, test_accuracy


@register("federated")
class Federated(InitialisedSpec):
    """Rounds in which some clients train on their own samples and send a defended update.

    The update is the mean gradient of the local steps, so noise and compression act on the scale of
    gradients (CPL section 2.2), but frameworks' filters on that of weights, as in the framework;
    without a defence the result is that of federated averaging.
    """

    source = "CPL sections 2.1 and 4.1; McMahan et al. 2017"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"rounds"})

    clients: int = parameter(
        100, "clients among which the train split is divided", source="CPL section 4.1", ge=1
    )
    fraction: float = parameter(
        0.1, "share of the clients chosen in a round", source="CPL section 4.1", gt=0, le=1
    )
    rounds: int = parameter(100, "steps of the server", source="ours; CPL names none", ge=1)
    local_steps: int = parameter(
        10, "local steps of a client per round", source="ours; CPL names none", ge=1
    )
    batch_size: int = parameter(
        32, "samples per step; a client with fewer uses all", source="ours; CPL names none", ge=1
    )
    lr: float = parameter(0.1, "learning rate of a step", source="ours; CPL names none", gt=0)
    alpha: float | None = parameter(
        None,
        "Dirichlet parameter per class; small: uneven shares; none: equal random shares",
        source="Yurochkin et al. 2019",
        gt=0,
    )
    defense: Annotated[DefenseSpec, nested("defense")] = parameter(
        NoDefense(), "defence of every client", source="CPL Tables 7a and 8"
    )

    @property
    def chosen(self) -> int:
        """Number of clients that train in a round."""
        return max(1, round(self.fraction * self.clients))

    def epochs_of_data(self, samples: int) -> float:
        step = min(self.batch_size, samples / self.clients)
        return self.rounds * self.chosen * self.local_steps * step / samples

    def check(self, dataset: DatasetSpec) -> None:
        super().check(dataset)
        self.defense.check_members(self.chosen)

    def check_samples(self, samples: int, dataset: str) -> None:
        if self.clients > samples:
            raise IncompatibleError(
                f"training {self}: clients={self.clients} is more than the {samples} samples in "
                f"the train split of {dataset}"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        network.train()  # clients normalise by the batch
        try:
            self.defense.check_network(network, shape)
        finally:
            network.eval()

    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        history, federation = History(), Federation(model, dataset, self, seed)
        if state := part.stored:
            history.resume(state)
            federation.resume(state)
        with Progress(self.rounds, "training rounds") as progress, part.stepping():
            progress.advance(len(history.train_loss))
            for _ in part.steps(
                lambda: len(history.train_loss) < self.rounds,
                lambda: {**history.state(), **federation.state()},
            ):
                loss = federation.run_round(len(history.train_loss))
                history.append(loss, test_accuracy(model, dataset))
                progress.advance(loss=history.train_loss[-1])
        return history


@dataclass
class Client:
    """Positions of a client's samples in the train split, Shape (n_k), and values not sent yet."""

    number: int
    share: np.ndarray
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class RoundResult:
    """Result of a client's round: the mean gradient of its local steps, decoded as it was sent.

    ``computed`` is what the defence was applied to, Shape (1, *shape).

    Buffers, the running statistics of normalisation after its steps, are not defended.
    """

    samples: int
    gradient: dict[str, torch.Tensor]
    computed: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    loss: float


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
        state = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for client in self.clients:
            memory = client.memory.items()
            state |= {f"memory.{client.number}.{name}": value for name, value in memory}
        return state

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        self.network.load_state_dict(strip_prefix("network", tensors))
        for client in self.clients:
            client.memory = strip_prefix(f"memory.{client.number}", tensors)

    def run_round(self, number: int) -> float:
        """Train the chosen clients from the same parameters; return their mean training loss.

        The step along their mean is weighted by their samples: w <- w - lr local_steps
        sum(n_k/n g_k), which is the mean of their parameters without a defence (CPL section 2.1).
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
        mean = _weighted_means([report.gradient for report in reports], weights)
        gradient = self._protected(mean, reports, number)
        server_step(self.network, gradient, self.training.lr * self.training.local_steps)
        self._set_buffers(_weighted_means([report.buffers for report in reports], weights))
        return float(weights @ [report.loss for report in reports])

    @property
    def _scale(self) -> float:
        """Factor from a mean gradient to the values that the defence is applied to."""
        training = self.training
        return -training.lr * training.local_steps if training.defense.takes_differences else 1.0

    def _protected(
        self, mean: dict[str, torch.Tensor], reports: Sequence[RoundResult], number: int
    ) -> dict[str, torch.Tensor]:
        """Apply the server's part of the defence to the mean gradient."""
        scaled = {name: (value * self._scale)[None] for name, value in mean.items()}
        random = torch_stream(self.seed, "server defense", number)
        computed = [report.computed for report in reports]
        protected = self.training.defense.protect_mean(scaled, computed, random)
        return {name: value[0] / self._scale for name, value in protected.items()}

    def _train(self, client: Client, number: int) -> RoundResult:
        """Run a client's local steps; of the network, only the buffers change."""
        training = self.training
        inputs = as_inputs(self.network, self.dataset.samples("train", client.share))
        labels = torch.from_numpy(self.dataset.labels("train")[client.share]).to(inputs.device)
        size = min(training.batch_size, len(labels))
        self.network.train()
        losses: list[torch.Tensor] = []

        def compute() -> dict[str, torch.Tensor]:
            batches = mini_batches(len(labels), size, training.local_steps, shuffled=True)
            gradient = training.defense.local_gradient()
            protocol = Protocol(local_lr=training.lr)
            descent = descend(self.network, inputs, labels, batches, protocol, gradient)
            losses.append(descent.losses)
            mean = descent.mean_gradient.items()
            return {name: (value * self._scale)[None] for name, value in mean}

        streams = RoundStreams(
            torch_stream(self.seed, "local training", number, client.number),
            torch_stream(self.seed, "local defense", number, client.number),
        )
        sent, computed = send_update(
            training.defense, compute, self.network, inputs, labels, streams, client.memory
        )
        return RoundResult(
            samples=len(labels),
            gradient={
                name: torch.from_numpy(code.decode()[0])[0] / self._scale
                for name, code in sent.items()
            },
            computed={name: value.detach().cpu() for name, value in computed.items()},
            buffers={name: value.clone() for name, value in self.network.named_buffers()},
            loss=float(torch.cat(losses).mean()),
        )

    def _set_buffers(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self.network.named_buffers():
                buffer.copy_(values[name])


def _weighted_means(
    values: Sequence[dict[str, torch.Tensor]], weights: np.ndarray
) -> dict[str, torch.Tensor]:
    """Average tensors of the same name in double precision; integers (counters) are rounded."""
    means = {}
    for name, first in values[0].items():
        rows = torch.stack([tensors[name].double() for tensors in values])
        mean = torch.tensordot(torch.from_numpy(weights).to(rows), rows, dims=1)
        means[name] = mean if first.is_floating_point() else mean.round()
    return means


def partition(
    labels: np.ndarray, clients: int, alpha: float | None, random: np.random.Generator
) -> list[np.ndarray]:
    """Draw a partition of the samples among clients, at least one for each.

    Each class is divided by a Dirichlet distribution with parameter ``alpha`` (Yurochkin et al.
    2019); None: equal random shares.

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
