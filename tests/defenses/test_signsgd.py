from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.registry import parse

VALUES = st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=9)


@given(VALUES)
def test_signs_alone_are_sent(values: list[float]) -> None:
    sent = parse("defense", "signsgd").protect({"w": torch.tensor([values])}, torch.Generator(), {})
    assert sent["w"].codes.dtype == np.int8
    expected = [(value > 0) - (value < 0) for value in values]
    assert sent["w"].decode()[0, 0].tolist() == expected
