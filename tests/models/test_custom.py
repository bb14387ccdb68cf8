from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.models.custom import ASSUMED

SOURCE = """
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))

def convolutional(shape, classes):
    sizes = nn.Conv2d(3, 8, 5, stride=2), nn.Flatten(), nn.Linear(8 * 14 * 14, classes)
    return nn.Sequential(*sizes)

def double(shape, classes):
    return build(shape, classes).double()

def half(shape, classes):
    return build(shape, classes).bfloat16()

def mixed(shape, classes):
    return nn.Sequential(build(shape, classes), nn.Linear(classes, classes).double())

def failing(shape, classes):
    return nn.Linear(shape[0] + 1, classes)
"""


@pytest.fixture
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "network_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return "network_of_mine"


def test_builds_what_the_function_returns(my_module: str) -> None:
    spec = parse("model", f"custom+factory={my_module}.build")
    assert spec.build((6,), 3)(torch.rand(2, 6)).shape == (2, 3)
    assert my_module in spec.modules


@pytest.mark.parametrize(
    ("factory", "precision"),
    [("build", "float32"), ("half", "float32"), ("double", "float64"), ("mixed", "float64")],
)
def test_the_precision_is_one_that_attacks_compute_in(
    my_module: str, factory: str, precision: str
) -> None:
    network = parse("model", f"custom+factory={my_module}.{factory}").build((6,), 3)
    assert {value.dtype for value in network.parameters()} == {getattr(torch, precision)}


@pytest.mark.parametrize("factory", ["no_such_module.build", "{}.no_such_function"])
def test_says_what_is_missing_and_what_to_do(my_module: str, factory: str) -> None:
    spec = parse("model", f"custom+factory={factory.format(my_module)}")
    with pytest.raises(SpecError, match=r"no_such.*PYTHONPATH"):
        spec.build((6,), 3)


def test_the_size_of_a_network_is_counted(my_module: str) -> None:
    spec = parse("model", f"custom+factory={my_module}.convolutional")
    convolution, dense = 14 * 14 * 8 * 3 * 5 * 5, 8 * 14 * 14 * 10
    assert spec.multiply_adds((3, 32, 32), 10) == convolution + dense
    assert spec.parameters((3, 32, 32), 10) == 8 * (3 * 5 * 5 + 1) + dense + 10


@pytest.mark.parametrize("factory", ["no_such_function", "failing"])
def test_a_network_that_cannot_be_run_has_an_assumed_size(my_module: str, factory: str) -> None:
    spec = parse("model", f"custom+factory={my_module}.{factory}")
    assert spec.multiply_adds((6,), 3) == ASSUMED.multiply_adds
    assert spec.parameters((6,), 3) == ASSUMED.parameters
