from __future__ import annotations

import torch

from gleak.models.normalisation import Normalisation, normalisation_layers


def test_each_channel_is_shifted_and_scaled() -> None:
    values = torch.rand(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    found = Normalisation([0.5, 0.25], [2.0, 0.1])(values)
    torch.testing.assert_close(found[:, 0], (values[:, 0] - 0.5) / 2)
    torch.testing.assert_close(found[:, 1], (values[:, 1] - 0.25) / 0.1)


def test_it_has_no_state_and_nothing_to_train() -> None:
    (layer,) = normalisation_layers("imagenet")
    assert not layer.state_dict()
    assert not list(layer.parameters())
    assert layer.to(torch.float64).mean.dtype == torch.float64


def test_without_a_name_there_is_no_layer() -> None:
    assert normalisation_layers("none") == []
