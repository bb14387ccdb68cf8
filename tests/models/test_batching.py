from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gleak.models.batching import VALUES, batch_slices, interacting_layer, memory_slices
from tests.zoo import CLASSES, INTERACTING, SEPARATE, SHAPE


@given(st.integers(0, 3000), st.integers(1, 400), st.integers(1, 20))
def test_all_samples_pass_once_and_few_at_a_time(samples: int, side: int, channels: int) -> None:
    parts = [range(samples)[some] for some in memory_slices(samples, (channels, side, side))]
    assert [sample for part in parts for sample in part] == list(range(samples))
    for part in parts:
        assert len(part) == 1 or len(part) * channels * side**2 <= VALUES
    assert all(len(part) == len(parts[0]) for part in parts[:-1])


NAMES = dict.fromkeys(INTERACTING, "1") | {"centred": "", "contrastive head": ""}


@pytest.mark.parametrize("name", INTERACTING)
def test_the_layer_that_mixes_samples_is_named(name: str) -> None:
    torch.manual_seed(0)
    assert interacting_layer(INTERACTING[name]().eval(), SHAPE) == NAMES[name]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_no_other_network_is_taken_for_mixing() -> None:
    torch.manual_seed(0)
    found = [name for name, build in SEPARATE.items() if interacting_layer(build().eval(), SHAPE)]
    assert not found


def test_batch_norm_mixes_in_training_mode_and_dropout_does_not() -> None:
    layers = [nn.Flatten(), nn.Linear(192, 6), nn.Dropout(), nn.Linear(6, CLASSES)]
    assert interacting_layer(nn.Sequential(*layers).train(), SHAPE) is None
    normalised = nn.Sequential(*layers[:2], nn.BatchNorm1d(6), layers[3])
    before = normalised[2].running_mean.clone()
    assert interacting_layer(normalised.train(), SHAPE) == "2"
    assert interacting_layer(normalised.eval(), SHAPE) is None
    assert torch.equal(normalised[2].running_mean, before)


class OneSampleFails(nn.Module):
    """Layer that normalises by the batch and fails on a single sample."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.batch_norm(inputs, None, None, training=True)


def test_a_layer_that_does_not_take_one_sample_mixes() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), OneSampleFails(), nn.Linear(6, 4))
    assert interacting_layer(network, SHAPE) == "2"


def test_batches_are_cut_only_where_samples_do_not_interact() -> None:
    inputs = torch.zeros(5, 3, 512, 512)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 4))
    slices = batch_slices(pooled.eval(), inputs)
    assert len(slices) == 5
    assert torch.equal(torch.cat([inputs[some] for some in slices]), inputs)
    mixing = nn.Sequential(pooled, OneSampleFails())
    assert batch_slices(mixing.eval(), inputs) == [slice(None)]
    assert batch_slices(pooled.train(), inputs) == [slice(None)]
