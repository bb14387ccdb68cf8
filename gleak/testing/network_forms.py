"""Small networks of unusual forms, which attacks and defences support or refuse by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api.attack_setting import Setting
from gleak.api.broadcast_model import craft
from gleak.api.client_update import compute_update
from gleak.api.given_specs import client_of
from gleak.api.user_network import examine, prepared_copy
from gleak.attacks.base import AttackSpec
from gleak.attacks.run_attack import reconstruct
from gleak.core.errors import IncompatibleError
from gleak.defenses.base import DefenseSpec
from gleak.knowledge.loading import load_knowledge
from gleak.models.layer_search import true_embeddings
from gleak.runtime.seeding import drawing_from, torch_stream
from gleak.testing.tiny_cells import CLASSES, COLUMNS, IMAGE, TinyCells

Shape = tuple[int, ...]
WIDTH, SAMPLES, SEED = 16, 4, 5


class Reordered(nn.Module):
    """A head registered before the body, an unused layer first, and a factor without axes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.unused, self.factor = nn.GRU(2, 2), nn.Parameter(torch.tensor(0.7))
        self.head, self.body = nn.Linear(WIDTH, CLASSES), nn.Linear(size, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.factor * self.body(inputs.flatten(1)).relu())
        return logits


class Recurrent(nn.Module):
    """A recurrent layer first, over two halves of a sample."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.GRU(size // 2, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        halves = inputs.flatten(1).unflatten(1, (2, -1))
        logits: Tensor = self.head(self.layer(halves)[0][:, -1])
        return logits


class WithoutGraph(nn.Module):
    """Features that are computed without a graph, with parameters that are trained or frozen."""

    def __init__(self, body: nn.Module, features: int, mode: Any = torch.no_grad) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(features, CLASSES)
        self.mode = mode

    def forward(self, inputs: Tensor) -> Tensor:
        with self.mode():
            features = self.body(inputs)
        logits: Tensor = self.head(features.flatten(1))
        return logits


def networks_of_forms(shape: Shape) -> Iterator[tuple[str, nn.Module]]:
    """Yield networks for samples of shape (3, 8, 8) or (F), F even, with what is unusual."""
    size = prod(shape)
    yield "layers in another order, an unused one and a scalar", Reordered(size)
    yield "double precision", Reordered(size).double()
    dense = nn.Linear(size, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    frozen = nn.Sequential(nn.Flatten(), *dense)
    frozen[1].requires_grad_(False)
    yield "a frozen first layer", frozen
    yield "a recurrent layer first", Recurrent(size)
    body = nn.Sequential(nn.Flatten(), nn.Linear(size, WIDTH), nn.ReLU())
    yield "features without a graph", WithoutGraph(body, WIDTH)
    if shape == IMAGE:
        convolution = nn.Conv2d(IMAGE[0], WIDTH, IMAGE[1]), nn.ReLU(), nn.Flatten()
        layers = *convolution, nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
        yield "convolutions in double precision", nn.Sequential(*layers).double()


def check_attack_on_forms(spec: AttackSpec, cells: TinyCells) -> None:
    """Check that an attack works on networks of unusual forms, or refuses them before work.

    Raises:
        AssertionError: names the form.
    """
    shape = IMAGE if "image" in spec.modalities else COLUMNS
    _each_form(shape, f"attack {spec}", lambda network: _attack(spec, network, shape, cells))


def check_defense_on_forms(spec: DefenseSpec) -> None:
    """Check that a defence works on networks of unusual forms, or refuses them before work.

    Raises:
        AssertionError: names the form.
    """
    _each_form(IMAGE, f"defense {spec}", lambda network: _defend(spec, network))


def _each_form(shape: Shape, which: str, check: Callable[[nn.Module], None]) -> None:
    with drawing_from(torch_stream(SEED, "forms")):
        networks = list(networks_of_forms(shape))
    for form, network in networks:
        try:
            check(network.eval())
        except IncompatibleError:
            continue
        except Exception as error:
            raise AssertionError(f"{which} on a network with {form}: {error!r}") from error


def _batch(shape: Shape) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(SEED)
    inputs = torch.rand(SAMPLES, *shape, generator=stream, dtype=torch.float32)
    return inputs, torch.arange(SAMPLES) % CLASSES


def _attack(spec: AttackSpec, network: nn.Module, shape: Shape, cells: TinyCells) -> None:
    """Attack a client of a network; what is granted are other samples than the client's."""
    crafted = None if spec.crafting is None else craft(spec.crafting, network, shape)
    network = prepared_copy(network if crafted is None else crafted.model)
    client = client_of("fedsgd", SAMPLES)
    secret = None if crafted is None else crafted.secret
    setting = Setting(network, shape, examine(network, shape), client, secret)
    inputs, labels = _batch(shape)
    others = inputs.flip(-1)
    given = {"labels": labels, "mean_input": others.mean(0), "class_sample": others}
    given |= {"auxiliary_inputs": others, "auxiliary_labels": labels}
    embeddings = true_embeddings(network, inputs[None].numpy())
    if embeddings is not None:
        given["embeddings"] = torch.from_numpy(embeddings[0])
    given = {name: value for name, value in given.items() if name in spec.grants}
    setting.check(spec, frozenset(given))
    sent = compute_update(network, inputs, labels)
    update = setting.update({name: value.numpy() for name, value in sent.items()})
    knowledge = dict(load_knowledge(cells.learned(one.name), shape) for one in spec.knowledge)
    granted = setting.granted(given, None)
    observation = setting.observe(spec, update, granted, knowledge, SEED)
    try:
        found = reconstruct(spec, observation, SEED)
    except IncompatibleError as error:
        raise AssertionError(f"refused after work began: {error}") from error
    found.validate("result")
    assert found.inputs.shape[2:] == shape, f"samples of shape {found.inputs.shape[2:]}"
    assert found.inputs.dtype == np.float32, f"inputs are {found.inputs.dtype}"


def _defend(spec: DefenseSpec, network: nn.Module) -> None:
    """Let a client of a network send a defended update."""
    sent = compute_update(network, *_batch(IMAGE), defense=spec)
    trained = {name for name, value in network.named_parameters() if value.requires_grad}
    assert sent.keys() == trained, f"{sorted(sent.keys() ^ trained)} are sent or not"
    for name, value in sent.items():
        parameter = network.get_parameter(name)
        assert value.shape == parameter.shape, f"{name} has shape {tuple(value.shape)}"
        assert value.dtype == parameter.dtype, f"{name} is {value.dtype}"
        assert value.isfinite().all(), f"{name} has values that are not finite"
