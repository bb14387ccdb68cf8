"""Clients of a sum to which a server sends parameters of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.registry import parse
from gleak.crafting.base import PARAMETERS
from gleak.models.broadcast import load_network

MODEL = "planted_kernels+model=lenet~width=4+bins=8+groups=3"
CLIENT = "fedsgd+victims=2+batch_size=6"


def test_each_client_trains_on_what_it_was_sent(simulate: Callable[..., Path]) -> None:
    folder = simulate(
        model=MODEL, client=CLIENT, defense="secure_aggregation+clients=3", crafting="loki"
    )
    sent, update = Model.read(folder / PARAMETERS), Update.read(folder / "update.h5")
    private = Private.read(folder / "private.h5")
    assert sent.client_parameters is not None
    assert update.protocol.clients == 3
    assert private.embeddings is None
    spec, gradients = parse("client", "fedsgd+batch_size=2"), []
    for number in range(3):
        own = {name: values[number] for name, values in sent.client_parameters.items()}
        model = replace(sent, parameters={**sent.parameters, **own})
        samples = private.inputs[0][2 * number :][:2], private.labels[0][2 * number :][:2]
        network = load_network(model, "the parameters of one client")
        gradients.append(spec.compute(network, *map(torch.from_numpy, samples)))
    for name, values in update.update.items():
        expected = torch.stack([each[name] for each in gradients]).mean(0).detach()
        assert np.allclose(values.decode()[0], expected, atol=1e-6), name


def test_the_first_client_gets_the_parameters_of_the_file(simulate: Callable[..., Path]) -> None:
    sent = Model.read(simulate(model=MODEL, client=CLIENT, crafting="loki") / PARAMETERS)
    assert sent.client_parameters is not None
    for name, values in sent.client_parameters.items():
        assert np.array_equal(sent.parameters[name], values[0])
        assert len({each.tobytes() for each in values}) == 3
