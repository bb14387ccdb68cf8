"""`check_defense` accepts defences that obey the contract, and names what another does not obey."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from gleak.artifacts.encodings import Dense
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.testing import check_defense


class Halved(DefenseSpec):
    """Half of every value."""

    name: ClassVar[str] = "halved"

    def halve(self, value: Tensor) -> Dense:
        return encode(value / 2)

    def protect(self, update: dict[str, Tensor], generator: Generator, memory: Memory) -> Any:
        return {name: self.halve(value) for name, value in update.items()}


class Dropping(Halved):
    """A parameter is not sent."""

    def protect(self, update: dict[str, Tensor], generator: Generator, memory: Memory) -> Any:
        return dict(list(super().protect(update, generator, memory).items())[1:])


class Evaluating(Halved):
    """The client's model stays in evaluation mode."""

    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        model.eval()
        return update


class Numpy(Halved):
    """Random numbers of numpy, with the samples at hand."""

    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        factor = float(np.random.default_rng().random())
        return {name: factor * value for name, value in update.items()}


def test_defences_that_obey_pass(register: Any) -> None:
    cls = register(Halved)
    for given in (cls, cls(), "halved", "soteria", "topk+keep=0.1"):
        check_defense(given)


@pytest.mark.parametrize(
    ("halve", "text"),
    [
        (lambda value: encode(value.div_(2)), r"changes the client's own 0\.weight"),
        (lambda value: encode(value + torch.randn_like(value)), "differs for equal generators"),
        (lambda value: encode(value.double()), "is float64, not float32"),
        (lambda value: encode(value.flatten(1)), r"has \(1, 1, 150\), not \(1, 1, 3, 2, 5, 5\)"),
        (
            lambda value: encode(value / 0),
            r"halved: 0\.weight contains 150 values that are NaN or i",
        ),
    ],
)
def test_values_that_do_not_obey_are_named(
    halve: Any, text: str, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Halved, "halve", staticmethod(halve))
    with pytest.raises(AssertionError, match=text):
        check_defense(register(Halved))


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Dropping, r"sends \['0\.bias'"),
        (Evaluating, "changes the mode of the model"),
        (Numpy, "with samples: .* differs for equal seeds"),
    ],
)
def test_what_is_not_obeyed_is_named(cls: type[DefenseSpec], text: str, register: Any) -> None:
    with pytest.raises(AssertionError, match=text):
        check_defense(register(cls))
