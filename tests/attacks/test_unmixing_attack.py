"""All attacks that unmix the gradients of a dense layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.protocol import Protocol
from gleak.attacks.base import AttackSpec
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing
from gleak.attacks.unmixing_attack import InputUnmixing, UnmixingAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from tests.attacks.cases import Make, holding

UNMIXING = sorted(n for n, cls in load("attack").items() if issubclass(cls, UnmixingAttack))
SEPARATING = [name for name in UNMIXING if name != "cpa_noisy"]
"""Without the attack that measures noise, for which it needs more neurons than samples."""
EDGES = parse("attack", "cpa_edges")
CELL = {"model": "mlp+hidden=16", "client": "fedsgd+batch_size=3+victims=2"}


class Convolutions(nn.Module):
    """Logits of a dense layer that is passed at every place, so of none that is given a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(3, 5, 3), nn.Linear(5, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.convolution(inputs).movedim(1, -1)
        return self.dense(maps).mean((1, 2))


@pytest.mark.parametrize("name", SEPARATING)
@pytest.mark.parametrize(
    ("dense", "convolutional", "most"),
    [("fc2+hidden=7", "vgg_small+hidden=7", 7), ("fc2", "vgg_small+hidden=256", 256)],
)
def test_more_samples_than_neurons_are_refused_before_any_work(
    name: str, dense: str, convolutional: str, most: int
) -> None:
    spec, photos = parse("attack", name), parse("dataset", "photos")
    model = parse("model", dense if name in ("cpa", "cpa_edges") else convolutional)
    spec.check(photos, model, parse("client", f"fedsgd+batch_size={most}"))
    fault = f"attack {name} .*: {most + 1} and {most} .*; use a smaller batch_size or a wider layer"
    with pytest.raises(IncompatibleError, match=fault):
        spec.check(photos, model, parse("client", f"fedavg+batch_size={most + 1}"))


def test_where_the_classifier_is_the_only_dense_layer_its_outputs_count() -> None:
    spec, photos = parse("attack", "cpa_fi"), parse("dataset", "photos")
    for model in ("lenet", "resnet20"):
        spec.check(photos, parse("model", model), parse("client", "fedsgd+batch_size=10"))
        with pytest.raises(IncompatibleError, match="11 and 10"):
            spec.check(photos, parse("model", model), parse("client", "fedsgd+batch_size=11"))


@pytest.mark.parametrize("name", SEPARATING)
def test_of_a_users_network_the_neurons_are_counted_when_it_is_there(
    name: str, make_case: Make
) -> None:
    spec, client = parse("attack", name), parse("client", "fedsgd+batch_size=17")
    spec.check(parse("dataset", "photos"), parse("model", "custom"), client)
    seen, _ = make_case(EDGES, **CELL)
    with pytest.raises(IncompatibleError, match=r"17 and 16 .layer '\d'"):
        spec.separate(replace(seen, protocol=client.protocol))


@pytest.mark.parametrize("name", UNMIXING)
def test_a_network_without_a_dense_layer_for_samples_is_refused(name: str, make_case: Make) -> None:
    spec = parse("attack", name)
    seen, _ = make_case(EDGES, **CELL)
    with pytest.raises(IncompatibleError, match="this model has no such layer"):
        spec.separate(replace(seen, model=Convolutions()))
    if name != "cpa_fi_gm":
        with pytest.raises(IncompatibleError, match=r"this model has no(ne| such layer)"):
            spec.reads(Convolutions(), (3, 8, 8))


@pytest.mark.parametrize("name", ["cpa+iterations=2", "cpa_edges"])
def test_the_first_dense_layer_and_the_classifiers_bias_suffice(name: str, make_case: Make) -> None:
    spec = parse("attack", name)
    seen, _ = make_case(spec, **CELL)
    names = spec.reads(seen.model, seen.input_shape)
    assert names == {"1.weight", "1.bias", "3.bias"}
    few = replace(seen, update={name: seen.update[name] for name in names})
    assert (spec.reconstruct(few).inputs == spec.reconstruct(seen).inputs).all()


@pytest.mark.parametrize("counted", ["batch_size", "spectrum"])
@pytest.mark.parametrize("noise", ["none", "gaussian+std=1e-4"])
def test_samples_are_counted_by_the_spectrum_if_asked_for(
    counted: str, noise: str, make_photo_case: Make
) -> None:
    spec = parse("attack", f"cpa_edges+counted={counted}")
    seen, _ = make_photo_case(spec, defense=noise)
    told = spec.reconstruct(replace(seen, protocol=Protocol(batch_size=4)))
    told.validate()
    assert told.inputs.shape[1] == told.labels.shape[1] == (4 if counted == "batch_size" else 6)


def test_by_the_spectrum_a_gradient_of_zeros_is_one_grey_sample(make_case: Make) -> None:
    spec = parse("attack", "cpa_edges+counted=spectrum")
    seen, _ = make_case(spec, **CELL)
    silent = {key: torch.zeros_like(value) for key, value in seen.update.items()}
    found = spec.reconstruct(replace(seen, update=silent))
    found.validate()
    assert found.inputs.shape[1] == 1
    assert (found.inputs == 0.5).all()
    assert not found.converged.any()


INPUT_UNMIXING = [name for name in SEPARATING if issubclass(load("attack")[name], InputUnmixing)]
FEDSGD = parse("client", "fedsgd")


def short(name: str, fields: str = "") -> AttackSpec:
    return parse("attack", f"{name}{'+iterations=60' if name == 'cpa' else ''}{fields}")


@pytest.mark.parametrize("name", ["aono", *INPUT_UNMIXING])
def test_networks_that_begin_with_a_convolution_are_refused(name: str, make_case: Make) -> None:
    spec, photos = short(name), parse("dataset", "photos")
    for model in ("fc2", "mlp", "custom"):
        spec.check(photos, parse("model", model), FEDSGD)
    for model in ("lenet", "resnet20", "vgg_small"):
        with pytest.raises(IncompatibleError, match=f"with a convolution; {spec.instead}"):
            spec.check(photos, parse("model", model), FEDSGD)
    seen, _ = make_case(spec)
    with pytest.raises(IncompatibleError, match="use fc2 or mlp"):
        spec.reconstruct(seen)


@pytest.mark.parametrize("name", INPUT_UNMIXING)
def test_samples_that_are_alike_are_mid_grey_but_for_one(name: str, make_photo_case: Make) -> None:
    spec = short(name)
    seen, truth = make_photo_case(spec)
    inputs, labels = truth.inputs.copy(), truth.labels.copy()
    inputs[1, 4:], labels[1, 4:] = inputs[1, 0], labels[1, 0]
    found = spec.reconstruct(holding(seen, inputs, labels))
    found.validate()
    assert found.converged.tolist() == [True, False]
    for samples in (found.inputs, found.mirrored):
        assert (samples == 0.5).all((2, 3, 4)).sum(1).tolist() == [0, 2]


@pytest.mark.parametrize("name", INPUT_UNMIXING)
def test_where_all_victims_have_fewer_every_sample_still_has_its_place(
    name: str, make_photo_case: Make
) -> None:
    spec = short(name)
    seen, truth = make_photo_case(spec)
    inputs, labels = (values[:, [0, 1, 0, 0, 1, 1]] for values in (truth.inputs, truth.labels))
    found = spec.reconstruct(holding(seen, inputs, labels))
    found.validate()
    assert found.inputs.shape == truth.inputs.shape
    assert (found.inputs == 0.5).all((2, 3, 4)).sum(1).tolist() == [4, 4]


@pytest.mark.parametrize("name", INPUT_UNMIXING)
def test_pictures_of_one_colour_are_survived(name: str, make_photo_case: Make) -> None:
    spec = short(name)
    seen, truth = make_photo_case(spec)
    inputs = truth.inputs.copy()
    inputs[0, 2] = np.array([0.1, 0.5, 0.8])[:, None, None]  # something is left of it, centred
    inputs[1, 3] = 0.7  # nothing is
    found = spec.reconstruct(holding(seen, inputs, truth.labels))
    found.validate()
    assert found.converged.tolist() == [True, name == "cpa_edges"]


@pytest.mark.parametrize("name", INPUT_UNMIXING)
def test_one_sample_is_exact(name: str, make_photo_case: Make) -> None:
    spec = short(name)
    seen, truth = make_photo_case(spec, client="fedsgd+batch_size=1+victims=2")
    found = spec.reconstruct(seen)
    np.testing.assert_allclose(found.inputs, truth.inputs, atol=1e-4)
    assert np.array_equal(found.labels, truth.labels)
    flat = np.broadcast_to(np.array([0.1, 0.5, 0.8])[:, None, None], truth.inputs.shape)
    coloured = holding(seen, flat.astype(np.float32), truth.labels)
    np.testing.assert_allclose(spec.reconstruct(coloured).inputs, flat, atol=1e-4)


@pytest.mark.parametrize("name", INPUT_UNMIXING)
def test_sign_and_scale_are_read_off_the_bias(
    name: str, make_photo_case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unmixing is the right one, but for its order, lengths and signs."""
    seen, truth = make_photo_case(EDGES)
    true = truth.inputs[:, ::-1]
    factors = torch.tensor([1.0, -2.0, 0.1, -5.0, 3.0, -1.0], dtype=torch.double)[:, None]
    sources = torch.from_numpy(true.copy()).flatten(2).double()

    def know(_: AttackSpec, mixture: Mixture, *others: object) -> Unmixing:
        rows = factors * torch.linalg.pinv(mixture.weight.double() @ torch.linalg.pinv(sources))
        return Unmixing(rows, torch.zeros(2).long(), torch.zeros(2))

    monkeypatch.setattr(load("attack")[name], "unmix", know)
    found = short(name).reconstruct(seen)
    np.testing.assert_allclose(found.inputs, true, atol=1e-3)
    turned = short(name).reconstruct(
        replace(seen, update={**seen.update, "1.bias": -seen.update["1.bias"]})
    )
    np.testing.assert_allclose(turned.mirrored, found.inputs, atol=1e-5)
    np.testing.assert_allclose(turned.inputs, found.mirrored, atol=1e-5)
    filled = short(name, "+scale=range").reconstruct(seen).inputs
    low, high = true.min((2, 3, 4), keepdims=True), true.max((2, 3, 4), keepdims=True)
    np.testing.assert_allclose(filled, (true - low) / (high - low), atol=1e-3)
