from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gleak.core.errors import SpecError
from gleak.core.registry import parse

SOURCE = """
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
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


@pytest.mark.parametrize("factory", ["no_such_module.build", "{}.no_such_function"])
def test_says_what_is_missing_and_what_to_do(my_module: str, factory: str) -> None:
    spec = parse("model", f"custom+factory={factory.format(my_module)}")
    with pytest.raises(SpecError, match=r"no_such.*PYTHONPATH"):
        spec.build((6,), 3)


def test_wants_a_module_and_a_function() -> None:
    with pytest.raises(SpecError, match="factory"):
        parse("model", "custom+factory=build")
