"""Gradients from the direction of one step, beside those of `torch.autograd`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from gleak.artifacts.private import Private
from gleak.attacks.best import Best
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.matching.quantisation_cells import IntervalCell, SignCell
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

CLIENT = "fedavg+victims=2+batch_size=2+local_lr=1e-3"
ADAPTIVE = [
    "adam",
    "adam~weight_decay=0.1~eps=1e-4",
    "adamw~weight_decay=0.1",
    "adagrad~weight_decay=0.1",
    "adagrad~initial_accumulator_value=1e-4",
    "rmsprop~alpha=0.9~weight_decay=0.1",
]
LINEAR = ["sgd~momentum=0.9", "sgd~momentum=0.9~nesterov=true~weight_decay=0.1"]
SENDS = ["sends=gradient", "sends=weights"]


def true_gradients(seen: Observation, truth: Private) -> dict[str, torch.Tensor]:
    """Return the gradient of every victim's mean loss; Shape (V, *shape)."""
    network = seen.model.requires_grad_(True)
    parameters = dict(network.named_parameters())
    found = []
    for inputs, labels in zip(truth.inputs, truth.labels, strict=True):
        logits = network(torch.from_numpy(np.asarray(inputs)))
        loss = functional.cross_entropy(logits, torch.from_numpy(np.asarray(labels)).long())
        found.append(torch.autograd.grad(loss, list(parameters.values())))
    network.requires_grad_(False)
    return {
        name: torch.stack(own)
        for name, own in zip(parameters, zip(*found, strict=True), strict=True)
    }


@pytest.mark.parametrize("optimizer", ADAPTIVE)
@pytest.mark.parametrize("sends", SENDS)
def test_gradients_lie_in_the_intervals_of_one_step(
    make_case: Make, optimizer: str, sends: str
) -> None:
    spec = parse("attack", "map")
    seen, truth = make_case(spec, client=f"{CLIENT}+optimizer={optimizer}+{sends}")
    assert seen.protocol.shows_gradient
    narrow = 0.0
    for name, gradient in true_gradients(seen, truth).items():
        cell = seen.cells[name].at((slice(None), 0)).scaled(1 / seen.protocol.update_scale)
        assert isinstance(cell, IntervalCell)
        slack = 1e-4 * gradient.abs() + 1e-12  # the gradient of another batch order is rounded
        assert bool((gradient >= cell.low - slack).all())
        assert bool((gradient <= cell.high + slack).all())
        narrow += float((cell.width < 0.1 * gradient.abs()).sum())
    assert narrow > 0


def test_values_that_were_not_sent_may_have_any_gradient(make_case: Make) -> None:
    client = f"{CLIENT}+optimizer=adam~weight_decay=0.1"
    seen, _ = make_case(parse("attack", "map"), client=client, defense="topk+keep=0.5")
    for name, sent in seen.sent.items():
        unbounded = torch.isinf(seen.cells[name].low) & torch.isinf(seen.cells[name].high)
        assert bool((unbounded | (sent != 0)).all())


@pytest.mark.parametrize("defense", ["gaussian+std=1e-3", "qsgd", "signsgd", "dp"])
def test_changed_directions_tell_signs(make_case: Make, defense: str) -> None:
    client = f"{CLIENT}+optimizer=adam+sends=gradient"
    seen, truth = make_case(parse("attack", "map"), client=client, defense=defense)
    right = []
    for name, gradient in true_gradients(seen, truth).items():
        assert isinstance(seen.cells[name], SignCell)
        sent = gradient != 0
        if name in seen.sent:
            sent &= seen.sent[name][:, 0] != 0
        signs = mean_gradients(seen)[name]
        assert {*signs.unique().tolist()} <= {-1.0, 0.0, 1.0}
        right.append((signs == gradient.sign())[sent])
    assert torch.cat(right).double().mean() > 0.9


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "rmsprop"])
def test_directions_of_gradients_that_may_be_clipped_tell_signs(
    make_case: Make, optimizer: str
) -> None:
    """Intervals would be those of the clipped gradient, of an unknown factor."""
    client = f"{CLIENT}+clip_norm=0.01+optimizer={optimizer}+sends=gradient"
    seen, truth = make_case(parse("attack", "map"), client=client)
    for name, gradient in true_gradients(seen, truth).items():
        assert isinstance(seen.cells[name], SignCell)
        known = (seen.sent[name][:, 0] != 0) & (gradient != 0)
        assert mean_gradients(seen)[name][known].equal(gradient.sign()[known])


def test_attacks_that_need_gradients_do_not_run_on_intervals(make_case: Make) -> None:
    seen, _ = make_case(
        Best(), client=f"{CLIENT}+optimizer=adam", model="mlp+hidden=16+activation=relu"
    )
    proposals = Best().proposed(seen.of_victim(0), 10)
    suiting = {type(one.attack) for one in proposals if one.suits}
    assert {"map", "aono"} == {attack.name for attack in suiting}
    assert all(attack.takes_intervals for attack in suiting)


def test_one_step_of_adam_shows_the_sample_of_a_dense_layer(make_photo_case: Make) -> None:
    """Rows of small gradients are known well, and the ratios of these count."""
    client = "fedavg+victims=2+local_lr=1e-3+optimizer=adam+sends=weights"
    attack = parse("attack", "aono")
    seen, truth = make_photo_case(attack, client=client)
    found = attack.reconstruct(seen)
    assert psnr(truth.inputs, found.inputs).min() > 30
    assert np.array_equal(found.labels, truth.labels)


@pytest.mark.parametrize("optimizer", LINEAR)
@pytest.mark.parametrize("sends", SENDS)
@pytest.mark.parametrize("defense", ["none", "topk+keep=0.5", "qsgd+bits=6", "low_rank"])
def test_linear_steps_show_what_was_sent_of_the_gradient(
    make_case: Make, optimizer: str, sends: str, defense: str
) -> None:
    client = f"fedavg+victims=2+batch_size=2+local_lr=1+optimizer={optimizer}+{sends}"
    seen, truth = make_case(parse("attack", "map"), client=client, defense=defense)
    observed = mean_gradients(seen)
    for name, gradient in true_gradients(seen, truth).items():
        tolerance = 1e-4 * gradient.abs().amax()
        error = observed[name] - gradient
        if name in seen.sent:
            error = error * seen.sent[name][:, 0]
        if name in seen.bases:
            error = seen.bases[name][:, 0].mT @ error.flatten(2)
        if name in seen.cells:
            cell = seen.cells[name].at((slice(None), 0)).scaled(1 / seen.protocol.update_scale)
            tolerance = tolerance + cell.step.reshape(-1, *[1] * (gradient.ndim - 1))
        assert bool((error.abs() <= tolerance).all()), name


@pytest.mark.parametrize("optimizer", [*LINEAR, "sgd", "sgd~weight_decay=0.1"])
@pytest.mark.parametrize("clipping", ["", "+clip_norm=0.01"])
@pytest.mark.parametrize("attack", ["aono", "spear"])
def test_exact_attacks_stay_exact(
    make_photo_case: Make, optimizer: str, clipping: str, attack: str
) -> None:
    spec = parse("attack", attack)
    size = 1 if attack == "aono" else 3
    client = f"fedavg+victims=2+batch_size={size}+local_lr=0.1+optimizer={optimizer}{clipping}"
    seen, truth = make_photo_case(spec, client=client, model="fc2+hidden=64")
    found = spec.reconstruct(seen)
    assert psnr(truth.inputs, found.inputs).min() > 50


def test_weight_decay_is_not_subtracted_from_signs(make_case: Make) -> None:
    client = f"{CLIENT}+optimizer=sgd~weight_decay=0.1"
    with pytest.raises(IncompatibleError, match="weight_decay"):
        make_case(parse("attack", "map"), client=client, defense="signsgd")


def test_momentum_of_an_earlier_round_is_a_factor(make_photo_case: Make) -> None:
    client = "fedavg+victims=2+batch_size=1+local_lr=1e-3+state=kept+optimizer=sgd~momentum=0.9"
    spec = parse("attack", "map")
    seen, truth = make_photo_case(spec, client=client)
    assert seen.protocol.clipping == "update" and seen.protocol.shows_gradient
    observed, true = mean_gradients(seen), true_gradients(seen, truth)
    along = torch.cat([observed[name].flatten(1) for name in true], 1)
    expected = torch.cat([value.flatten(1) for value in true.values()], 1)
    assert torch.cosine_similarity(along, expected).min() > 0.99
    assert (along.norm(dim=1) / expected.norm(dim=1)).min() > 1.8


@pytest.mark.parametrize("training", ["state=kept", "local_steps=3", "local_steps=2+state=kept"])
def test_other_steps_of_adam_tell_signs(make_case: Make, training: str) -> None:
    client = f"{CLIENT}+optimizer=adam+{training}"
    seen, _ = make_case(parse("attack", "map"), client=client)
    assert all(isinstance(cell, SignCell) for cell in seen.cells.values())
