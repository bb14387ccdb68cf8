"""Attacks on completed gradients of a dense first layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.matrix_completion import (
    MatrixCompletion,
    complete,
    determined_victims,
    determines,
)
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
        ("random_mask+keep=0.7", 2, ["spear", "cpa_edges"]),
        ("random_mask+keep=0.05", 2, ["spear", "cpa_edges"]),
        ("soteria+percentile=40", 1, ["aono"]),
        ("soteria+percentile=40", 2, ["spear", "cpa_edges"]),
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


def product(seed: int, rank: int, rows: int = 40, columns: int = 120) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, rank, generator=stream)
    return left @ torch.rand(rank, columns, generator=stream)


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 4), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_values_unknown_at_random_are_computed(seed: int, rank: int, scale: float) -> None:
    matrix = scale * product(seed, rank)
    known = torch.rand(matrix.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    found = complete(matrix.where(known, torch.nan), known, rank, 300)
    assert (found - matrix).norm() < 1e-4 * matrix.norm()


@pytest.mark.parametrize("rank", [1, 3])
def test_the_largest_values_determine_rows_and_columns_with_enough_of_them(rank: int) -> None:
    matrix = product(1, rank)
    known = matrix.abs() > matrix.abs().quantile(0.6)
    enough = (known.sum(0) >= 2 * rank) & (known.sum(1, keepdim=True) >= 2 * rank)
    assert known.float().mean() < enough.float().mean() < 1
    error = complete(matrix, known, rank, 300) - matrix
    assert error[enough].norm() < 1e-5 * matrix[enough].norm()


def test_the_result_has_the_rank_of_the_batch() -> None:
    matrix = product(2, 8)
    assert torch.linalg.matrix_rank(complete(matrix, matrix > 0, 2, 5)) == 2


def test_rows_that_few_values_leave_open_are_zero() -> None:
    matrix = product(4, 3)
    known = torch.ones_like(matrix, dtype=torch.bool)
    known[5, 2:] = False
    found = complete(matrix, known, 3, 300)
    assert not found[5].any()
    torch.testing.assert_close(found[:5], matrix[:5])


@pytest.mark.parametrize("seed", range(4))
def test_a_matrix_of_lower_rank_is_computed_too(seed: int) -> None:
    """Two samples of a batch may be equal."""
    matrix = product(seed, 3, 64, 200)
    known = torch.rand(matrix.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    found = complete(matrix, known, 4, 300)
    assert (found - matrix).norm() < 1e-3 * matrix.norm()


@pytest.mark.parametrize("noise", [0, 1e-3, 1e-2])
def test_noise_is_not_amplified_in_pixels_of_few_values(noise: float) -> None:
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(4, 1, 3, 3, generator=stream)
    images = torch.nn.functional.interpolate(images, size=(14, 14), mode="bicubic").flatten(1)
    left = torch.randn(64, 4, generator=stream) * torch.logspace(-2, 0, 64)[:, None]
    matrix = left @ images
    known = torch.rand(matrix.shape, generator=stream) < 0.5
    for column in range(20, 40):
        known[:, column] = False
        known[torch.randperm(64, generator=stream)[:3], column] = True
    sent = matrix + noise * torch.randn(matrix.shape, generator=stream)
    errors = complete(sent, known, 4, 300, (1, 14, 14)) - matrix
    assert errors[:, 20:40].norm() < 0.3 * matrix[:, 20:40].norm()


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_black_pixels_are_not_filled_in_where_their_zeros_count_as_not_sent(share: float) -> None:
    stream = torch.Generator().manual_seed(0)
    image = torch.rand(1, 1, 14, 14, generator=stream)
    image[..., :5] = 0
    matrix = torch.randn(40, 1, generator=stream).relu() @ image.flatten(1)
    known = (torch.rand(matrix.shape, generator=stream) < share) & (matrix != 0)
    found = complete(matrix, known, 1, 300, (1, 14, 14))
    assert (found - matrix).norm() < 0.01 * matrix.norm()


@pytest.mark.parametrize("hides_zeros", [False, True])
def test_pixels_that_chance_leaves_out_are_filled_in(hides_zeros: bool) -> None:
    stream = torch.Generator().manual_seed(0)
    image = 0.2 + 0.6 * torch.rand(1, 1, 3, 3, generator=stream)
    image = torch.nn.functional.interpolate(image, size=(14, 14), mode="bicubic")
    matrix = torch.randn(60, 1, generator=stream).relu() @ image.flatten(1)
    known = torch.rand(matrix.shape, generator=stream) < 0.08
    assert (~known[matrix.any(1)].any(0)).double().mean() > 0.05
    found = complete(matrix, known & (matrix != 0) if hides_zeros else known, 1, 300, (1, 14, 14))
    assert (found - matrix).norm() < 0.05 * matrix.norm()


def test_what_too_few_values_tell_is_kept() -> None:
    matrix = product(5, 4, 20, 30)
    known = torch.zeros_like(matrix, dtype=torch.bool)
    known[:, :3] = True
    assert complete(matrix, known, 4, 50)[:, :3].any()


def test_rows_and_columns_without_known_values_are_zero() -> None:
    matrix = product(3, 2)
    known = torch.ones_like(matrix, dtype=torch.bool)
    known[4], known[:, 7] = False, False
    found = complete(matrix, known, 2, 300)
    assert found[4].abs().max() < 1e-6
    assert found[:, 7].abs().max() < 1e-6
    zeros = torch.zeros(5, 6)
    assert torch.equal(complete(zeros, zeros.bool(), 2, 3), zeros)


WHOLE = torch.ones(40, 120).bool()
WITHOUT_A_COLUMN = WHOLE.index_fill(1, torch.tensor([7]), False)
IN_TWO_PARTS = torch.block_diag(torch.ones(20, 60), torch.ones(20, 60)).bool()
FEW = torch.rand(40, 120, generator=torch.Generator().manual_seed(0)) < 0.3


@pytest.mark.parametrize(
    ("known", "rank", "expected"),
    [
        (WHOLE, 40, True),
        (IN_TWO_PARTS | ~WITHOUT_A_COLUMN, 1, True),
        (IN_TWO_PARTS, 1, False),
        (WITHOUT_A_COLUMN, 1, False),
        (FEW, 1, True),
        (FEW, 8, False),
    ],
)
def test_known_values_determine_every_column_or_not(
    known: Tensor, rank: int, expected: bool
) -> None:
    assert determines(product(0, rank), known, rank, 1.5) is expected


def test_rows_of_zeros_determine_nothing() -> None:
    matrix, known = product(0, 1), torch.ones(40, 120).bool()
    matrix[20:] = 0
    known[:20, 7] = False
    assert not determines(matrix, known, 1, 1.5)
