from __future__ import annotations

import numpy as np
import torch

from gleak.core.registry import parse


def test_three_bits_are_seven_levels() -> None:
    values = torch.linspace(-3, 3, 601)[None]
    sent = parse("defense", "quantize").protect({"w": values}, torch.Generator(), {})["w"]
    assert np.unique(sent.codes).tolist() == [-3, -2, -1, 0, 1, 2, 3]
    np.testing.assert_array_equal(sent.decode()[0], np.round(values.numpy()))


def test_what_was_quantised_stays_as_it_is() -> None:
    values = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    defense = parse("defense", "quantize+bits=5")
    once = defense.protect({"w": values}, torch.Generator(), {})["w"]
    decoded = torch.from_numpy(once.decode()[0])
    again = defense.protect({"w": decoded}, torch.Generator(), {})["w"]
    np.testing.assert_array_equal(once.codes, again.codes)
