"""Search ranges of an attack's fields."""

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
    """Base class of the search range of one field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    @abstractmethod
    def examples(self) -> tuple[Any, ...]:
        """Values that are checked before any job: the ends, or every choice."""

    @abstractmethod
    def suggest(self, trial: Trial, field: str) -> Any:
        """Draw a value of a field for a trial."""

    @abstractmethod
    def start(self, base: Spec, field: str) -> Any:
        """Return the base's value of a field, in the form that `suggest` returns.

        Raises:
            SpecError: the value is outside the range.
        """

    @abstractmethod
    def declared(self) -> Any:
        """Return the range in the form of a study file, canonically."""


class Interval(Range):
    """Closed interval of numbers.

    Args:
        low, high: ends of the interval.
        log: True to sample uniformly on a logarithmic scale.
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
        """Ends of the interval."""
        return self.low, self.high

    def suggest(self, trial: Trial, field: str) -> float:
        """Draw a value and round it to three significant digits, to keep paths short."""
        value = trial.suggest_float(field, self.low, self.high, log=self.log)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    @override
    def start(self, base: Spec, field: str) -> Any:
        value = getattr(base, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SpecError(f"{field_text(base, field)!r} of {base} is not a number; list choices")
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
    """Closed interval of integers."""

    low: int
    high: int

    @override
    def suggest(self, trial: Trial, field: str) -> int:
        return trial.suggest_int(field, self.low, self.high, log=self.log)


class Choices(Range):
    """List of values, each in the form of a spec string."""

    texts: tuple[str, ...]

    @property
    def examples(self) -> tuple[str, ...]:
        """All choices."""
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
    """Read the range of a field from a study file.

    Args:
        base: spec of the first trial.
        field: one of its fields.
        written: low, high and log of an interval, or a list of choices.

    Raises:
        SpecError: the range is malformed, contains values that are invalid for the field, or does
            not contain the base's value.
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
