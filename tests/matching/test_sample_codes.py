"""Codes of samples."""

from __future__ import annotations

import pytest
import torch

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.matching.codes.sample_codes import BicubicCoder


@pytest.mark.parametrize("scale", [2, 4])
def test_smooth_images_survive_their_code(scale: int) -> None:
    """Cubic interpolation reproduces a linear gradient of grey exactly, except at the border."""
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, 16), torch.linspace(0, 1, 24), indexing="ij"
    )
    image = (0.5 * rows + 0.5 * columns).expand(2, 3, 16, 24)
    coder = BicubicCoder(scale, (3, 16, 24))
    codes = coder.encode(image)
    assert codes.shape == (2, 3 * 16 * 24 // scale**2)
    inner = (..., slice(2 * scale, -2 * scale), slice(2 * scale, -2 * scale))
    torch.testing.assert_close(coder.decode(codes)[inner], image[inner], atol=1e-2, rtol=0)


def test_decoding_is_linear() -> None:
    coder = BicubicCoder(2, (1, 8, 8))
    first, second = torch.rand(2, 3, 16, generator=torch.Generator().manual_seed(0))
    together = coder.decode(2 * first - second)
    torch.testing.assert_close(together, 2 * coder.decode(first) - coder.decode(second))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("photos+size=18", "divisible by 4, and images of photos.size=18 have 18 x 18"),
        ("breast_cancer", "encodes images only"),
    ],
)
def test_what_has_no_such_code_is_refused(dataset: str, message: str) -> None:
    with pytest.raises(IncompatibleError, match=message):
        parse("code", "bicubic").check(parse("dataset", dataset))
