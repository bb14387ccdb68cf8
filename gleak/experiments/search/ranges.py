"""Ranges: the values of an attack's fields that a search may try."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override

from gleak.core.errors import SpecError, error_context
from gleak.core.spec import Spec, changed, field_text
from gleak.core.yaml_input import read_model

if TYPE_CHECKING:
    from optuna import Trial

DIGITS = 3


class Range(BaseModel, ABC):
    """What one field may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    @abstractmethod
    def examples(self) -> tuple[Any, ...]:
        """Values that are checked before any work: the ends, or every choice."""

    @abstractmethod
    def suggest(self, trial: Trial, field: str) -> Any:
        """A value to try."""

    @abstractmethod
    def start(self, base: Spec, field: str) -> Any:
        """The value of the base, as `suggest` would give it.

        Raises:
            SpecError: it is none of the range.
        """

    @abstractmethod
    def declared(self) -> Any:
        """The range as a study file has it, in one form."""


class Interval(Range):
    """Numbers between two ends, which belong to it.

    Args:
        low, high: the ends.
        log: whether equal ratios are equally likely, not equal differences.
    """

    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} is not below high = {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low = {self.low:g}: a logarithmic range begins above 0")
        return self

    @property
    def examples(self) -> tuple[float, ...]:
        """The ends."""
        return self.low, self.high

    def suggest(self, trial: Trial, field: str) -> float:
        """Three significant digits, so that what is chosen fits into a path."""
        value = trial.suggest_float(field, self.low, self.high, log=self.log)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    @override
    def start(self, base: Spec, field: str) -> Any:
        value = getattr(base, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SpecError(f"{field_text(base, field)!r} of {base} is no number; list choices")
        if not self.low <= value <= self.high:
            raise SpecError(
                f"a search begins with {base}, whose {field} = {field_text(base, field)} is not "
                f"from {self.low:g} to {self.high:g}; widen the range or change the attack"
            )
        return value

    @override
    def declared(self) -> dict[str, Any]:
        return self.model_dump()


class WholeInterval(Interval):
    """Whole numbers between two ends, which belong to it."""

    low: int
    high: int

    @override
    def suggest(self, trial: Trial, field: str) -> int:
        return trial.suggest_int(field, self.low, self.high, log=self.log)


class Choices(Range):
    """Some values, each as a spec string has it."""

    texts: tuple[str, ...]

    @property
    def examples(self) -> tuple[str, ...]:
        """All of them."""
        return self.texts

    @override
    def suggest(self, trial: Trial, field: str) -> str:
        return str(trial.suggest_categorical(field, self.texts))

    @override
    def start(self, base: Spec, field: str) -> str:
        text = field_text(base, field)
        if text not in self.texts:
            raise SpecError(
                f"a search begins with {base}, whose {field} = {text} is none of "
                f"{', '.join(self.texts)}; add it or change the attack"
            )
        return text

    @override
    def declared(self) -> list[str]:
        return list(self.texts)


def read_range(base: Spec, field: str, written: Mapping[str, Any] | list[Any]) -> Range:
    """The range of a field, as a study file has it.

    Args:
        base: the spec that the search begins with.
        field: one of its fields.
        written: low, high and log of an interval, or a list of choices.

    Raises:
        SpecError: faulty, with values the field cannot have, or without the base's own.
    """
    found: Range
    with error_context(f"ranges, field {field!r}"):
        if isinstance(written, Mapping):
            whole = type(getattr(base, field)) is int
            found = read_model(WholeInterval if whole else Interval, written, "interval")
        else:
            found = Choices(texts=_texts(base, field, written))
        found.start(base, field)
        for value in found.examples:
            changed(base, {field: value})
    return found


def _texts(base: Spec, field: str, values: list[Any]) -> tuple[str, ...]:
    texts = [field_text(changed(base, {field: value}), field) for value in values]
    if len(set(texts)) < max(len(texts), 2):
        raise SpecError(f"{values} are not two or more different choices")
    return tuple(texts)
