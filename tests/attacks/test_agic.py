from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

HELD = "+victims=2+batch_size=3+update_size=1+labels=unique+server_lr=0.2"
TWO_STEPS = "batch_size=2+local_steps=2+mini_batch=1"
LONG = "+iterations=60+matching_iterations=20+tv=0.001+gamma=1+lr=0.2"
SHORT = "+iterations=10+matching_iterations=5+tv=0.001+gamma=1+lr=0.05"


def attacked(make: Make, spec: str, client: str = f"epochs{HELD}") -> tuple[Any, Private]:
    attack = parse("attack", spec)
    observation, truth = make(attack, client=client)
    return attack.reconstruct(observation), truth


@pytest.mark.slow
def test_samples_are_paired_and_found_in_both_epochs(make_case: Make) -> None:
    found, truth = attacked(make_case, f"agic_epochs{LONG}")
    assert truth.rounds is not None
    assert found.rounds.shape == (2, 3, 2)
    for members, pairs in zip(truth.rounds[..., 0], found.rounds, strict=True):
        assert (members[pairs[:, 0]] == members[pairs[:, 1]]).all()
    assert psnr(truth.inputs, found.inputs).mean() > 17
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


@pytest.mark.parametrize("client", ["batch_size=4+update_size=2", TWO_STEPS])
def test_updates_of_several_samples_serve_each_of_them(make_case: Make, client: str) -> None:
    """Epochs of one update need no pairing."""
    fields = "epochs+victims=2+labels=unique+server_lr=0.2"
    found, truth = attacked(make_case, f"agic_epochs{SHORT}", f"{fields}+{client}")
    assert found.inputs.shape == truth.inputs.shape
    if client == TWO_STEPS:
        assert found.rounds is None
        assert np.array_equal(np.sort(found.labels), np.sort(truth.labels))
    else:
        for rounds in found.rounds:
            assert np.bincount(rounds.flatten(), minlength=4).tolist() == [2, 2, 2, 2]


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
