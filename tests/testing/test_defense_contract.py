"""`check_defense` accepts defences that obey the contract, and names what another does not obey."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from gleak.artifacts.encodings import Dense
from gleak.core.errors import SpecError
from gleak.defenses.base import DefenseSpec, Memory, NoDefense, encode
from gleak.testing import check_defense


class Halved(DefenseSpec):
    """Half of every value."""

    name: ClassVar[str] = "halved"

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value / 2)

    def protect(self, update: dict[str, Tensor], generator: Generator, memory: Memory) -> Any:
        return {name: self.halve(value, generator) for name, value in update.items()}


class Overwriting(Halved):
    """The client's own values are halved."""

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value.div_(2))


class Unseeded(Halved):
    """Noise of torch's own stream."""

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value + torch.randn_like(value))


class Double(Halved):
    """Values in double precision."""

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value.double())


class Flat(Halved):
    """Values without their shape."""

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value.flatten(1))


class Infinite(Halved):
    """Values that are not finite."""

    def halve(self, value: Tensor, generator: Generator) -> Dense:
        return encode(value / 0)


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
    ("cls", "text"),
    [
        (Overwriting, r"changes the client's own 0\.weight"),
        (Unseeded, "differs for equal generators"),
        (Double, "is float64, not float32"),
        (Flat, r"0\.weight has \(1, 1, 150\), not \(1, 1, 3, 2, 5, 5\)"),
        (Infinite, r"update of halved: 0\.weight contains 150 values that are NaN or infinite"),
        (Dropping, r"sends \['0\.bias'"),
        (Evaluating, "changes the mode of the model"),
        (Numpy, "with samples: .* differs for equal seeds"),
    ],
)
def test_what_is_not_obeyed_is_named(cls: type[DefenseSpec], text: str, register: Any) -> None:
    with pytest.raises(AssertionError, match=text):
        check_defense(register(cls))


def test_a_class_that_is_not_registered_is_told_how() -> None:
    class Mine(NoDefense):
        """Not registered."""

    with pytest.raises(SpecError, match="Mine is not registered; decorate it: @register"):
        check_defense(Mine)
