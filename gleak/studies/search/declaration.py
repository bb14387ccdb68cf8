"""Searches as a study declares them.

Snakemake imports this module to build its graph, so nothing heavy is imported.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gleak.attacks.base import AttackSpec
from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.core.settings import Scale
from gleak.core.spec import Spec, changed, field_text
from gleak.core.yaml_input import at_scale, read_model
from gleak.metrics.base import MetricSpec
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.search.chosen import Entry

if TYPE_CHECKING:
    import optuna

OWN_SPLIT = "train"
DIGITS = 3
"""Significant digits of values that a search draws."""


class Range(BaseModel, ABC):
    """Base class of the search range of one field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    @abstractmethod
    def examples(self) -> tuple[Any, ...]:
        """Values that are checked before any job: the ends, or every choice."""

    @abstractmethod
    def suggest(self, trial: optuna.Trial, field: str) -> Any:
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


class NumberRange(Range):
    """Closed interval of numbers; with ``log``, sampled uniformly on a logarithmic scale."""

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
        return self.low, self.high

    def suggest(self, trial: optuna.Trial, field: str) -> float:
        """Draw a value and round it to three significant digits, to keep paths short."""
        value = trial.suggest_float(field, self.low, self.high, log=self.log)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

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

    def declared(self) -> dict[str, Any]:
        return self.model_dump()


class IntegerRange(NumberRange):
    """Closed interval of integers."""

    low: int
    high: int

    def suggest(self, trial: optuna.Trial, field: str) -> int:
        return trial.suggest_int(field, self.low, self.high, log=self.log)


class Choices(Range):
    """List of values, each in the form of a spec string."""

    texts: tuple[str, ...]

    @property
    def examples(self) -> tuple[str, ...]:
        return self.texts

    def suggest(self, trial: optuna.Trial, field: str) -> str:
        return str(trial.suggest_categorical(field, self.texts))

    def start(self, base: Spec, field: str) -> str:
        text = field_text(base, field)
        if text not in self.texts:
            raise SpecError(
                f"a search begins with {base}, whose {field} = {text} is none of "
                f"{', '.join(self.texts)}; add it or change the attack"
            )
        return text

    def declared(self) -> list[str]:
        return list(self.texts)


def read_range(base: Spec, field: str, written: Mapping[str, Any] | list[Any]) -> Range:
    """Read the range of a field of the first trial's spec from a study file.

    Raises:
        SpecError: the range is malformed, contains values that are invalid for the field, or does
            not contain the base's value.
    """
    field_range: Range
    with error_context(f"ranges, field {field!r}"):
        if isinstance(written, Mapping):
            whole = type(getattr(base, field)) is int
            field_range = read_model(IntegerRange if whole else NumberRange, written, "interval")
        else:
            texts = [field_text(changed(base, {field: value}), field) for value in written]
            if len(set(texts)) < max(len(texts), 2):
                raise SpecError(f"{written} are not two or more different choices")
            field_range = Choices(texts=tuple(texts))
        field_range.start(base, field)
        for value in field_range.examples:
            changed(base, {field: value})
    return field_range


class Declaration(BaseModel):
    """A search, or changes to it at a scale; missing keys keep their value at scale ``paper``.

    Args:
        dataset, model, training, crafting, client, defense, attack: spec strings of the cell that
            the trials run on; the first trial is the attack itself. At a scale also a mapping of
            changed fields.
        ranges: field of the attack -> ``low``, ``high`` and ``log``, or a list of choices.
        trials: number of trials, including the attack itself.
        metric: metric whose mean over the samples is optimised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str | dict[str, Any] | None = None
    model: str | dict[str, Any] | None = None
    training: str | dict[str, Any] | None = None
    crafting: str | dict[str, Any] | None = None
    client: str | dict[str, Any] | None = None
    defense: str | dict[str, Any] | None = None
    attack: str | dict[str, Any] | None = None
    ranges: dict[str, dict[str, Any] | list[Any]] | None = None
    trials: int | None = Field(None, ge=1)
    metric: str | None = None


class SearchFile(Declaration):
    """A search in a study file.

    Args:
        base: another search of the study, which this one modifies.
        after: an earlier search of the study; the attack has the values that it chose.
        quick, small, headline: changes at these scales.
    """

    base: str | None = None
    after: str | None = None
    quick: Declaration | None = None
    small: Declaration | None = None
    headline: Declaration | None = None

    def at(self, scale: Scale) -> Declaration:
        """Return the search at a scale, without the changes of fields."""
        own = getattr(self, scale, None)
        kept = own and own.model_copy(update=dict.fromkeys(self.patches(scale)))
        return at_scale(self.model_copy(update={scale: kept} if kept else {}), Declaration, scale)

    def patches(self, scale: Scale) -> dict[str, dict[str, Any]]:
        """Return the fields that a scale changes, by level."""
        own = getattr(self, scale, None) or Declaration()
        values = {level: getattr(own, level) for level in LEVELS}
        return {level: fields for level, fields in values.items() if isinstance(fields, dict)}


@dataclass(frozen=True)
class SpecSearch:
    """A search at one scale.

    Args:
        name: name of the search in the study.
        cell: cell that the trials run on; its attack is the base, which is tried first.
        ranges: field of the attack -> its range, in the order of the attack's fields.
        trials: number of trials.
        metric: metric whose mean over the samples is optimised.
        chosen: adopted attack; None if nothing was adopted or the result is outdated.
        outdated: True if the search has changed since its result was adopted.
        written: attack of the study file, by which figures and claims refer to the result, if the
            base has values that an earlier search chose.
    """

    name: str
    cell: Cell
    ranges: Mapping[str, Range]
    trials: int
    metric: MetricSpec
    chosen: AttackSpec | None = None
    outdated: bool = False
    written: AttackSpec | None = None

    @property
    def base(self) -> AttackSpec:
        """Attack of the first trial, used in grids until a result is adopted."""
        return self.cell.attack

    @property
    def used(self) -> dict[str, str]:
        """Searched fields with the values that grids use: the adopted ones, else the base's."""
        attack = self.chosen or self.base
        return {field: field_text(attack, field) for field in self.ranges}

    @property
    def substitute(self) -> str:
        """Attack that is used without an adopted result, in one line; empty if there is one."""
        if self.chosen or self.outdated:
            return ""
        values = ", ".join(f"{field}={value}" for field, value in self.used.items())
        return f"search {self.name} not adopted: base attack {self.base.name} with {values}"

    @property
    def declared(self) -> dict[str, Any]:
        """Canonical form of the declaration; `read_search` returns an equal search for it."""
        return {
            **self.cell.strings(),
            "ranges": {field: values.declared() for field, values in self.ranges.items()},
            "trials": self.trials,
            "metric": str(self.metric),
        }

    @property
    def fingerprint(self) -> str:
        return blake2b(json.dumps(self.declared).encode(), digest_size=8).hexdigest()

    @property
    def variants(self) -> list[AttackSpec]:
        """The base, and the base with each example value of each range."""
        values = [(field, value) for field, r in self.ranges.items() for value in r.examples]
        return [self.base, *(changed(self.base, {field: value}) for field, value in values)]

    @property
    def modules(self) -> list[str]:
        """Modules of all specs whose code the search runs."""
        attacks = [part for attack in self.variants for part in attack.components()]
        parts: list[Spec] = [*attacks, *self.cell.components("model"), self.metric]
        return sorted({name for part in parts for name in part.modules})

    def resolved(self) -> dict[str, Any]:
        """Return every field of the specs, including defaults; a change reruns the job."""
        specs = {level: self.cell.specs[level].resolved() for level in ("model", "attack")}
        return {**self.declared, **specs, "metric": self.metric.resolved()}

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of parameters whose updates any variant reads (`AttackSpec.reads`)."""
        reads = [attack.reads(model, input_shape) for attack in self.variants]
        return None if None in reads else frozenset().union(*filter(None, reads))

    def after(self, earlier: SpecSearch) -> SpecSearch:
        """Return the search whose base has the values that an earlier search chose.

        Raises:
            SpecError: the attack has not the fields that were searched, or its ranges exclude them.
        """
        attack = changed(self.base, earlier.used)
        search = read_search(self.name, Declaration(**{**self.declared, "attack": str(attack)}))
        return replace(search, written=self.base)

    def adopting(self, entry: Entry) -> SpecSearch:
        """Return the search with an adopted result, or marked as outdated if it has changed."""
        if entry.fingerprint != self.fingerprint:
            return replace(self, outdated=True)
        return replace(self, chosen=parse("attack", entry.chosen))

    def check_choice(self) -> None:
        """Raise a `SpecError` if the search has changed since its result was adopted."""
        if self.outdated:
            raise SpecError(
                f"search {self.name!r} has changed since its choice was adopted, or one that it "
                "comes after was adopted anew; run it again (snakemake searches, at this scale and "
                "with this study alone in studies), then gleak adopt"
            )


def read_search(
    name: str, declared: Declaration, patches: Mapping[str, Mapping[str, Any]] | None = None
) -> SpecSearch:
    """Read a search from its declaration at one scale, with the fields that the scale changes.

    Raises:
        SpecError: a key is missing or invalid; names the key.
        IncompatibleError: specs are incompatible.
    """
    for key in Declaration.model_fields:
        if getattr(declared, key) is None:
            raise SpecError(f"key {key!r} is missing")
    specs = {level: parse(level, str(getattr(declared, level))) for level in LEVELS}
    changes = {level: changed(specs[level], fields) for level, fields in (patches or {}).items()}
    cell = Cell({**specs, **changes})
    cell.check()
    search = SpecSearch(
        name=name,
        cell=cell,
        ranges=dict(_ranges(cell.attack, declared.ranges or {})),
        trials=declared.trials or 1,
        metric=_metric(declared.metric or "", cell),
    )
    if cell.client.split != OWN_SPLIT:
        raise SpecError(
            f"client: {cell.client} draws its samples from split={cell.client.split}, and nothing "
            f"is chosen on test victims; write it with split={OWN_SPLIT}"
        )
    for attack in search.variants:
        with error_context("ranges"):
            Cell({**cell.specs, "attack": attack}).check()
            if attack.grants != search.base.grants:
                raise SpecError(
                    f"{attack} needs other grants than {search.base}; search each on its own"
                )
            if attack.knowledge != search.base.knowledge:
                raise SpecError(
                    f"{attack} uses other knowledge than {search.base}; search each on its own"
                )
    return search


def _ranges(base: AttackSpec, written: Mapping[str, Any]) -> Iterator[tuple[str, Range]]:
    fields = type(base).model_fields
    with error_context("ranges"):
        if not written:
            raise SpecError("has no fields; name those of the attack that are searched")
        for field in written:
            if field not in fields:
                hint = nearest(field, fields)
                raise SpecError(f"attack {base.name!r} has no field {field!r}; {hint}")
    for field in fields:
        if field in written:
            yield field, read_range(base, field, written[field])


def _metric(text: str, cell: Cell) -> MetricSpec:
    with error_context("metric"):
        metric = parse("metric", text)
        if not isinstance(metric, MetricSpec):
            raise SpecError(f"{metric} is of a model; a search needs one of what an attack finds")
        if cell.dataset.modality not in metric.modalities:
            raise SpecError(f"{metric} does not apply to {cell.dataset.modality} data")
    return metric
