"""Attacks on completed gradients of a dense first layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.attacks.matrix_completion import MatrixCompletion, determined_victims
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

MLP = "mlp+hidden=32+activation=relu"
ONE = parse("attack", "matrix_completion")


@pytest.mark.parametrize("modality", ["image", "tabular"])
@pytest.mark.parametrize("defense", ["random_mask+keep=0.5", "topk+keep=0.6", "threshold"])
def test_one_sample_is_recovered_from_the_values_sent(
    make_case: Make, modality: str, defense: str
) -> None:
    seen, truth = make_case(ONE, modality, MLP, defense=defense)
    np.testing.assert_allclose(ONE.reconstruct(seen).inputs, truth.inputs, atol=1e-3)


@pytest.mark.parametrize(
    ("defense", "least"),
    [("random_mask+keep=0.7", 3), ("random_mask+keep=0.2", 3), ("topk+keep=0.4", 2)],
)
def test_batches_are_recovered_from_the_values_sent(
    make_case: Make, defense: str, least: int
) -> None:
    attack = parse("attack", "matrix_completion+attack=spear")
    model, client = "mlp+hidden=96+activation=relu", "fedsgd+batch_size=2+victims=3"
    seen, truth = make_case(attack, model=model, client=client, defense=defense)
    found = attack.reconstruct(seen)
    gaps = np.abs(found.inputs[:, :, None] - truth.inputs[:, None]).max((3, 4, 5))
    assert found.converged.sum() >= least
    assert gaps[found.converged].min(1).max() < 1e-3


def test_the_values_that_were_sent_are_fitted(make_case: Make) -> None:
    seen, _ = make_case(ONE, model=MLP)
    assert ONE.completed(seen) is seen
    seen, _ = make_case(ONE, model=MLP, defense="topk+keep=0.3")
    completed = ONE.completed(seen)
    for name in ("1.weight", "1.bias"):
        sent = seen.sent[name].bool()
        torch.testing.assert_close(completed.update[name][sent], seen.update[name][sent])
    assert completed.sent.keys() == {"3.weight", "3.bias"}


@pytest.mark.parametrize(
    ("client", "attack", "gain"),
    [("fedsgd+victims=4", "aono", 5), ("fedsgd+batch_size=2+victims=4", "cpa_edges", 5)],
)
def test_pixels_that_soteria_hides_follow_from_the_others(
    make_photo_case: Make, client: str, attack: str, gain: float
) -> None:
    completing = parse("attack", f"matrix_completion+attack={attack}")
    seen, truth = make_photo_case(completing, client, defense="soteria+percentile=40")
    weight = "1.weight"
    hidden = (seen.update[weight] == 0).all(-2, keepdim=True).expand_as(seen.update[weight])
    completed = completing.completed(seen)
    torch.testing.assert_close(completed.update[weight][~hidden], seen.update[weight][~hidden])
    found = [one.reconstruct(seen).inputs for one in (completing, parse("attack", attack))]
    filled, zero = (psnr(truth.inputs, each).mean() for each in found)
    assert filled > zero + gain


@pytest.mark.parametrize(("keep", "expected"), [(0.5, True), (0.05, False)])
def test_completion_needs_more_values_than_the_factors_have(
    make_case: Make, keep: float, expected: bool
) -> None:
    seen, _ = make_case(ONE, model=MLP, defense=f"random_mask+keep={keep}")
    assert determined_victims(seen).tolist() == [expected] * seen.victims


@pytest.mark.parametrize(
    ("defense", "samples", "expected"),
    [
        ("random_mask+keep=0.5", 1, ["aono"]),
        ("random_mask+keep=0.7", 2, ["cpa_edges"]),
        ("random_mask+keep=0.05", 2, ["cpa_edges"]),
        ("soteria+percentile=40", 1, ["aono"]),
        ("soteria+percentile=40", 2, ["cpa_edges"]),
    ],
)
def test_best_completes_batches_for_attacks_that_separate_samples(
    make_case: Make, defense: str, samples: int, expected: list[str]
) -> None:
    seen, _ = make_case(ONE, model=MLP, client=f"fedsgd+batch_size={samples}", defense=defense)
    proposals = ONE.proposals(seen.of_victim(0), 10)
    assert [proposal.attack.name for proposal in proposals] == expected


def test_nothing_is_proposed_where_all_values_were_sent(make_case: Make) -> None:
    seen, _ = make_case(ONE, model=MLP)
    with pytest.raises(IncompatibleError, match="not sent"):
        ONE.proposals(seen, 10)


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
    spec, client = MatrixCompletion(attack=parse("attack", "spear")), parse("client", "fedsgd")
    with pytest.raises(IncompatibleError, match="spear"):
        spec.check(parse("dataset", "digits"), parse("model", "mlp+activation=tanh"), client)
