"""Samples read off the bins of a planted layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gleak.attacks.imprint import in_bins
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.imprint import ImprintCrafting, expected_alone
from gleak.crafting.qbi import expected_singled_out
from gleak.metrics.score import match_to_truth
from tests.attacks.cases import Make

MODEL = "planted+model=lenet~width=4+bins=64"


def alone(brightness: np.ndarray, bins: int) -> np.ndarray:
    """Mark samples whose bin no other sample of the victim is in; Shape (V, N)."""
    edges = ImprintCrafting().edges(bins)
    place = np.searchsorted(edges, brightness, side="right")
    return (place[:, :, None] == place[:, None]).sum(2) == 1


@pytest.mark.parametrize("defense", ["none", "secure_aggregation+clients=2"])
def test_samples_alone_in_their_bin_are_found_exactly_with_their_labels(
    make_case: Make, defense: str
) -> None:
    spec = parse("attack", "imprint")
    client = "fedsgd+victims=2+batch_size=8"
    seen, truth = make_case(spec, model=MODEL, training="untrained", client=client, defense=defense)
    found = spec.reconstruct(seen)
    single = alone(truth.inputs.mean((2, 3, 4)), 64)
    assert single.any()
    compared = match_to_truth(truth, found).estimate
    errors = np.abs(compared - truth.inputs).max((2, 3, 4))
    assert (errors[single] < 1e-3).all()
    assert ((found.averaged_count == 1).sum(1) == single.sum(1)).all()
    for victim, mask in enumerate(single):
        named = found.labels[victim][found.averaged_count[victim] == 1]
        assert sorted(named) == sorted(truth.labels[victim][mask])


def test_sparse_bins_stay_apart_in_several_steps(make_case: Make) -> None:
    spec = parse("attack", "imprint")
    client = "fedavg+victims=2+batch_size=8+local_steps=5+mini_batch=2+local_lr=0.01"
    model = f"{MODEL}+activation=hardtanh"
    seen, truth = make_case(spec, model=model, training="untrained", client=client)
    compared = match_to_truth(truth, spec.reconstruct(seen)).estimate
    errors = np.nan_to_num(((compared - truth.inputs) ** 2).mean((2, 3, 4)), nan=1)
    single = alone(truth.inputs.mean((2, 3, 4)), 64)
    assert (errors[single] < 1e-3).all()


def test_noise_hides_that_rows_are_equal_but_they_still_measure_brightness() -> None:
    network = parse("model", MODEL).build((3, 16, 16), 10)
    ImprintCrafting(noise=1.0).craft_network(network, (3, 16, 16), 10, 0)
    rows = network.planted.enter.weight.detach().double()
    torch.testing.assert_close(rows.sum(1), torch.ones(64).double(), atol=1e-4, rtol=0)
    units = rows / rows.norm(dim=1, keepdim=True)
    cosines = (units @ units.T)[~torch.eye(64, dtype=torch.bool)]
    assert cosines.mean() == pytest.approx(0.5, abs=0.03)  # 1 / (1 + noise ** 2)


def test_a_bin_without_the_biases_gradient_gives_the_sample_by_its_brightness() -> None:
    sample = torch.linspace(0.2, 0.6, 12)
    weight = torch.stack([-3e-6 * sample, torch.zeros(12)])[None]
    rows = in_bins(
        weight, torch.zeros(1, 2), {"edges": np.array([0.39, 0.41, 1.0]), "sparse": np.ones(1)}
    )
    assert torch.allclose(rows.inputs[0, 0], sample, atol=1e-6)
    assert rows.inputs[0, 1].isnan().all()


def test_noise_in_the_rows_costs_no_sample_that_is_alone(make_case: Make) -> None:
    """Alone: the only one that activates one of two neighbouring rows, whatever its brightness."""
    spec = parse("attack", "imprint")
    client = "fedsgd+victims=4+batch_size=8"
    seen, truth = make_case(
        spec, model=MODEL, training="untrained", client=client, crafting="imprint+noise=2"
    )
    enter = seen.model.get_submodule("planted.enter")
    with torch.no_grad():
        active = enter(torch.from_numpy(truth.inputs).flatten(2)) > 0
    apart = active ^ torch.nn.functional.pad(active[:, :, 1:], (0, 1))
    single = (apart & (apart.sum(1, keepdim=True) == 1)).any(2).numpy()
    found = spec.reconstruct(seen)
    errors = np.abs(match_to_truth(truth, found).estimate - truth.inputs).max((2, 3, 4))
    assert single.any()
    assert (errors[single] < 1e-3).all()
    assert ((found.averaged_count == 1).sum(1) == single.sum(1)).all()


@pytest.mark.parametrize("sparse", [0, 1])
def test_without_the_biases_gradient_rows_with_noise_give_the_sample_by_what_they_measure(
    sparse: int,
) -> None:
    sample = torch.linspace(0.2, 0.6, 12)
    measured = torch.stack([torch.linspace(1, 3, 12), torch.linspace(3, 1, 12)])
    measured /= measured.sum(1, keepdim=True)
    first, second = (measured @ sample).tolist()
    edges = np.array([first - 1e-4, (first if sparse else second) + 1e-4, 1.0])
    weight = torch.stack([-3e-6 * sample, torch.zeros(12)])[None]
    secret = {"edges": edges, "sparse": np.array([sparse])}
    rows = in_bins(weight, torch.zeros(1, 2), secret, measured)
    assert torch.allclose(rows.inputs[0, 0], sample, atol=1e-3)


def test_expected_shares_are_those_of_a_simulation() -> None:
    random = np.random.default_rng(0)
    drawn = random.integers(0, 40, (4000, 16))
    share = ((drawn[:, :, None] == drawn[:, None]).sum(2) == 1).mean()
    assert abs(expected_alone(40, 16) - share) < 0.01
    active = random.random((1500, 30, 16)) < 1 / 16
    singled = (active & (active.sum(2, keepdims=True) == 1)).any(1).mean()
    assert abs(expected_singled_out(30, 16, 1 / 16) - singled) < 0.01


@pytest.mark.parametrize(
    ("crafting", "model", "reason"),
    [
        ("imprint", "lenet", "no place; use model planted"),
        ("qbi", "lenet", "begins with a convolution"),
        ("trap_weights", "mlp", "needs a ReLU"),
    ],
)
def test_models_without_a_place_are_refused(crafting: str, model: str, reason: str) -> None:
    with pytest.raises(IncompatibleError, match=reason):
        parse("crafting", crafting).check(parse("dataset", "photos"), parse("model", model))


@pytest.mark.parametrize(
    ("modality", "model"),
    [("image", "fc2+hidden=64"), ("tabular", "mlp+hidden=64+activation=relu")],
)
@pytest.mark.parametrize("name", ["qbi", "trap_weights"])
def test_what_is_read_off_single_rows_are_samples(
    make_case: Make, name: str, modality: str, model: str
) -> None:
    """Those that it reports as single: they are the true ones, and none is returned twice."""
    spec, client = parse("attack", name), "fedsgd+victims=2+batch_size=4"
    crafting = "qbi+batch_size=4" if name == "qbi" else name
    training = "untrained" if modality == "image" else "untrained+init=uniform"
    seen, truth = make_case(
        spec, modality, model=model, training=training, client=client, crafting=crafting
    )
    found = spec.reconstruct(seen)
    single = found.averaged_count == 1
    assert single.any()
    for inputs, mask, true in zip(found.inputs, single, truth.inputs, strict=True):
        errors = np.abs(inputs[mask][:, None] - true).reshape(mask.sum(), len(true), -1).max(2)
        assert (errors.min(1) < 1e-3).all()
        assert len(set(errors.argmin(1))) == mask.sum()
