from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.metrics.reconstruction.assignment import assign_samples, gather

Make = Callable[..., tuple[Observation, Private]]
HELD = "+victims=2+batch_size=3+update_size=1+labels=unique+server_lr=0.2"
LONG = "+iterations=60+matching_iterations=20+tv=0.001+gamma=1+lr=0.2"
SHORT = "+iterations=10+matching_iterations=5+tv=0.001+gamma=1+lr=0.05"


def attacked(make: Make, spec: str, client: str = f"epochs{HELD}") -> tuple[Any, Private]:
    attack = parse("attack", spec)
    observation, truth = make(attack, client=client)
    return attack.reconstruct(observation), truth


def errors(found: Any, truth: Private) -> np.ndarray:
    placed = gather(found.inputs, assign_samples(truth.inputs, found.inputs), 0)
    return ((placed - truth.inputs) ** 2).mean((2, 3, 4))


@pytest.mark.slow
def test_samples_are_paired_and_found_in_both_epochs(make_case: Make) -> None:
    found, truth = attacked(make_case, f"agic_epochs{LONG}")
    assert truth.rounds is not None
    assert found.rounds.shape == (2, 3, 2)
    for members, pairs in zip(truth.rounds[..., 0], found.rounds, strict=True):
        assert (members[pairs[:, 0]] == members[pairs[:, 1]]).all()
    assert errors(found, truth).mean() < 0.02
    assert np.array_equal(np.sort(found.labels), np.sort(truth.labels))


@pytest.mark.parametrize("only", [1, 2])
def test_one_epoch_alone_is_each_update_by_itself(only: int, make_case: Make) -> None:
    attack = parse("attack", f"agic_epochs{SHORT}+only={only}")
    observation, _ = make_case(attack, client=f"epochs{HELD}")
    found = attack.reconstruct(observation)
    plain = parse("attack", "agic+iterations=10+tv=0.001+lr=0.05")
    for place in range(3):
        alone = plain.reconstruct(observation.of_round(3 * (only - 1) + place))
        np.testing.assert_allclose(found.inputs[:, place], alone.inputs[:, 0], atol=1e-5)


@pytest.mark.slow
def test_three_epochs_are_a_chain(make_case: Make) -> None:
    found, truth = attacked(make_case, f"agic_epochs{SHORT}", f"epochs{HELD}+epochs=3")
    assert truth.rounds is not None
    assert found.rounds.shape == (2, 3, 3)
    assert (found.rounds // 3 == np.arange(3)).all()
    assert all(sorted(column) == [0, 1, 2] for column in (found.rounds[0] % 3).T.tolist())


def test_updates_of_several_samples_serve_each_of_them(make_case: Make) -> None:
    client = "epochs+victims=1+batch_size=4+update_size=2+labels=unique+server_lr=0.2"
    found, truth = attacked(make_case, f"agic_epochs{SHORT}", client)
    assert found.inputs.shape == truth.inputs.shape
    counts = np.bincount(found.rounds.flatten(), minlength=4)
    assert counts.tolist() == [2, 2, 2, 2]


def test_epochs_of_one_update_need_no_pairing(make_case: Make) -> None:
    client = "epochs+victims=2+batch_size=2+local_steps=2+mini_batch=1+labels=unique+server_lr=0.2"
    found, truth = attacked(make_case, f"agic_epochs{SHORT}", client)
    assert found.rounds is None
    assert found.inputs.shape == truth.inputs.shape
    assert np.array_equal(np.sort(found.labels), np.sort(truth.labels))


def test_each_round_is_read_at_its_own_parameters(make_case: Make) -> None:
    attack = parse("attack", f"agic_epochs{SHORT}")
    observation, _ = make_case(attack, client=f"epochs{HELD}")
    first, last = observation.of_round(0), observation.of_round(5)
    for name, parameter in last.model.named_parameters():
        assert torch.equal(parameter, observation.broadcast[name][5])
        assert torch.equal(first.model.get_parameter(name), observation.model.get_parameter(name))


@pytest.mark.parametrize(
    ("spec", "client", "fault"),
    [
        ("agic_epochs", "fedsgd", "needs updates of 2 epochs, but client fedsgd"),
        ("agic_epochs+only=3", "epochs+batch_size=2", "needs updates of 3 epochs"),
        ("agic_epochs+seeds=2", "epochs+batch_size=2", "pairs the updates of one search"),
        ("agic_epochs+code=bicubic", "epochs+batch_size=2", "searches pixels jointly"),
        ("agic_epochs+labels=joint", "epochs+batch_size=2", "not labels=joint"),
        ("agic_epochs+labels=known", "epochs+batch_size=2+update_size=1", "granted for all 2"),
        ("agic_epochs", "epochs+batch_size=11", "finds no label twice"),
    ],
)
def test_clients_and_labels_that_do_not_serve_are_refused(
    spec: str, client: str, fault: str
) -> None:
    attack, model = parse("attack", spec), parse("model", "resnet20")
    with pytest.raises(IncompatibleError, match=fault):
        attack.check(parse("dataset", "cifar10"), model, parse("client", client))


def test_the_published_setting_leaves_the_box_and_keeps_its_rate() -> None:
    """Plain Adam, as the paper's text has it; what it does not name is InvertGrad's by default."""
    published = parse("attack", "agic+descent=plain").parts()
    assert (published.optimizer.rate(0.99), published.box) == (0.1, False)
    assert not published.optimizer.signed
    usual = parse("attack", "agic").parts()
    assert (usual.optimizer.rate(0.99), usual.box) == (pytest.approx(1e-4), True)
