from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.defenses.soteria import Features, Soteria, estimated_norms, exact_norms, sensitivities
from gleak.models import batching
from gleak.models.layer_search import DenseInput, features_before, first_dense_input
from gleak.runtime.seeding import drawing_from

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(4)


def network(name: str = "lenet+width=2", shape: tuple[int, ...] = (1, 8, 8)) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model: nn.Module = parse("model", name).build(shape, 4)
    return model.eval()


def ones(model: nn.Module, rounds: int = 1) -> dict[str, Tensor]:
    """An update in which every value that is left out shows."""
    return {name: torch.ones(rounds, *value.shape) for name, value in model.named_parameters()}


def pruned(
    spec: str, model: nn.Module, weight: str, images: Tensor = IMAGES, seed: int = 0
) -> np.ndarray:
    """Which columns of a weight are left out, whole columns alone; Shape (E)."""
    with drawing_from(torch.Generator().manual_seed(seed)):
        after = parse("defense", spec).with_samples(ones(model), model, images, LABELS)
    left = after.pop(weight)[0]
    assert all((value == 1).all() for value in after.values())
    assert (left == left[:1]).all()
    return (left[0] == 0).numpy()


def slow_sums(features: nn.Module, images: Tensor) -> np.ndarray:
    """The sum over samples of ||dr_i / dX|| / |r_i|, one sample and element at a time."""
    sums = torch.zeros(features(images).shape[1], dtype=torch.float64)
    for image in images:
        sample = image[None].requires_grad_()
        values = features(sample)[0]
        for number, value in enumerate(values):
            if value != 0:
                (slope,) = torch.autograd.grad(value, sample, retain_graph=True)
                sums[number] += slope.double().norm() / value.detach().double().abs()
    return sums.numpy()


@pytest.mark.parametrize("percentile", [60, 80])
@pytest.mark.parametrize(
    ("name", "weight", "layer"),
    [
        ("lenet+width=2", "7.weight", "first_dense"),
        ("vgg_small+width=4+hidden=6", "classifier.0.weight", "first_dense"),
        ("vgg_small+width=4+hidden=6", "classifier.3.weight", "classifier"),
    ],
)
def test_elements_below_the_percentile_of_the_definition_are_pruned(
    name: str, weight: str, layer: str, percentile: int
) -> None:
    model = network(name)
    whole = list(model.named_modules())
    parts = [(key, part) for key, part in whole if key and not list(part.children())]
    until = [key for key, _ in parts].index(weight.removesuffix(".weight"))
    sums = slow_sums(nn.Sequential(*(part for _, part in parts[:until])), IMAGES)
    expected = sums < np.percentile(sums, percentile)
    spec = f"soteria+percentile={percentile}+layer={layer}+probes=none"
    assert np.array_equal(pruned(spec, model, weight), expected)
    assert expected.any()


def test_of_a_network_on_the_samples_themselves_the_largest_values_go() -> None:
    """There dr_i / dX has length 1; a value that is zero in all samples counts as pruned first."""
    images = torch.zeros(2, 1, 2, 5)
    images.flatten(1)[:] = torch.tensor([0.0, 0.9, -0.8, 0.1, 0.2, 0.7, 0.3, 0.6, 0.4, 0.5])
    model = nn.Sequential(nn.Flatten(), nn.Linear(10, 3))
    for percentile, expected in ((10, {0}), (50, {0, 1, 2, 5, 7}), (90, set(range(10)) - {3})):
        left = pruned(f"soteria+percentile={percentile}", model, "1.weight", images)
        assert set(np.flatnonzero(left)) == expected
    images.flatten(1)[0, 1] = 0  # a dead sample has no say
    left = pruned("soteria+percentile=20", model, "1.weight", images)
    assert set(np.flatnonzero(left)) == {0, 1}


def test_every_round_has_the_same_mask() -> None:
    model = network()
    after = Soteria(probes=None).with_samples(ones(model, 3), model, IMAGES, LABELS)["7.weight"]
    assert torch.equal(after, after[:1].expand_as(after))
    assert (after == 0).any()
    without = nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten())
    with pytest.raises(IncompatibleError, match=r"defense soteria.*no dense layer"):
        Soteria().with_samples({}, without, IMAGES, LABELS)


def test_estimates_depend_on_the_random_numbers_and_come_near() -> None:
    """No more elements than probes have exact derivatives."""
    model = network("lenet+width=12")
    exact = pruned("soteria+probes=none", model, "7.weight")
    few, others = (pruned("soteria+probes=2", model, "7.weight", seed=s) for s in (0, 1))
    many = pruned("soteria+probes=40", model, "7.weight")
    assert not np.array_equal(few, others)
    assert (many == exact).mean() > 0.9
    for seed in range(3):
        found = pruned(f"soteria+probes={len(exact)}", model, "7.weight", seed=seed)
        assert np.array_equal(found, exact)


def test_statistics_of_a_network_in_training_are_left_alone() -> None:
    model = network("resnet20+width=1").train()
    before = {key: value.clone() for key, value in model.named_buffers()}
    Soteria().with_samples(ones(model), model, IMAGES, LABELS)
    assert before
    assert all(torch.equal(value, before[key]) for key, value in model.named_buffers())
    assert model.training


COLOURED = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
NAMES = ["lenet+width=2", "resnet20+width=1", "vgg_small+width=2+hidden=6", "fc2"]


def coloured(name: str = "lenet+width=2") -> tuple[nn.Module, DenseInput, Features]:
    """A network of coloured images, its first dense layer, and what comes before that."""
    model = network(name, (3, 8, 8))
    entry = first_dense_input(model, COLOURED)
    assert entry is not None
    return model, entry, features_before(model, entry.layer)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_those_of_the_rows_of_the_jacobian(name: str) -> None:
    _, _, features = coloured(name)
    for image, lengths in zip(COLOURED, exact_norms(features, COLOURED), strict=True):
        jacobian = torch.autograd.functional.jacobian(features, image[None]).flatten(2)
        torch.testing.assert_close(lengths, jacobian[0].norm(dim=1), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["lenet+width=2", "vgg_small+width=2+hidden=6"])
@pytest.mark.parametrize("probes", [16, 256])
def test_estimates_deviate_as_little_as_stated(name: str, probes: int) -> None:
    """The mean square of so many relative errors is far below four times its expectation."""
    _, _, features = coloured(name)
    exact = exact_norms(features, COLOURED)
    with drawing_from(torch.Generator().manual_seed(2)):
        estimate = estimated_norms(features, COLOURED, probes)
    alive = exact > 0
    assert (estimate[~alive] == 0).all()
    errors = (estimate / exact - 1)[alive]
    assert 0 < errors.square().mean().sqrt() < 2 / np.sqrt(2 * probes)


def test_rows_with_one_entry_are_estimated_without_error() -> None:
    _, _, features = coloured("fc2")
    assert torch.equal(estimated_norms(features, COLOURED, 1), torch.ones(3, 192))


@pytest.mark.parametrize("at_once", [1, 2])
def test_samples_and_elements_in_parts_give_the_same_sums(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, entry, _ = coloured()
    whole = sensitivities(model, entry, COLOURED, None)
    monkeypatch.setattr(batching, "VALUES", at_once * COLOURED[0].numel())
    torch.testing.assert_close(sensitivities(model, entry, COLOURED, None), whole)
