from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.unmixing import likelihood
from gleak.unmixing.contrast import LAPLACIAN, Contrast
from gleak.unmixing.fixed_point import fixed_point
from gleak.unmixing.likelihood import maximise_likelihood

VICTIMS, COUNT, PLACES = 6, 5, 250
CONTRAST = Contrast(power=0.5, smoothing=0.1)


def sparse(seed: int) -> Tensor:
    """Sources of unit variance, so few values that they are correlated by chance; (V, n, 1, D)."""
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.randn(VICTIMS, COUNT, 1, PLACES, generator=stream, dtype=torch.double) ** 3
    return drawn / drawn.square().mean(3, keepdim=True).sqrt()


def whitened(sources: Tensor) -> tuple[Tensor, Tensor]:
    """White mixtures of the sources, and what mixes them; (V, n, C, D) and (V, n, n)."""
    stream = torch.Generator().manual_seed(1)
    mixing = torch.randn(len(sources), COUNT, COUNT, generator=stream, dtype=torch.double)
    mixed = mixing @ sources.flatten(2)
    left = torch.linalg.cholesky(mixed @ mixed.mT / mixed.shape[2])
    whitening = torch.linalg.inv(left)
    return (whitening @ mixed).view_as(sources), whitening @ mixing


def interference(gains: Tensor) -> Tensor:
    """What else is in each unmixed source, relative to the source; Shape (V)."""
    gains = gains.abs() / gains.abs().amax(2, keepdim=True)
    return (gains.sum(2) - 1).mean(1)


def loss(white: Tensor, matrices: Tensor) -> Tensor:
    sources = (matrices @ white.flatten(2)).view_as(white)
    return CONTRAST.measure(sources) - torch.linalg.slogdet(matrices)[1]


WHITE, MIXING = whitened(sparse(0))
FIRST = fixed_point(WHITE, LAPLACIAN)


def test_sources_correlated_by_chance_come_out_better_than_by_any_rotation() -> None:
    found = maximise_likelihood(WHITE, FIRST, CONTRAST)
    left, _, right = torch.linalg.svd(torch.linalg.inv(MIXING))
    after = interference(found.matrices @ MIXING)
    assert (after < 0.5 * interference(FIRST @ MIXING)).all()
    assert (after < interference(left @ right @ MIXING)).all()
    assert after.mean() < 0.05


def test_the_objective_is_minus_the_log_likelihood() -> None:
    found = maximise_likelihood(WHITE, FIRST, CONTRAST)
    torch.testing.assert_close(found.objective, loss(WHITE, found.matrices))
    assert (found.objective < loss(WHITE, FIRST)).all()
    assert (found.objective < loss(WHITE, torch.linalg.inv(MIXING)) + 1e-3).all()


def test_the_likelihood_never_falls_and_ends_where_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = torch.eye(COUNT, dtype=torch.double).expand(VICTIMS, COUNT, COUNT)
    losses = [loss(WHITE, first)]
    for budget in range(1, 12):
        monkeypatch.setattr(likelihood, "ITERATIONS", budget)
        found = maximise_likelihood(WHITE, first, CONTRAST)
        assert (found.iterations <= budget).all()
        losses.append(found.objective)
    gains = -torch.stack(losses).diff(dim=0)
    assert (gains >= -1e-12).all()
    assert (gains[0] > likelihood.TOLERANCE).all()


def test_the_gradient_vanishes_where_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "TOLERANCE", 1e-14)
    monkeypatch.setattr(likelihood, "ITERATIONS", 400)
    found = maximise_likelihood(WHITE, FIRST, CONTRAST).matrices.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(WHITE, found).sum(), found)
    relative = gradient @ found.mT
    assert relative.abs().max() < 1e-4


def test_the_lengths_and_signs_of_the_first_rows_do_not_matter() -> None:
    factors = torch.tensor([3.0, -0.1, 1.0, -20.0, 0.5], dtype=torch.double)[:, None]
    found = maximise_likelihood(WHITE, FIRST, CONTRAST)
    scaled = maximise_likelihood(WHITE, factors * FIRST, CONTRAST)
    torch.testing.assert_close(scaled.objective, found.objective)
    torch.testing.assert_close(scaled.matrices, factors.sign() * found.matrices)


def test_a_victim_alone_ends_as_among_others() -> None:
    together = maximise_likelihood(WHITE, FIRST, CONTRAST)
    assert len(set(together.iterations.tolist())) > 1
    for victim in range(VICTIMS):
        alone = maximise_likelihood(WHITE[[victim]], FIRST[[victim]], CONTRAST)
        assert alone.iterations[0] == together.iterations[victim]
        torch.testing.assert_close(alone.objective[0], together.objective[victim])
        rows = zip(alone.matrices[0], together.matrices[victim], strict=True)
        assert all(torch.cosine_similarity(*pair, dim=0) > 1 - 1e-9 for pair in rows)


def test_one_source_is_left_as_it_is() -> None:
    white = WHITE[:, :1]
    white = white / white.square().mean((2, 3), keepdim=True).sqrt()
    found = maximise_likelihood(white, torch.ones(VICTIMS, 1, 1).double(), CONTRAST)
    torch.testing.assert_close(found.matrices, torch.ones(VICTIMS, 1, 1).double())


def test_few_steps_suffice_for_sources_that_differ_in_sparseness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Hessian's blocks are what makes steps long and right; a plain gradient creeps."""
    stream = torch.Generator().manual_seed(3)
    drawn = torch.randn(4, 4, 1, 3000, generator=stream, dtype=torch.double)
    sources = drawn.sign() * drawn.abs() ** torch.tensor([1.2, 2, 3, 5])[:, None, None]
    sources = sources / sources.square().mean((2, 3), keepdim=True).sqrt()
    mixing = torch.eye(4) + 0.15 * torch.randn(4, 4, 4, generator=stream, dtype=torch.double)
    mixed = (mixing @ sources.flatten(2)).view_as(sources)
    first = torch.eye(4, dtype=torch.double).expand(4, 4, 4)
    monkeypatch.setattr(likelihood, "TOLERANCE", 1e-12)
    monkeypatch.setattr(likelihood, "ITERATIONS", 8)
    few = maximise_likelihood(mixed, first, CONTRAST).objective
    monkeypatch.setattr(likelihood, "ITERATIONS", 200)
    many = maximise_likelihood(mixed, first, CONTRAST).objective
    assert (few - many < 0.01 * (loss(mixed, first) - many)).all()
