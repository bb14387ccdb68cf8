"""Clients in plain words, and what in a description may not be meant so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gleak.assessment.resolved import Resolved
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import FedAvg
from gleak.core.lazy import torch
from gleak.core.numbers import format_number
from gleak.core.spec import format_spec
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.studies.cell import Cell
from gleak.studies.own_models import is_own, own_network


def client_in_words(resolved: Resolved) -> str:
    """Return the round, the client's training, and whose samples they are, as one sentence.

    The network is built to see whether it has batch normalisation and dropout.
    """
    specs = resolved.specs
    client, network = specs["client"], _network(resolved)
    held = _count(client.batch_size, "sample")
    parts = [
        f"Each client receives {_received(specs['training'])}, has {held}, {_training(client)}",
        f"batch normalisation: {_batch_norm(client, network)}",
        f"dropout: {_dropout(network)}",
        _samples(resolved),
    ]
    return "; ".join(parts) + "."


def warnings(resolved: Resolved) -> Iterator[str]:
    """Yield what a deployment leaves out that its results hang on."""
    client, written = resolved.specs["client"], resolved.deployment.client
    if resolved.captured or not isinstance(client, FedAvg) or client.local_steps == 1:
        return
    if "local_lr" not in written:
        yield (
            f"client: {client.local_steps} local steps without a learning rate are taken at "
            f"{client.local_lr:g}, at which they hardly move; give local_lr"
        )


def _network(resolved: Resolved) -> torch.nn.Module | None:
    """Return the network; None if its number of classes is unknown before data are downloaded."""
    dataset, model = resolved.specs["dataset"], resolved.specs["model"]
    classes = dataset.classes_in(resolved.settings.data_dir)
    if classes is None:
        return None
    if is_own(Cell({"dataset": dataset, "model": model})):
        return own_network(model, dataset.shape, classes)
    with drawing_from(torch_stream(0, "construction")):
        return model.build(dataset.shape, classes)


def _received(training: Any) -> str:
    texts = {
        "untrained": "the untrained network, as in the first round",
        "central": "a network that was trained in one place",
        "pretrained": "a pretrained network",
        "captured": "the network of the captured round",
    }
    if training.name == "federated":
        return f"the network after {_count(training.rounds, 'federated round')}"
    return texts.get(training.name, f"the network of training {training.name}")


def _training(client: ClientSpec) -> str:
    """Return the steps, what each sees, and by what it moves."""
    if not isinstance(client, FedAvg):
        return f"and sends one gradient of {_all(client)}"
    order = ", in a new order in every epoch" if client.order == "shuffled" else ""
    seen = client.samples_per_step
    all_of = _all(client) if seen == client.batch_size else f"{seen} of them{order}"
    schedule = "" if client.schedule.name == "constant" else f", schedule {client.schedule.name}"
    optimizer = format_spec(client.optimizer, " ").replace("=", " ")
    state = ", whose state is kept from earlier rounds" if client.state == "kept" else ""
    return (
        f"and sends the result of {_count(client.local_steps, 'local step')}, each on {all_of}, by "
        f"{optimizer}{state} at the learning rate {format_number(client.local_lr)}{schedule}"
    )


def _all(client: ClientSpec) -> str:
    return "it" if client.batch_size == 1 else "all of them"


def _batch_norm(client: ClientSpec, network: torch.nn.Module | None) -> str:
    modes = {
        "evaluation": "by running statistics (evaluation mode)",
        "training": "by the statistics of the batch (training mode)",
    }
    if network is None:
        return modes[client.batch_norm]
    layers = (torch.nn.modules.batchnorm._BatchNorm,)
    has = any(isinstance(layer, layers) for layer in network.modules())
    return modes[client.batch_norm] if has else "none in this network"


def _dropout(network: torch.nn.Module | None) -> str:
    if network is None:
        return "as the network has it"
    layers = [m for m in network.modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd)]
    if not any(layer.p for layer in layers):
        return "none in this network"
    return "drawn by the client, unknown to the attacker"


def _samples(resolved: Resolved) -> str:
    dataset, client = resolved.specs["dataset"], resolved.specs["client"]
    drawn = f"samples are drawn at random from the {client.split} split of {_name(dataset)}"
    if not resolved.captured:
        return f"the clients are simulated: their {drawn}"
    return f"its updates were captured; besides, clients are simulated whose {drawn}"


def _name(dataset: Any) -> str:
    return str(getattr(dataset, "folder", dataset.name))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
