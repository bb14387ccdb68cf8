"""What a GPU's kernels make of a search, emulated: the factors of TF32 have 10 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gleak.attacks.matching import kernels
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.runtime.device import choose_device

Make = Callable[..., tuple[Observation, Tensor, Tensor]]
aten = torch.ops.aten
CONVOLUTIONS = {aten.convolution, aten.convolution_backward}
PRODUCTS = {aten.mm, aten.bmm, aten.addmm, aten.baddbmm}


class Card(TorchDispatchMode):
    """Rounds factors as a GPU with TF32 does, where torch's settings allow it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        backends, packet = torch.backends, func.overloadpacket
        convolves = packet in CONVOLUTIONS and backends.cudnn.conv.fp32_precision == "tf32"
        multiplies = packet in PRODUCTS and backends.cuda.matmul.fp32_precision == "tf32"
        if convolves or multiplies:
            args = [rounded(each) for each in args]
        return func(*args, **(kwargs or {}))


def rounded(value: Any) -> Any:
    """Round to nearest even, 10 of the 23 bits behind the point."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(torch.float32)


@pytest.fixture
def kernels_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "on_cpu", lambda _: False)


def test_factors_are_rounded_to_10_bits() -> None:
    step = 2.0**-10
    values = torch.tensor([1 + 0.49 * step, 1 + 0.5 * step, 1 + 1.5 * step, -1 - 0.51 * step, 0])
    assert rounded(values).tolist() == [1, 1, 1 + 2 * step, -1 - step, 0]


@pytest.mark.usefixtures("torch_defaults", "kernels_of_a_card")
@pytest.mark.parametrize(("model", "spread"), [("lenet", 0.5), ("resnet20+width=4", 0.25)])
def test_the_true_image_is_accepted_with_our_kernels_and_not_with_those_of_torch(
    model: str, spread: float, make_observation: Make
) -> None:
    observation, inputs, _ = make_observation(model, 2, 1, spread)
    parts = parse("attack", "cpl").parts()
    problem = GradientMatching.of(observation, parts)
    exact = problem.evaluate(inputs.flatten(1))
    with Card():
        rough = problem.evaluate(inputs.flatten(1))
        choose_device("cpu")
        ours = problem.evaluate(inputs.flatten(1))
    assert rough.distance.min() > parts.threshold
    assert ours.distance.max() < parts.threshold / 100
    assert torch.equal(ours.distance, exact.distance)


@pytest.mark.usefixtures("torch_defaults", "kernels_of_a_card")
def test_an_attack_comes_to_what_it_does_without_a_card(make_observation: Make) -> None:
    observation, _, _ = make_observation("lenet", victims=2, samples=1)
    parts = replace(parse("attack", "cpl").parts(), iterations=2)

    def found() -> Tensor:
        return torch.from_numpy(match(observation, parts).inputs)

    without = found()
    with Card():
        assert not torch.equal(found(), without)
        choose_device("cpu")
        assert torch.equal(found(), without)
