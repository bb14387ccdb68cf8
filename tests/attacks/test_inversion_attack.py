"""All attacks that end in feature inversion, and inversion of true embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gleak.attacks.first_layer import label_parameters
from gleak.attacks.inversion_attack import InversionSearch, embedding_layer
from gleak.attacks.matching.priors import total_variation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from tests.attacks.cases import Make

INVERTING = sorted(n for n, cls in load("attack").items() if issubclass(cls, InversionSearch))
FEDSGD = parse("client", "fedsgd")
FI = parse("attack", "fi")


WITHOUT_DENSE = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten())


@pytest.mark.parametrize("name", INVERTING)
@pytest.mark.parametrize(
    ("dataset", "model", "fault"),
    [
        ("photos", "fc2", "model fc2 begins with that layer; use cpa"),
        ("photos", "mlp", "model mlp begins with that layer; use cpa"),
        ("breast_cancer", "mlp", "does not take tabular data"),
    ],
)
def test_what_has_no_features_is_refused(name: str, dataset: str, model: str, fault: str) -> None:
    with pytest.raises(IncompatibleError, match=f"attack {name}.* {fault}"):
        parse("attack", name).check(parse("dataset", dataset), parse("model", model), FEDSGD)


@pytest.mark.parametrize("name", INVERTING)
def test_a_start_that_does_not_fit_is_named_with_its_attack(name: str) -> None:
    attack = parse("attack", f"{name}+start=red")
    with pytest.raises(IncompatibleError) as caught:
        attack.check(parse("dataset", "digits"), parse("model", "lenet"), FEDSGD)
    assert str(caught.value).startswith(f"attack {name}+start=red: start red ")


@pytest.mark.parametrize("name", INVERTING)
def test_every_field_of_the_search_reaches_it(name: str) -> None:
    changes = {"inversion_iterations": 9, "inversion_lr": 0.75, "tv": 0.25}
    changes |= {"start": "uniform", "box": "false"}
    standard = parse("attack", name)
    assert set(changes) == set(InversionSearch.model_fields)
    for field, value in changes.items():
        changed = parse("attack", f"{name}+{field}={value}")
        assert changed.search_parts() != standard.search_parts(), field
    assert parse("attack", f"{name}+inversion_iterations=9").cost().evaluations == 9
    assert parse("attack", f"{name}+start=optimal").grants == standard.grants | {"class_sample"}


def test_the_network_itself_is_asked_where_the_spec_does_not_tell(make_case: Make) -> None:
    seen, _ = make_case(FI, model="lenet+width=3")
    dense = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    with pytest.raises(IncompatibleError, match="takes the samples themselves; use cpa"):
        embedding_layer(dense, seen.input_shape)
    with pytest.raises(IncompatibleError, match="this model has none"):
        embedding_layer(WITHOUT_DENSE, seen.input_shape)
    assert embedding_layer(seen.model, seen.input_shape) == "7"


def test_labels_are_read_off_the_classifier_alone() -> None:
    shape = (3, 8, 8)
    network = parse("model", "vgg_small+width=2+hidden=5").build(shape, 4)
    (name,) = label_parameters(network, shape)
    assert torch.equal(network.get_parameter(name), list(network.parameters())[-1])
    with pytest.raises(IncompatibleError, match="no dense layer with 4 outputs"):
        label_parameters(WITHOUT_DENSE, shape)


SHORT_FI = parse("attack", "fi+inversion_iterations=150+tv=0.01")
CELL = {
    "model": "lenet+width=64+activation=tanh",
    "training": "untrained",
    "client": "fedsgd+batch_size=2+victims=3",
}


def test_images_come_from_their_embeddings(make_case: Make) -> None:
    """Each beside the image whose embedding it was made from, so in the order of the grant."""
    seen, truth = make_case(SHORT_FI, **CELL)
    assert SHORT_FI.reads(seen.model, seen.input_shape) == {"7.bias"}
    found = SHORT_FI.reconstruct(seen)
    granted = seen.granted["embeddings"].numpy()
    assert np.array_equal(found.embeddings, granted)
    same = (granted[:, :, None] == truth.embeddings[:, None]).all(3)
    assert (same.sum(2) == 1).all()
    wanted = np.take_along_axis(truth.inputs, same.argmax(2)[..., None, None, None], axis=1)
    errors = np.square(found.inputs - wanted).mean((1, 2, 3, 4))
    of_mean_colours = wanted.var((3, 4)).mean((1, 2))
    assert (errors < of_mean_colours / 2).all()
    assert (found.objective < 0.01 * found.trace_objective[:, 0]).all()
    assert found.converged.all()
    assert np.array_equal(found.labels, np.sort(truth.labels, axis=1))


def test_total_variation_makes_images_smooth(make_case: Make) -> None:
    rough, smooth = (
        torch.from_numpy(spec.reconstruct(make_case(spec, **CELL)[0]).inputs)
        for spec in (SHORT_FI, parse("attack", "fi+inversion_iterations=150+tv=1"))
    )
    assert (total_variation(smooth) < 0.3 * total_variation(rough)).all()
