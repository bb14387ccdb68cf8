"""Samples of the clients of a sum, by kernels of each."""

from __future__ import annotations

import numpy as np
import pytest

from gleak.attacks.imprint import ImprintAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.imprint import ImprintCrafting
from gleak.crafting.loki import LokiCrafting
from gleak.metrics.reconstruction.assignment import match_samples
from gleak.metrics.score import match_to_truth
from gleak.studies.cell import Cell
from tests.attacks.cases import Make

MODEL = "planted_kernels+model=lenet~width=4+bins=64+groups=4"
CELL = {
    "dataset": "photos",
    "model": MODEL,
    "training": "untrained",
    "crafting": "loki",
    "client": "fedsgd+batch_size=10",
    "defense": "secure_aggregation+clients=5",
}


def alone_at_their_client(inputs: np.ndarray, clients: int) -> np.ndarray:
    """Mark samples that share their bin with none of their client; Shape (V, N)."""
    brightness = inputs.mean((2, 3, 4)).reshape(len(inputs), clients, -1)
    place = np.searchsorted(ImprintCrafting().edges(64), brightness, side="right")
    return ((place[..., None] == place[..., None, :]).sum(3) == 1).reshape(len(inputs), -1)


@pytest.mark.parametrize(
    ("clients", "training", "activation", "error"),
    [
        (4, "fedsgd+victims=2+batch_size=16", "relu", 1e-3),
        (3, "fedsgd+victims=2+batch_size=12", "relu", 1e-3),  # fewer than groups
        (1, "fedsgd+victims=2+batch_size=4", "relu", 1e-3),
        (
            2,
            "fedavg+victims=2+batch_size=8+local_steps=4+mini_batch=2+local_lr=0.01",
            "hardtanh",
            0.03,
        ),
    ],
)
def test_samples_of_each_client_are_found_and_attributed(
    make_case: Make, clients: int, training: str, activation: str, error: float
) -> None:
    spec = parse("attack", "loki")
    defense = "none" if clients == 1 else f"secure_aggregation+clients={clients}"
    model = MODEL if activation == "relu" else f"{MODEL}+activation={activation}"
    model = model.replace("+groups=4+activation=hardtanh", "+activation=hardtanh+groups=4")
    seen, truth = make_case(
        spec, model=model, training="untrained", client=training, defense=defense
    )
    found = spec.reconstruct(seen)
    single = alone_at_their_client(truth.inputs, clients)
    assert single.sum() >= 4
    errors = np.abs(match_to_truth(truth, found).estimate - truth.inputs).max((2, 3, 4))
    assert (errors[single] < error).all()
    assert found.clients is not None
    order = match_samples(truth, found)
    share = truth.inputs.shape[1] // clients
    own = np.arange(truth.inputs.shape[1]) // share
    assert (np.take_along_axis(found.clients, order, 1) == own)[single].all()
    if clients > 1:
        assert truth.clients is not None
        assert (truth.clients == own).all()


def test_each_group_of_columns_has_the_gradient_of_one_client(make_case: Make) -> None:
    spec = parse("attack", "loki")
    client, defense = "fedsgd+victims=2+batch_size=16", "secure_aggregation+clients=4"
    layer, norms = "planted.enter.weight", []
    for options in ({"client": client, "defense": defense}, {"client": client}):
        seen, _ = make_case(spec, model=MODEL, training="untrained", **options)
        norms.append(seen.update[layer].unflatten(3, (4, -1)).norm(dim=(2, 4))[:, 0])
    summed, alone = norms
    assert (summed > 0).all()
    assert (alone[:, 0] > 0).all()
    assert (alone[:, 1:] == 0).all()


def test_more_clients_than_groups_of_kernels_are_refused() -> None:
    with pytest.raises(IncompatibleError, match="4 groups of kernels for the 5 clients"):
        Cell.parse({**CELL, "attack": "loki"})
    enough = {**CELL, "client": "fedsgd+batch_size=8", "defense": "secure_aggregation"}
    assert Cell.parse({**enough, "attack": "loki"}).end == "attack"


@pytest.mark.parametrize("model", ["lenet", "planted", "mlp"])
def test_models_without_kernels_before_a_planted_layer_are_refused(model: str) -> None:
    with pytest.raises(IncompatibleError, match="use planted_kernels"):
        parse("crafting", "loki").check(parse("dataset", "photos"), parse("model", model))
    with pytest.raises(IncompatibleError, match="no kernels before a planted layer"):
        network = parse("model", model).build((3, 32, 32), 4)
        parse("crafting", "loki").check_network(network, (3, 32, 32), 4)


def test_imprint_has_no_place_behind_kernels() -> None:
    photos, model = parse("dataset", "photos"), parse("model", MODEL)
    with pytest.raises(IncompatibleError, match="planted layer"):
        parse("crafting", "imprint").check(photos, model)
    with pytest.raises(IncompatibleError, match="dense layer"):
        ImprintAttack().check(photos, model, parse("client", "fedsgd"))


def test_clients_do_not_share_bins_in_theory() -> None:
    model, planted = parse("model", MODEL), parse("model", "planted+bins=64")
    assert LokiCrafting().expected_share(model, 4, 10) == (63 / 64) ** 3
    assert ImprintCrafting().expected_share(planted, 4, 10) == (63 / 64) ** 39


def test_noise_in_the_kernels_is_the_same_for_all_clients_and_leaves_samples_readable(
    make_case: Make,
) -> None:
    network = parse("model", MODEL).build((3, 8, 8), 10)
    exact, hidden = parse("crafting", "loki"), parse("crafting", "loki+noise=0.001")
    exact.craft_network(network, (3, 8, 8), 10, seed=1)
    plain = exact.client_parameters(network)
    hidden.craft_network(network, (3, 8, 8), 10, seed=1)
    noisy = hidden.client_parameters(network)
    added = noisy["planted.kernels.weight"] - plain["planted.kernels.weight"]
    assert np.ptp(added, axis=0).max() < 1e-6
    assert added[0].std() == pytest.approx(1e-3, rel=0.1)
    assert np.count_nonzero(noisy["planted.kernels.weight"]) == added.size
    assert np.array_equal(
        noisy["planted.kernels.weight"][0], network.planted.kernels.weight.detach()
    )
    spec, cell = parse("attack", "loki"), {**CELL, "client": "fedsgd+victims=2+batch_size=16"}
    cell |= {"crafting": str(hidden), "defense": "secure_aggregation+clients=4"}
    seen, truth = make_case(spec, **{name: cell[name] for name in cell if name != "dataset"})
    found = spec.reconstruct(seen)
    alone = alone_at_their_client(truth.inputs, 4)
    errors = match_to_truth(truth, found).estimate - truth.inputs
    assert (np.abs(errors).mean((2, 3, 4))[alone] < 0.03).mean() > 0.7
