"""Attacks on completed gradients of a dense first layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.attacks.matrix_completion import MatrixCompletion, determines_layer
from gleak.attacks.observation import Observation
from gleak.core.errors import SpecError
from gleak.core.registry import parse

Make = Callable[..., tuple[Observation, Private]]
MLP = "mlp+hidden=32+activation=relu"
ONE = parse("attack", "matrix_completion")


@pytest.mark.parametrize("modality", ["image", "tabular"])
@pytest.mark.parametrize("defense", ["random_mask+keep=0.5", "topk+keep=0.6", "threshold"])
def test_one_sample_is_recovered_from_the_values_sent(
    make_case: Make, modality: str, defense: str
) -> None:
    seen, truth = make_case(ONE, modality, MLP, defense=defense)
    np.testing.assert_allclose(ONE.reconstruct(seen).inputs, truth.inputs, atol=1e-3)


def test_a_batch_is_recovered_from_the_values_sent(make_case: Make) -> None:
    attack = parse("attack", "matrix_completion+attack=spear")
    client = "fedsgd+batch_size=2+victims=3"
    seen, truth = make_case(attack, model=MLP, client=client, defense="random_mask+keep=0.7")
    found = attack.reconstruct(seen)
    gaps = np.abs(found.inputs[:, :, None] - truth.inputs[:, None]).max((3, 4, 5))
    assert found.converged.all()
    assert gaps.min(1).max() < 1e-3


def test_an_update_that_was_sent_as_a_whole_is_attacked_as_it_is(make_case: Make) -> None:
    seen, _ = make_case(ONE, model=MLP)
    assert ONE.completed(seen) is seen


def test_only_the_values_that_were_not_sent_are_replaced(make_case: Make) -> None:
    seen, _ = make_case(ONE, model=MLP, defense="topk+keep=0.3")
    completed = ONE.completed(seen)
    for name in ("1.weight", "1.bias"):
        sent = seen.sent[name].bool()
        assert completed.update[name][sent].equal(seen.update[name][sent])
    assert completed.sent.keys() == {"3.weight", "3.bias"}


@pytest.mark.parametrize(("keep", "expected"), [(0.5, True), (0.05, False)])
def test_completion_needs_more_values_than_the_factors_have(
    make_case: Make, keep: float, expected: bool
) -> None:
    seen, _ = make_case(ONE, model=MLP, defense=f"random_mask+keep={keep}")
    assert determines_layer(seen, "1") is expected


def test_victims_whose_values_leave_a_feature_open_have_not_converged(make_case: Make) -> None:
    seen, _ = make_case(ONE, model=MLP, defense="random_mask+keep=0.7")
    masks = {name: mask.clone() for name, mask in seen.sent.items()}
    masks["1.weight"][0, ..., 5] = False
    found = ONE.reconstruct(replace(seen, sent=masks))
    assert not found.converged[0]
    assert found.converged[1:].all()


@pytest.mark.parametrize("attack", ["mkor", "same_class", "matrix_completion"])
def test_an_attack_that_needs_more_than_an_update_is_refused(attack: str) -> None:
    with pytest.raises(SpecError, match="choose aono, spear"):
        parse("attack", f"matrix_completion+attack={attack}")


def test_what_the_attack_does_not_support_is_named_before_the_run() -> None:
    spec = MatrixCompletion(attack=parse("attack", "spear"))
    with pytest.raises(Exception, match="spear"):
        spec.check(
            parse("dataset", "digits"),
            parse("model", "mlp+activation=tanh"),
            parse("client", "fedsgd"),
        )
