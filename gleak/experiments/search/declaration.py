"""Searches as a study declares them; importing this builds the workflow's graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from gleak.attacks.base import AttackSpec
from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import parse
from gleak.core.settings import Scale
from gleak.core.spec import Spec, changed
from gleak.core.yaml_input import at_scale
from gleak.experiments.cell import LEVELS, Cell
from gleak.experiments.search.chosen import Entry
from gleak.experiments.search.ranges import Range, read_range
from gleak.metrics.base import MetricSpec

if TYPE_CHECKING:
    from torch import nn

OWN_SPLIT = "train"
NO_PATCHES: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


class Declaration(BaseModel):
    """What a scale may say of a search; what it leaves out is as at the scale of the paper.

    Args:
        dataset, model, training, crafting, client, defense, attack: spec strings of the cell on
            which values are tried; the search begins with the attack's own. At a scale, fields
            that it changes.
        ranges: field of the attack -> ``low``, ``high`` and ``log``, or a list of choices.
        trials: specs that are tried, the attack as it stands among them.
        metric: whose mean over the samples is made as good as can be.
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
        base: another search of the study, which this one is a change of.
        quick, small: what is different at these scales.
    """

    base: str | None = None
    quick: Declaration | None = None
    small: Declaration | None = None

    def at(self, scale: Scale) -> Declaration:
        """Return the search at a scale, without the changes of fields."""
        changed = self.patches(scale)
        own = getattr(self, scale, None)
        kept = own and own.model_copy(update=dict.fromkeys(changed))
        return at_scale(self.model_copy(update={scale: kept} if kept else {}), Declaration, scale)

    def patches(self, scale: Scale) -> dict[str, dict[str, Any]]:
        """Return the fields that a scale changes, by level."""
        own = getattr(self, scale, None) or Declaration()
        found = {level: getattr(own, level) for level in LEVELS}
        return {level: fields for level, fields in found.items() if isinstance(fields, dict)}


@dataclass(frozen=True)
class Search:
    """A search at one scale.

    Args:
        name: as in the study.
        cell: on which values are tried; its attack is the base, tried first.
        ranges: field of the attack -> what it may be, in the order of the attack's fields.
        trials: specs that are tried.
        metric: whose mean is made as good as can be.
        chosen: the attack that was adopted, None before that and where it is outdated.
        outdated: whether what was adopted is of the search as it was declared before.
    """

    name: str
    cell: Cell
    ranges: Mapping[str, Range]
    trials: int
    metric: MetricSpec
    chosen: AttackSpec | None = None
    outdated: bool = False

    @property
    def base(self) -> AttackSpec:
        """The attack that the search begins with, and that stands for it before it has run."""
        attack: AttackSpec = self.cell.attack
        return attack

    @property
    def declared(self) -> dict[str, Any]:
        """The declaration in one form; `read_search` makes the same search of it."""
        return {
            **self.cell.strings(),
            "ranges": {field: found.declared() for field, found in self.ranges.items()},
            "trials": self.trials,
            "metric": str(self.metric),
        }

    @property
    def fingerprint(self) -> str:
        """Tells this declaration from any other."""
        return blake2b(json.dumps(self.declared).encode(), digest_size=8).hexdigest()

    @property
    def variants(self) -> list[AttackSpec]:
        """The base, and what it is with each value of each range that can be told beforehand."""
        values = [(field, value) for field, r in self.ranges.items() for value in r.examples]
        return [self.base, *(changed(self.base, {field: value}) for field, value in values)]

    @property
    def modules(self) -> list[str]:
        """Modules of all specs whose code the search runs."""
        attacks = [part for attack in self.variants for part in attack.components()]
        parts: list[Spec] = [*attacks, *self.cell.components("model"), self.metric]
        return sorted({name for part in parts for name in part.modules})

    def resolved(self) -> dict[str, Any]:
        """Every field of the specs, defaults included: what a job is keyed on."""
        specs = {level: self.cell.specs[level].resolved() for level in ("model", "attack")}
        return {**self.declared, **specs, "metric": self.metric.resolved()}

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Names of the parameters whose updates any variant reads; see `AttackSpec.reads`."""
        names: frozenset[str] = frozenset()
        for attack in self.variants:
            read = attack.reads(model, input_shape)
            if read is None:
                return None
            names |= read
        return names

    def adopting(self, entry: Entry) -> Search:
        """The search with what it chose.

        Raises:
            SpecError: what it chose is no attack any more.
        """
        if entry.fingerprint != self.fingerprint:
            return replace(self, outdated=True)
        return replace(self, chosen=parse("attack", entry.chosen))

    def check_choice(self) -> None:
        """Refuse what was chosen under another declaration.

        Raises:
            SpecError: says what to do.
        """
        if self.outdated:
            raise SpecError(
                f"search {self.name!r} has changed since its choice was adopted; run it again "
                "(snakemake searches, at this scale and with this study alone in studies), then "
                "gleak adopt"
            )


def read_search(
    name: str, declared: Declaration, patches: Mapping[str, Mapping[str, Any]] = NO_PATCHES
) -> Search:
    """Read a search from what is declared at one scale.

    Args:
        name: as in the study.
        declared: without changes of fields.
        patches: fields that the scale changes, by level.

    Raises:
        SpecError: something is missing or cannot be used as written; names the key.
        IncompatibleError: specs that do not fit together.
    """
    for key in Declaration.model_fields:
        if getattr(declared, key) is None:
            raise SpecError(f"key {key!r} is missing")
    specs = {level: parse(level, str(getattr(declared, level))) for level in LEVELS}
    changes = {level: changed(specs[level], fields) for level, fields in patches.items()}
    cell = Cell({**specs, **changes})
    cell.check()
    search = Search(
        name=name,
        cell=cell,
        ranges=dict(_ranges(cell.attack, declared.ranges or {})),
        trials=declared.trials or 1,
        metric=_metric(declared.metric or "", cell),
    )
    _check_split(cell)
    _check_variants(search)
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
            raise SpecError(f"{metric} says nothing of {cell.dataset.modality} data")
    return metric


def _check_split(cell: Cell) -> None:
    """Refuse victims of which results are reported."""
    if cell.client.split != OWN_SPLIT:
        raise SpecError(
            f"client: {cell.client} draws its samples from split={cell.client.split}, and nothing "
            f"is chosen on test victims; write it with split={OWN_SPLIT}"
        )


def _check_variants(search: Search) -> None:
    """Refuse values that do not fit the cell, or with which the attack would know other things."""
    for attack in search.variants:
        with error_context("ranges"):
            Cell({**search.cell.specs, "attack": attack}).check()
            if attack.grants != search.base.grants:
                raise SpecError(
                    f"{attack} is granted other things than {search.base}; search each on its own"
                )
            if attack.knowledge != search.base.knowledge:
                raise SpecError(
                    f"{attack} brings other knowledge than {search.base}; search each on its own"
                )
