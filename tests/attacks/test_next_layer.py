"""Derivatives and pixels that the layer behind the first one tells, against the true ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gleak.attacks.next_layer import NextLayer, weight_behind
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

SHAPE = (1, 8, 8)
ONE = parse("attack", "matrix_completion")
BATCH = parse("attack", "matrix_completion+attack=cpa_edges")
MODEL = "mlp+hidden=256+activation=relu"


class Biased(nn.Module):
    """A network whose second dense layer takes activations of the first one, changed or not."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), change, nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 4)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (nn.ReLU(), "layers.3.weight"),
        (nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), "layers.3.weight"),
        (nn.Tanh(), ""),
        (nn.LeakyReLU(0.3), ""),
        (nn.Sequential(nn.LayerNorm(16), nn.ReLU()), ""),
        (nn.Identity(), ""),
    ],
    ids=["relu", "dropout", "tanh", "leaky", "norm", "none"],
)
def test_the_next_layer_is_found_by_what_it_takes(change: nn.Module, expected: str) -> None:
    torch.manual_seed(0)
    assert weight_behind(Biased(change).eval(), SHAPE) == expected


@pytest.mark.parametrize("samples", [1, 4])
def test_derivatives_are_exact_from_approximate_ones(make_photo_case: Make, samples: int) -> None:
    seen, truth = make_photo_case(ONE, f"fedsgd+batch_size={samples}", model=MODEL)
    layer = NextLayer.of(seen.of_victim(0))
    assert layer is not None
    inputs, labels = (torch.from_numpy(one[0]) for one in (truth.inputs, truth.labels))
    outputs = layer.first.outputs(inputs.flatten(1).double())
    true = layer.first.slopes(inputs.flatten(1), outputs, labels).T / samples
    noise = torch.randn(true.shape, generator=torch.Generator().manual_seed(0))
    gradient = seen.update["1.weight"][0, 0].double()
    found = layer.separated(gradient, true + 0.05 * true.std() * noise)
    assert found is not None and found.told.equal(gradient.any(1))
    factors = (found.slopes * true).sum(0) / found.slopes.square().sum(0)
    torch.testing.assert_close(found.scaled(factors).slopes, true, atol=1e-5, rtol=0)
    assert layer.separated(gradient, noise.double()) is None
    equal = true[:, :1].expand(-1, samples)
    assert samples == 1 or layer.separated(gradient, equal) is None


@pytest.mark.parametrize(
    ("defense", "samples", "gain"),
    [
        ("topk+keep=0.05", 1, 5),
        ("topk+keep=0.25", 4, 5),
        ("random_mask+keep=0.1", 4, 5),
        ("soteria+percentile=60", 1, 5),
        ("soteria+percentile=60", 4, 5),
    ],
)
def test_samples_are_better_for_it(
    make_photo_case: Make, defense: str, samples: int, gain: float
) -> None:
    attack, client = ONE if samples == 1 else BATCH, f"fedsgd+batch_size={samples}+victims=2"
    seen, truth = make_photo_case(attack, client, model=MODEL, defense=defense)
    blind = replace(seen, update={n: v for n, v in seen.update.items() if n != "3.weight"})
    with_it, without = (attack.reconstruct(one) for one in (seen, blind))
    assert (
        psnr(truth.inputs, with_it.inputs).mean() > psnr(truth.inputs, without.inputs).mean() + gain
    )


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize(
    ("client", "model", "defense"),
    [
        ("fedavg+local_steps=1+local_lr=0.1+sends=weights", MODEL, "soteria+percentile=60"),
        ("fedsgd", "mlp+hidden=24+activation=relu", "soteria+percentile=60"),
        ("fedsgd", MODEL, "topk+keep=0.01"),
    ],
    ids=["weights", "few neurons", "few values"],
)
def test_samples_are_not_worse_for_it(
    make_photo_case: Make, client: str, model: str, defense: str, samples: int
) -> None:
    attack = ONE if samples == 1 else BATCH
    seen, truth = make_photo_case(attack, f"{client}+batch_size={samples}", model, defense=defense)
    blind = replace(seen, update={n: v for n, v in seen.update.items() if n != "3.weight"})
    with_it, without = (attack.reconstruct(one) for one in (seen, blind))
    gain = psnr(truth.inputs, with_it.inputs) - psnr(truth.inputs, without.inputs)
    assert gain.mean() > -0.1


def test_columns_that_are_removed_are_not_zero_activations(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(ONE, "fedsgd", MODEL, defense="soteria+layer=classifier")
    layer = NextLayer.of(seen.of_victim(0))
    assert layer is not None
    assert layer.sent.equal((seen.update["3.weight"][0, 0] != 0).any(0).expand_as(layer.sent))
    nothing = {**seen.update, "3.weight": torch.zeros_like(seen.update["3.weight"])}
    assert NextLayer.of(replace(seen, update=nothing).of_victim(0)) is None


def test_a_weight_that_has_a_null_vector_tells_nothing_false(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(ONE, "fedsgd", MODEL)
    layer = NextLayer.of(seen.of_victim(0))
    assert layer is not None
    weight = layer.weight.clone()
    weight[1] = weight[0]
    gradient = seen.update["1.weight"][0, 0].double()
    noise = torch.randn(len(gradient), 1, generator=torch.Generator().manual_seed(0)).double()
    assert replace(layer, weight=weight).separated(gradient, noise) is None


@pytest.mark.parametrize("kind", ["frozen", "computed", "shared"])
def test_a_weight_that_is_not_sent_as_it_is_is_not_used(kind: str) -> None:
    network = Biased(nn.ReLU()).eval()
    layer = network.layers[3]
    if kind == "frozen":
        layer.weight.requires_grad_(False)
    elif kind == "computed":
        nn.utils.parametrizations.weight_norm(layer)
    else:
        network.other = nn.Linear(16, 6)
        network.other.weight = layer.weight
    assert weight_behind(network, SHAPE) == ""


def test_noise_leaves_the_samples_as_they_are(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(ONE, "fedsgd", model=MODEL, defense="soteria+percentile=60")
    weight = seen.update["1.weight"]
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    noisy = {**seen.update, "1.weight": weight + (weight != 0) * weight.std() * noise}
    seen = replace(seen, update=noisy)
    inner = parse("attack", "aono").reconstruct(ONE.completed(seen))
    np.testing.assert_array_equal(ONE.reconstruct(seen).inputs, inner.inputs)
