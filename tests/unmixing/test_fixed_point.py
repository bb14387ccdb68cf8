from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import FastICA
from torch import Tensor

from gleak.unmixing.contrast import LAPLACIAN
from gleak.unmixing.fixed_point import fixed_point

PLACES = 4000


def rotated(seed: int, count: int, channels: int = 1) -> tuple[Tensor, Tensor]:
    """Independent sparse sources, exactly white, and a rotation of them."""
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
    """The least of the rows' greatest magnitudes; every source is to be found by some row."""
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
