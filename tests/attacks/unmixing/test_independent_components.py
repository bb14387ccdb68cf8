"""Contrasts, FastICA and maximum likelihood."""

from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import FastICA
from torch import Tensor

from gleak.attacks.matching import kernels
from gleak.attacks.unmixing import independent_components
from gleak.attacks.unmixing.independent_components import (
    LAPLACIAN,
    Contrast,
    fixed_point,
    maximise_likelihood,
    nearest_orthogonal,
)

CONTRASTS = [LAPLACIAN, Contrast(power=0.5, smoothing=0.1), Contrast(power=0.2, smoothing=1.0)]
each_contrast = pytest.mark.parametrize("contrast", CONTRASTS, ids=str)


def draw(seed: int, *shape: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.double)


def test_the_measure_is_its_formula() -> None:
    sources = draw(0, 2, 3, 2, 5)
    for victim, total in zip(sources, Contrast(0.7, 0.3).measure(sources), strict=True):
        expected = sum(
            (source.square().sum(0) + 0.3**2 * source.square().mean()).pow(0.35).mean().log() / 0.7
            for source in victim
        )
        torch.testing.assert_close(total, expected)


@each_contrast
@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_scores_are_the_measures_derivatives(contrast: Contrast, scale: float) -> None:
    sources = (scale * draw(1, 2, 3, 3, 8)).requires_grad_()
    (slopes,) = torch.autograd.grad(contrast.measure(sources).sum(), sources)
    torch.testing.assert_close(contrast.scores(sources)[0], slopes * 3 * 8)


@each_contrast
def test_slopes_are_the_mean_derivative_of_the_scores(contrast: Contrast) -> None:
    """For many values, since the terms that all of them share are taken as constants."""
    source = draw(2, 1, 1, 2, 300)
    jacobian = torch.autograd.functional.jacobian(
        lambda values: contrast.scores(values.view_as(source))[0].flatten(), source.flatten()
    )
    slopes = contrast.scores(source)[1].squeeze()
    torch.testing.assert_close(slopes, jacobian.diagonal().mean(), rtol=0.02, atol=0)


@each_contrast
def test_the_measure_is_homogeneous(contrast: Contrast) -> None:
    sources, factors = draw(3, 2, 3, 3, 8), draw(4, 2, 3, 1, 1)
    expected = contrast.measure(sources) + factors.abs().log().sum((1, 2, 3))
    torch.testing.assert_close(contrast.measure(factors * sources), expected)


@each_contrast
def test_sparse_sources_measure_less_than_gaussian_ones(contrast: Contrast) -> None:
    gaussian, sparse = draw(5, 1, 1, 1, 5000), draw(6, 1, 1, 1, 5000) ** 3
    of_gaussian, of_sparse = (
        contrast.measure(sources / sources.square().mean().sqrt()) for sources in (gaussian, sparse)
    )
    assert of_sparse < of_gaussian


@each_contrast
def test_values_of_a_group_are_large_together(contrast: Contrast) -> None:
    sparse = draw(8, 1, 1, 1, 2000) ** 3
    apart = torch.cat([sparse.roll(shift, 3) for shift in (0, 1, 2)], 2)
    assert contrast.measure(sparse.expand(1, 1, 3, 2000)) < contrast.measure(apart)


PLACES = 4000


def rotated(seed: int, count: int, channels: int = 1) -> tuple[Tensor, Tensor]:
    """Draw independent sparse sources, exactly white, and a rotation of them."""
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, channels, PLACES, generator=stream, dtype=torch.double)
    sizes = torch.randn(count, 1, PLACES, generator=stream, dtype=torch.double)
    flat = (drawn * sizes).flatten(1)
    variances, directions = torch.linalg.eigh(flat @ flat.T / flat.shape[1])
    white = directions @ torch.diag(variances**-0.5) @ directions.T @ flat
    rotation = torch.linalg.qr(torch.randn(count, count, generator=stream).double()).Q
    mixed = (rotation @ white).unflatten(1, (channels, PLACES))
    return mixed.float()[None], rotation.float()


def nearest_to_permutation(gains: Tensor) -> Tensor:
    """Return the least of the rows' largest magnitudes; each row must match another source."""
    order = gains.abs().argmax(1)
    assert torch.equal(order.sort().values, torch.arange(len(gains)))
    return gains.abs().amax(1).min()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_independent_sparse_sources_are_found(count: int, channels: int) -> None:
    mixed, rotation = rotated(count, count, channels)
    found = fixed_point(mixed, LAPLACIAN)[0]
    torch.testing.assert_close(found @ found.T, torch.eye(count), atol=1e-5, rtol=0)
    assert nearest_to_permutation(found @ rotation) > 0.995


def test_the_nearest_orthogonal_matrices_are_those_of_the_decomposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With singular values of up to a thousand times the least, and different scales."""
    left, right = (torch.linalg.qr(draw(seed, 3, 8, 8)).Q for seed in (0, 1))
    values = torch.logspace(-3, 0, 8).double() * torch.tensor([[1e-6], [1.0], [1e6]])
    matrices = left * values[:, None] @ right
    torch.testing.assert_close(nearest_orthogonal(matrices), left @ right)
    monkeypatch.setattr(kernels, "on_cpu", lambda _: False)
    torch.testing.assert_close(nearest_orthogonal(matrices), left @ right, rtol=0, atol=1e-3)


@pytest.mark.parametrize("search", ["fixed_point", "maximise_likelihood"])
def test_a_gpu_is_asked_rarely_whether_all_victims_have_stopped(
    search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes more iterations, which change what has stopped by no more than rounding."""
    mixed = torch.cat([rotated(seed, 4)[0] for seed in range(3)])

    def found() -> Tensor:
        if search == "fixed_point":
            return fixed_point(mixed, LAPLACIAN)
        return maximise_likelihood(mixed, torch.eye(4).expand(3, 4, 4), LAPLACIAN).rows

    expected = found()
    monkeypatch.setattr(kernels, "on_cpu", lambda _: False)
    torch.testing.assert_close(found(), expected, rtol=1e-4, atol=1e-4)


def test_the_components_are_those_of_scikit_learn() -> None:
    mixed, _ = rotated(3, 5)
    theirs = FastICA(whiten=False, fun="logcosh", tol=1e-6, max_iter=500, random_state=0)
    theirs.fit(mixed[0, :, 0].T.double().numpy())
    components = torch.from_numpy(theirs.components_).float()
    components = torch.nn.functional.normalize(components, dim=1)
    found = fixed_point(mixed, LAPLACIAN)[0]
    assert nearest_to_permutation(found @ components.T) > 0.995


def test_a_victim_alone_ends_as_among_others() -> None:
    mixed = torch.cat([rotated(seed, 4)[0] for seed in range(3)])
    together = fixed_point(mixed, LAPLACIAN)
    for victim in range(3):
        alone = fixed_point(mixed[[victim]], LAPLACIAN)[0]
        torch.testing.assert_close(alone, together[victim], atol=1e-4, rtol=0)


def test_signals_without_structure_end_in_an_orthogonal_matrix() -> None:
    noise = torch.randn(2, 4, 1, 500, generator=torch.Generator().manual_seed(0))
    found = fixed_point(noise, LAPLACIAN)
    identities = torch.eye(4).expand(2, 4, 4)
    torch.testing.assert_close(found @ found.mT, identities, atol=1e-4, rtol=0)


VICTIMS, COUNT, LIKELIHOOD_PLACES = 6, 5, 250
CONTRAST = Contrast(power=0.5, smoothing=0.1)


def sparse() -> Tensor:
    """Sources of unit variance, so few values that they are correlated by chance; (V, n, 1, D)."""
    stream = torch.Generator().manual_seed(0)
    shape = VICTIMS, COUNT, 1, LIKELIHOOD_PLACES
    drawn = torch.randn(shape, generator=stream, dtype=torch.double) ** 3
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
    """Compute the share of other sources in each unmixed source; Shape (V)."""
    gains = gains.abs() / gains.abs().amax(2, keepdim=True)
    return (gains.sum(2) - 1).mean(1)


def loss(white: Tensor, matrices: Tensor) -> Tensor:
    sources = (matrices @ white.flatten(2)).view_as(white)
    return CONTRAST.measure(sources) - torch.linalg.slogdet(matrices)[1]


WHITE, MIXING = whitened(sparse())
FIRST = fixed_point(WHITE, LAPLACIAN)


def test_sources_correlated_by_chance_come_out_better_than_by_any_rotation() -> None:
    found = maximise_likelihood(WHITE, FIRST, CONTRAST)
    left, _, right = torch.linalg.svd(torch.linalg.inv(MIXING))
    after = interference(found.rows @ MIXING)
    assert (after < 0.5 * interference(FIRST @ MIXING)).all()
    assert (after < interference(left @ right @ MIXING)).all()
    assert after.mean() < 0.05
    torch.testing.assert_close(found.objective, loss(WHITE, found.rows))
    assert (found.objective < loss(WHITE, FIRST)).all()
    assert (found.objective < loss(WHITE, torch.linalg.inv(MIXING)) + 1e-3).all()


def test_the_likelihood_never_falls_and_ends_where_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = torch.eye(COUNT, dtype=torch.double).expand(VICTIMS, COUNT, COUNT)
    losses = [loss(WHITE, first)]
    for budget in range(1, 12):
        monkeypatch.setattr(independent_components, "LIKELIHOOD_ITERATIONS", budget)
        found = maximise_likelihood(WHITE, first, CONTRAST)
        assert (found.iterations <= budget).all()
        losses.append(found.objective)
    gains = -torch.stack(losses).diff(dim=0)
    assert (gains >= -1e-12).all()
    assert (gains[0] > independent_components.LIKELIHOOD_TOLERANCE).all()


def test_the_gradient_vanishes_where_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent_components, "LIKELIHOOD_TOLERANCE", 1e-14)
    monkeypatch.setattr(independent_components, "LIKELIHOOD_ITERATIONS", 400)
    found = maximise_likelihood(WHITE, FIRST, CONTRAST).rows.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(WHITE, found).sum(), found)
    relative = gradient @ found.mT
    assert relative.abs().max() < 1e-4


def test_the_lengths_and_signs_of_the_first_rows_do_not_matter() -> None:
    factors = torch.tensor([3.0, -0.1, 1.0, -20.0, 0.5], dtype=torch.double)[:, None]
    found = maximise_likelihood(WHITE, FIRST, CONTRAST)
    scaled = maximise_likelihood(WHITE, factors * FIRST, CONTRAST)
    torch.testing.assert_close(scaled.objective, found.objective)
    torch.testing.assert_close(scaled.rows, factors.sign() * found.rows)


def test_a_victim_alone_ends_as_among_others_of_likelihood() -> None:
    together = maximise_likelihood(WHITE, FIRST, CONTRAST)
    assert len(set(together.iterations.tolist())) > 1
    for victim in range(VICTIMS):
        alone = maximise_likelihood(WHITE[[victim]], FIRST[[victim]], CONTRAST)
        assert alone.iterations[0] == together.iterations[victim]
        torch.testing.assert_close(alone.objective[0], together.objective[victim])
        rows = zip(alone.rows[0], together.rows[victim], strict=True)
        assert all(torch.cosine_similarity(*pair, dim=0) > 1 - 1e-9 for pair in rows)


def test_one_source_is_left_as_it_is() -> None:
    white = WHITE[:, :1]
    white = white / white.square().mean((2, 3), keepdim=True).sqrt()
    found = maximise_likelihood(white, torch.ones(VICTIMS, 1, 1).double(), CONTRAST)
    torch.testing.assert_close(found.rows, torch.ones(VICTIMS, 1, 1).double())


def test_few_steps_suffice_for_sources_that_differ_in_sparseness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Hessian's blocks make steps long and accurate; a plain gradient is slow."""
    stream = torch.Generator().manual_seed(3)
    drawn = torch.randn(4, 4, 1, 3000, generator=stream, dtype=torch.double)
    sources = drawn.sign() * drawn.abs() ** torch.tensor([1.2, 2, 3, 5])[:, None, None]
    sources = sources / sources.square().mean((2, 3), keepdim=True).sqrt()
    mixing = torch.eye(4) + 0.15 * torch.randn(4, 4, 4, generator=stream, dtype=torch.double)
    mixed = (mixing @ sources.flatten(2)).view_as(sources)
    first = torch.eye(4, dtype=torch.double).expand(4, 4, 4)
    monkeypatch.setattr(independent_components, "LIKELIHOOD_TOLERANCE", 1e-12)
    objectives = []
    for budget in (8, 200):
        monkeypatch.setattr(independent_components, "LIKELIHOOD_ITERATIONS", budget)
        objectives.append(maximise_likelihood(mixed, first, CONTRAST).objective)
    few, many = objectives
    assert (few - many < 0.01 * (loss(mixed, first) - many)).all()
