"""`gleak.craft` and `gleak.audit`: equal to the workflow's server, and to `gleak audit`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gleak
from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model, Secret
from gleak.cli.files import audit_file
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.crafting.base import PARAMETERS, SECRET, craft_parameters
from gleak.models.broadcast import load_network

Simulate = Callable[..., Path]
SHAPE = (3, 8, 8)
VGG = "vgg_small+width=8+hidden=24"


@pytest.mark.parametrize("crafting", ["fishing+target=2", "mkor", "mkor+hiding=naive", "honest"])
def test_parameters_and_secret_are_those_of_the_workflow(
    crafting: str, simulate: Simulate, tmp_path: Path
) -> None:
    source = simulate(model=VGG) / "model.h5"
    craft_parameters(parse("crafting", crafting), source, tmp_path, seed=4)
    expected = load_network(Model.read(tmp_path / PARAMETERS), "parameters.h5").state_dict()
    network = load_network(Model.read(source), "model.h5")
    crafted = gleak.craft(crafting, network, SHAPE, seed=4)
    for name, value in crafted.model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    secret = Secret.read(tmp_path / SECRET).values
    assert crafted.secret.values.keys() == secret.keys()
    for name, value in secret.items():
        assert np.array_equal(crafted.secret.values[name], value), name


def test_the_secret_lets_its_attack_read_the_update(simulate: Simulate) -> None:
    network = load_network(Model.read(simulate(model=VGG) / "model.h5"), "model.h5")
    crafted = gleak.craft("mkor", network, SHAPE)
    inputs = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(0))
    update = gleak.compute_update(crafted.model, inputs, [0, 1, 2], client="fedsgd+loss=nll_raw")
    known = {"client": "fedsgd+batch_size=3+loss=nll_raw"}
    found = gleak.attack("mkor", crafted.model, update, SHAPE, secret=crafted.secret, **known)
    assert sorted(found.labels.tolist()) == [0, 1, 2]
    assert gleak.score(found, inputs, [0, 1, 2])["samples_found"] == 1
    with pytest.raises(IncompatibleError, match="these are honest; use crafting mkor"):
        gleak.attack("mkor", crafted.model, update, SHAPE, **known)
    with pytest.raises(IncompatibleError, match=r"fishing needs parameters .* these are mkor"):
        gleak.attack("fishing", crafted.model, update, SHAPE, secret=crafted.secret, **known)


def test_the_callers_network_stays_and_the_new_one_is_like_it() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double().train()
    network[1].weight.requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    crafted = gleak.craft("fishing", network, (3, 2, 2))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    weight, bias = crafted.model.parameters()
    assert (crafted.model.training, weight.requires_grad) == (True, False)
    assert (weight.dtype, bias.tolist()[1:]) == (torch.float64, [100, 100])
    assert repr(crafted) == "CraftedModel('fishing', Sequential)"


@pytest.mark.parametrize(
    ("crafting", "error", "text"),
    [
        ("fishing+target=3", IncompatibleError, r"no class of dataset images\+shape=3x2x2, which"),
        ("mkor", IncompatibleError, "crafting mkor does not fit the model"),
        (parse("attack", "mkor"), SpecError, "expected the spec of kind crafting"),
    ],
)
def test_networks_and_specs_that_do_not_fit_are_named(
    crafting: str, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        gleak.craft(crafting, nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (3, 2, 2))


@pytest.mark.parametrize("crafting", ["honest", "mkor+hiding=naive"])
@pytest.mark.parametrize("with_samples", [True, False])
def test_the_verdicts_are_those_of_the_command(
    crafting: str, with_samples: bool, simulate: Simulate
) -> None:
    folder = simulate(model=VGG, crafting=crafting)
    path = folder / ("model.h5" if crafting == "honest" else "parameters.h5")
    data = Dataset.read(folder / "dataset.h5")
    expected = audit_file(path, folder / "dataset.h5" if with_samples else None)
    samples = (data.samples("train"), data.labels("train")) if with_samples else ()
    network = load_network(Model.read(path), "model.h5")
    report = gleak.audit(network, *samples, shape=(3, 8, 8))
    assert report.records == expected.records
    assert str(report) == str(expected)
    assert bool(report.alarms) == (crafting != "honest")


def test_layers_that_a_reference_lacks_alarm_as_for_the_command(
    simulate: Simulate,
) -> None:
    path = simulate(model=f"planted+model={VGG.replace('+', '~')}") / "model.h5"
    network = load_network(Model.read(path), "model.h5")
    honest = parse("model", VGG).build((3, 8, 8), Model.read(path).classes)
    for reference in (VGG, honest):
        report = gleak.audit(network, shape=(3, 8, 8), reference=reference)
        assert "audit_reference" in report.alarms
    expected = audit_file(path, None, str(path)).records
    assert gleak.audit(network, shape=(3, 8, 8), reference=path).records == expected
    with pytest.raises(IncompatibleError, match="another architecture"):
        gleak.audit(honest, shape=(3, 8, 8), reference=network)
    with pytest.raises(SpecError, match="reference nothing: neither a file"):
        gleak.audit(honest, shape=(3, 8, 8), reference="nothing")


def test_an_audited_network_stays_in_its_mode_and_precision() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)).train()
    network[1].bias.requires_grad_(False)
    samples = torch.rand(9, 3, 2, 2), np.arange(9) % 3
    expected = str(gleak.audit(network, *samples))
    assert str(gleak.audit(network.double(), *samples)) == expected
    assert network.training
    assert not network[1].bias.requires_grad
    assert next(network.parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ((torch.rand(9, 3, 2, 2), [3] * 9), ArtifactError, "values from 3 to 3, .*0 to 2"),
        ((torch.rand(9, 3, 3, 3), [0] * 9), IncompatibleError, r"accept samples .*\(3, 3, 3\)"),
    ],
)
def test_samples_of_an_audit_that_do_not_fit_are_named(
    samples: tuple, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        gleak.audit(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), *samples)


@pytest.fixture
def sum_of_three() -> tuple[
    gleak.CraftedModel, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]
]:
    """Loki's model, six samples of three clients, and the mean of their updates."""
    torch.manual_seed(0)
    spec = parse("model", "planted_kernels+model=lenet~activation=relu~width=4+bins=64+groups=3")
    crafted = gleak.craft("loki", spec.build(SHAPE, 4), SHAPE)
    inputs, labels = torch.rand(6, *SHAPE) * torch.linspace(0.4, 1, 6).view(6, 1, 1, 1), [0, 1] * 3
    updates = [
        gleak.compute_update(crafted.of_client(each), inputs[part], labels[part])
        for each in range(3)
        for part in [slice(2 * each, 2 * each + 2)]
    ]
    mean = {name: sum(update[name] for update in updates) / 3 for name in updates[0]}
    return crafted, inputs, torch.tensor(labels), mean


def test_samples_of_a_sum_are_read_at_their_client(sum_of_three) -> None:
    crafted, inputs, labels, mean = sum_of_three
    known = {"batch_size": 6, "secret": crafted.secret}
    found = gleak.attack("loki", crafted.model, mean, SHAPE, clients=3, **known)
    assert found.reconstruction.clients[0].tolist() == [0, 0, 1, 1, 2, 2]
    scores = gleak.score(found, inputs, labels)
    assert scores["mse"] < 1e-6
    assert (scores.assignment // 2).tolist() == [0, 0, 1, 1, 2, 2]
    one_by_one = gleak.Protocol(batch_size=6, mini_batch=6, clients=3)
    given = {"client": one_by_one, "secret": crafted.secret}
    again = gleak.attack("loki", crafted.model, mean, SHAPE, **given)
    assert torch.equal(again.inputs, found.inputs)


def test_clients_that_cannot_be_summed_or_have_no_parameters_are_refused(sum_of_three) -> None:
    crafted, _, _, mean = sum_of_three
    known = {"batch_size": 6, "secret": crafted.secret}
    with pytest.raises(IncompatibleError, match=r"6 samples .* among 4 clients"):
        gleak.attack("loki", crafted.model, mean, SHAPE, clients=4, **known)
    with pytest.raises(IncompatibleError, match="for 3 clients, but clients=6 are summed"):
        gleak.attack("loki", crafted.model, mean, SHAPE, clients=6, **known)
    with pytest.raises(SpecError, match="clients 0 to 2; craft a model with more groups"):
        crafted.of_client(3)
    with pytest.raises(SpecError, match="number = -1"):
        crafted.of_client(-1)


def test_all_clients_get_one_model_from_other_servers() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    crafted = gleak.craft("fishing", network, (3, 2, 2))
    assert crafted.client_parameters == {}
    sent = crafted.of_client(7)
    assert sent is not crafted.model
    for name, value in sent.state_dict().items():
        assert torch.equal(value, crafted.model.state_dict()[name])
