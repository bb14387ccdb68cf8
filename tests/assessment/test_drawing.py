from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import numpy as np
from PIL import Image

from gleak.assessment.drawing import sample_uri


def content(uri: str) -> bytes:
    return b64decode(uri.partition("base64,")[2])


def test_a_sample_is_enlarged_without_blur() -> None:
    sample = np.zeros((1, 8, 8))
    sample[0, 0, 0] = 1
    picture = np.array(Image.open(BytesIO(content(sample_uri(sample)))))
    assert picture.shape == (128, 128)
    assert (picture[:16, :16] == 255).all()
    assert picture.sum() == 16 * 16 * 255
