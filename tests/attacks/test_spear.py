from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.observation import Observation
from gleak.attacks.spear import last_weight, without_probabilities
from gleak.attacks.unmixing import relu_search
from gleak.attacks.unmixing.relu_sparsity import Factors
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, matched

SPEAR = parse("attack", "spear+rounds=12")
CLIENT = "fedsgd+batch_size=4+victims=2"
RELU = "mlp+hidden=96+activation=relu"


@pytest.mark.parametrize("modality", ["image", "tabular"])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
def test_a_batch_is_found_with_its_labels(make_case: Make, modality: str, loss: str) -> None:
    seen, truth = make_case(SPEAR, modality, RELU, client=f"{CLIENT}+loss={loss}")
    found = SPEAR.reconstruct(seen)
    assert found.converged.all()
    np.testing.assert_allclose(matched(truth.inputs, found.inputs), truth.inputs, atol=1e-4)
    assert np.array_equal(np.sort(found.labels), np.sort(truth.labels))


class Deeper(nn.Module):
    """The network with a layer more before its last, which changes nothing."""

    def __init__(self, shallow: nn.Module) -> None:
        super().__init__()
        self.shallow = shallow
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * self.shallow(inputs)


def deeper(seen: Observation) -> Observation:
    update = {f"shallow.{name}": value for name, value in seen.update.items()}
    return replace(seen, model=Deeper(seen.model), update=update)


def test_without_a_last_layer_next_the_zeros_suffice(make_case: Make) -> None:
    seen, truth = make_case(SPEAR, model=RELU, client="fedsgd+batch_size=3+victims=2")
    found = SPEAR.reconstruct(deeper(seen))
    assert found.converged.all()
    np.testing.assert_allclose(matched(truth.inputs, found.inputs), truth.inputs, atol=1e-4)


def test_edges_alone_suffice(make_photo_case: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(factors: Factors, _: torch.Generator) -> Tensor:
        return factors.basis.new_zeros(0, factors.rank)

    monkeypatch.setattr(relu_search, "sparse_columns", none)
    spec = parse("attack", "spear+rounds=3")
    seen, truth = make_photo_case(spec, "fedsgd+batch_size=6+victims=1")
    found = spec.reconstruct(deeper(seen))
    assert found.converged.all()
    np.testing.assert_allclose(matched(truth.inputs, found.inputs), truth.inputs, atol=1e-3)


@pytest.mark.parametrize(("neurons", "serves"), [(8, False), (9, True)])
def test_the_last_layer_serves_with_few_classes_for_its_neurons(
    make_case: Make, neurons: int, serves: bool
) -> None:
    """Slopes at more outputs than a sample has active neurons would explain anything."""
    seen, _ = make_case(SPEAR, model=f"mlp+hidden={neurons}+activation=relu", client=CLIENT)
    assert seen.classes == 4
    assert (last_weight(seen, neurons) is not None) == serves


class LastFirst(nn.Module):
    """A perceptron that names its last layer first."""

    def __init__(self, perceptron: nn.Sequential) -> None:
        super().__init__()
        flatten, first, activation, last = perceptron
        self.last, self.before = last, nn.Sequential(flatten, first, activation)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.before(inputs))


def test_the_last_layer_is_the_one_that_gives_the_logits(make_case: Make) -> None:
    seen, _ = make_case(SPEAR, model=RELU, client=CLIENT)
    reordered = replace(seen, model=LastFirst(seen.model))
    assert torch.equal(last_weight(reordered, 96), last_weight(seen, 96))


def test_what_noise_hides_is_mid_grey_and_has_not_converged(make_case: Make) -> None:
    one_round = parse("attack", "spear+rounds=1")
    noisy, _ = make_case(one_round, model=RELU, client=CLIENT, defense="gaussian+std=1")
    zero = {name: torch.zeros_like(value) for name, value in noisy.update.items()}
    for seen in (noisy, replace(noisy, update=zero)):
        found = one_round.reconstruct(seen)
        assert not found.converged.any()
        assert (found.inputs == 0.5).all()


def test_labels_alone_are_left_where_samples_are_known(make_case: Make) -> None:
    seen, truth = make_case(SPEAR, model=RELU, client=CLIENT)
    inputs = torch.from_numpy(truth.inputs).flatten(2).double()
    inputs[1, 0] = torch.nan
    scores = seen.update["3.bias"][:, 0]
    left = without_probabilities(seen, scores, inputs)
    shares = np.bincount(truth.labels[0], minlength=seen.classes) / 4
    np.testing.assert_allclose(left[0].numpy(), -shares, atol=1e-6)
    assert torch.equal(left[1], scores[1])


@pytest.mark.parametrize(
    ("model", "client", "reason"),
    [
        ("lenet", "fedsgd", "begins with a convolution"),
        ("mlp", "fedsgd", "activation=sigmoid; use activation=relu"),
        ("fc2+hidden=4", "fedsgd+batch_size=5", "5 and 4"),
        ("fc2", "fedavg+local_steps=2", "does not determine"),
    ],
)
def test_what_it_cannot_serve_is_refused_before_any_work(
    model: str, client: str, reason: str
) -> None:
    digits = parse("dataset", "digits")
    with pytest.raises(IncompatibleError, match=reason):
        SPEAR.check(digits, parse("model", model), parse("client", client))


@pytest.mark.parametrize("sends", ["gradient", "weights"])
def test_one_local_step_is_one_gradient(make_case: Make, sends: str) -> None:
    client = f"fedavg+batch_size=3+victims=2+sends={sends}+local_lr=1"
    SPEAR.check(parse("dataset", "digits"), parse("model", "fc2"), parse("client", client))
    seen, truth = make_case(SPEAR, model=RELU, client=client)
    found = SPEAR.reconstruct(seen)
    assert found.converged.all()
    np.testing.assert_allclose(matched(truth.inputs, found.inputs), truth.inputs, atol=1e-2)
