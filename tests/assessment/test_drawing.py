from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import numpy as np
from PIL import Image

from gleak.assessment.drawing import sample_uri, variation_uris
from gleak.assessment.findings import Exposure, Mean, Variation, Varied


def content(uri: str) -> bytes:
    return b64decode(uri.partition("base64,")[2])


def exposure(metric: str, value: float | None) -> Exposure:
    mean = Mean(value=value, low=None, high=None)
    return Exposure(
        cell="d/m/t/c/clients/n/a",
        attack="best",
        metric=metric,
        threshold=0.5,
        better="higher",
        clients=2,
        above=0,
        share=mean,
        attacked=mean,
        blind=mean,
        gain=mean,
        losses=[],
    )


def test_a_sample_is_enlarged_without_blur() -> None:
    sample = np.zeros((1, 8, 8))
    sample[0, 0, 0] = 1
    picture = np.array(Image.open(BytesIO(content(sample_uri(sample)))))
    assert picture.shape == (128, 128)
    assert (picture[:16, :16] == 255).all()
    assert picture.sum() == 16 * 16 * 255


def test_each_metric_has_a_picture_and_missing_values_are_left_out() -> None:
    points = [
        Varied(value="1", deployed=True, exposures=[exposure("ssim", 0.5), exposure("psnr", None)]),
        Varied(value="2", deployed=False, exposures=[exposure("psnr", 20), exposure("ssim", 0.1)]),
        Varied(value="4", deployed=False, exposures=[]),
    ]
    found = variation_uris(Variation(field="batch_size", points=points))
    assert len(found) == 2
    assert all(content(uri).startswith(b"<?xml") for uri in found)
    assert variation_uris(Variation(field="batch_size", points=points[2:])) == []
