"""What holds for every attack that unmixes a dense layer's gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.private import Private
from gleak.attacks.unmixing_attack import UnmixingAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
UNMIXING = sorted(n for n, cls in load("attack").items() if issubclass(cls, UnmixingAttack))
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


@pytest.mark.parametrize("name", UNMIXING)
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


@pytest.mark.parametrize("name", UNMIXING)
def test_of_a_users_network_the_neurons_are_counted_when_it_is_there(
    name: str, make_case: Make
) -> None:
    spec, client = parse("attack", name), parse("client", "fedsgd+batch_size=17")
    spec.check(parse("dataset", "photos"), parse("model", "custom"), client)
    seen, _ = make_case(EDGES, **CELL)
    with pytest.raises(IncompatibleError, match=r"17 and 16 .layer '\d'"):
        spec.separate(replace(seen, batch_size=17))


@pytest.mark.parametrize("name", UNMIXING)
def test_a_network_without_a_dense_layer_for_samples_is_refused(name: str, make_case: Make) -> None:
    spec = parse("attack", name)
    seen, _ = make_case(EDGES, **CELL)
    with pytest.raises(IncompatibleError, match="this model has no such layer"):
        spec.separate(replace(seen, model=Convolutions()))


@pytest.mark.parametrize("name", ["cpa", "cpa_edges", "cpa_fi"])
def test_such_a_network_is_refused_before_the_update_is_read(name: str) -> None:
    with pytest.raises(IncompatibleError, match="this model has no such layer"):
        parse("attack", name).reads(Convolutions(), (3, 8, 8))


@pytest.mark.parametrize("name", UNMIXING)
def test_nothing_is_granted(name: str) -> None:
    assert parse("attack", name).grants == frozenset()


@pytest.mark.parametrize("name", ["cpa+iterations=2", "cpa_edges"])
def test_the_first_dense_layer_and_the_classifiers_bias_suffice(name: str, make_case: Make) -> None:
    spec = parse("attack", name)
    seen, _ = make_case(spec, **CELL)
    names = spec.reads(seen.model, seen.input_shape)
    assert names == {"1.weight", "1.bias", "3.bias"}
    few = replace(seen, update={name: seen.update[name] for name in names})
    assert (spec.reconstruct(few).inputs == spec.reconstruct(seen).inputs).all()


@pytest.mark.parametrize("name", ["cpa+iterations=400+lr=0.01+tv=10+tolerance=0.01", "cpa_edges"])
def test_a_victim_that_shares_its_batch_comes_out_as_alone(
    name: str, make_photo_case: Make
) -> None:
    """Searches of many iterations, which end at different ones; apart from rounding."""
    spec = parse("attack", name)
    seen, _ = make_photo_case(spec, "fedsgd+batch_size=4+victims=4")
    together = spec.reconstruct(seen)
    assert len(set(together.iterations)) > 1
    for victim in range(4):
        update = {key: value[[victim]] for key, value in seen.update.items()}
        ids = seen.victim_ids[[victim]]
        alone = spec.reconstruct(replace(seen, update=update, victim_ids=ids))
        assert alone.iterations[0] == together.iterations[victim]
        np.testing.assert_allclose(alone.inputs[0], together.inputs[victim], atol=2e-3)


@pytest.mark.parametrize("counted", ["batch_size", "spectrum"])
@pytest.mark.parametrize("noise", ["none", "gaussian+std=1e-4"])
def test_samples_are_counted_by_the_spectrum_if_asked_for(
    counted: str, noise: str, make_photo_case: Make
) -> None:
    spec = parse("attack", f"cpa_edges+counted={counted}")
    seen, _ = make_photo_case(spec, defense=noise)
    told = spec.reconstruct(replace(seen, batch_size=4))
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
