"""Comparison of attacks by their properties, as in AGIC Table VII."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gleak.attacks.base import AttackSpec
from gleak.core.errors import SpecError, nearest
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import DASH
from gleak.core.registry import parse, register
from gleak.core.spec import parameter
from gleak.figures.canvas.style import save_numbers
from gleak.figures.canvas.tables import write_table
from gleak.studies.axis_labels import bare
from gleak.studies.figure_spec import TABLE_SUFFIXES, FigureData, FigureSpec, as_list

ATTACK = "attack"
Facts = Mapping[str, Sequence[str]]


def _canonical(text: str) -> str:
    try:
        return str(parse("attack", text))
    except SpecError as error:
        raise ValueError(str(error)) from None


def _canonical_keys(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels with keys that are attacks in canonical form; others stay."""
    keys = {}
    for text in labels:
        with suppress(SpecError):
            keys[text] = str(parse("attack", text))
    return {keys.get(text, text): label for text, label in labels.items()}


@register("attacks")
class Attacks(FigureSpec):
    """Properties of attacks, from their specs alone: no cell is computed.

    One row per attack, in the order given.
    """

    suffixes: ClassVar[tuple[str, ...]] = TABLE_SUFFIXES

    attacks: Annotated[
        list[Annotated[str, AfterValidator(_canonical)]],
        BeforeValidator(as_list),
        Field(description="specs of the attacks, or one of them", min_length=1),
    ]
    labels: Annotated[dict[str, str], AfterValidator(_canonical_keys)] = parameter(
        {}, "spec, name, or other text in the table -> what is printed"
    )

    @property
    def modules(self) -> frozenset[str]:
        parts = [part for text in self.attacks for part in parse("attack", text).components()]
        return super().modules.union(*(part.modules for part in parts))

    @property
    def facts(self) -> list[Facts]:
        """Properties of each attack, see `facts_of`."""
        return [facts_of(parse("attack", text)) for text in self.attacks]

    def label(self, text: str) -> str:
        """Return the label of a text; a spec without its own label has that of its name."""
        return self.labels.get(text, self.labels.get(bare(text), text))

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        texts = {text for row in self.facts for key in row for text in (key, *row[key])}
        known = texts | {bare(text) for text in texts}
        for text in self.labels:
            if text not in known:
                raise ValueError(f"label {text!r} is not in the table; {nearest(text, known)}")
        printed = [self.label(text) for text in self.attacks]
        twice = sorted({text for text in printed if printed.count(text) > 1})
        if twice:
            raise ValueError(f"several attacks are called {', '.join(twice)}; give each a label")
        return self

    def draw(self, material: FigureData, stem: Path) -> None:
        rows = [{key: ", ".join(texts) for key, texts in row.items()} for row in self.facts]
        save_numbers(pd.DataFrame(rows), stem)
        heading = (self.title, self.reproduces)
        write_table(self.lay_out(), stem, [f"{DASH} none."], heading=heading, align="left")

    def lay_out(self) -> pd.DataFrame:
        """Arrange the properties (columns) of the attacks (index) as labelled texts."""
        label, facts = self.label, self.facts
        keys = [key for key in facts[0] if key != ATTACK]
        return pd.DataFrame(
            [
                [", ".join(dict.fromkeys(map(label, row[key]))) or DASH for key in keys]
                for row in facts
            ],
            index=pd.Index(map(label, self.attacks), name=label(ATTACK)),
            columns=list(map(label, keys)),
        )


def facts_of(spec: AttackSpec) -> Facts:
    """Return the properties of an attack: column -> its texts, empty where it does not apply."""
    summary, cost = spec.summary(), spec.cost()
    idle = "" if cost.evaluations else "none, no iterations"
    steps = "no"
    if spec.takes_local_steps:
        steps = "unrolled" if cost.repeats_local_steps else "as one batch"
    facts = {
        ATTACK: [str(spec)],
        "main loss term": summary.losses,
        "other terms": summary.terms,
        "optimiser": summary.optimizers or [idle],
        "labels": [summary.labels],
        "extra knowledge": sorted({*spec.grants, *(known.name for known in spec.knowledge)}),
        "data": sorted(spec.modalities) if spec.modalities < AttackSpec.modalities else ["any"],
        "several epochs": ["yes" if spec.joins_epochs else "no"],
        "local steps": [steps],
        "crafted parameters": [spec.crafting or ""],
        "source": [spec.source],
    }
    return {column: [text for text in texts if text] for column, texts in facts.items()}
