"""Pydantic models of a study file; `gleak.cli.json_schemas` makes their JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gleak.core.errors import SpecError, nearest
from gleak.core.settings import NO_GPU_SCALE, Scale
from gleak.core.spec import FILE_NAME
from gleak.studies.gates import Gates

Name = Annotated[str, Field(pattern=FILE_NAME)]
"""Name of a grid, figure or search; used in file names."""
Fields = dict[str, Any]
Item = str | Fields
WrittenAxis = Item | list[Item]


class Written(BaseModel):
    """Base class of the parts of a study file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_gpu(cls, written: Any) -> Any:
        if isinstance(written, Mapping) and "gpu" in written:
            raise ValueError(NO_GPU_SCALE)
        return written


class NoBetterThanBlind(Written):
    """Cells whose attack is declared to be no better than the blind control."""

    cells: dict[str, str] = Field(
        description="level -> spec or name of a variant; cells that match all", min_length=1
    )
    reason: str = Field(description="why; a sentence for captions", min_length=1)


class Axes(Written):
    """Axes of a grid, or changes to them at a scale.

    An item of an axis is a spec string, the name of a variant, or a mapping of fields: with
    ``name`` a spec of that name, with ``base`` a modified variant or spec, with ``search`` the
    result of a search, and otherwise the study's base spec, modified. A list as the value of
    a field gives one item for each of its elements.

    At a scale, a mapping of fields without ``name``, ``base`` or ``search`` is a patch: it changes
    these fields of every spec on the axis that has them, or, under the name of a spec or variant,
    only of that one. Any other value replaces the axis.
    """

    dataset: WrittenAxis | None = None
    model: WrittenAxis | None = None
    training: WrittenAxis | None = None
    crafting: WrittenAxis | None = None
    client: WrittenAxis | None = None
    defense: WrittenAxis | None = None
    attack: WrittenAxis | None = None
    zip: list[list[str]] | None = Field(
        None, description="groups of levels whose axes advance together"
    )
    exclude: list[dict[str, str]] | None = Field(
        None, description="cells that match all of these specs are excluded"
    )
    proxy_for: dict[str, str | None] | None = Field(
        None, description="a spec of an axis -> the published spec that it substitutes; null: none"
    )
    networks: int | None = Field(
        None,
        description="independent repetitions of the training of each cell; each counts as a "
        "victim or, in grids that end with the attack, has victims of its own",
        ge=1,
    )
    no_better_than_blind: list[NoBetterThanBlind] | None = Field(
        None, description="cells whose attack does not beat the blind control, with the reason"
    )


class GridFile(Axes):
    """A grid: its axes, and changes to them at the scales."""

    base: Name | None = Field(None, description="grid of the study that this one modifies")
    end: Literal["training", "crafting", "attack"] | None = Field(
        None, description="last level, whose artifact is scored; default: attack"
    )
    controls: list[Literal["blind", "truth"]] = Field(
        ["blind", "truth"], description="blind uses no update; truth scores the true samples"
    )
    labels: dict[str, str] = Field(
        {}, description="a spec, name, metric or axis -> its label in figures"
    )
    metrics: list[str] | None = Field(
        None,
        description="what its cells are scored by, besides the metrics of figures and claims; "
        "default: every metric, with its defaults",
    )
    gates: Gates | None = Field(
        None, description="what must be true before a defence is said to hide; see the guide"
    )
    quick: Axes | None = None
    small: Axes | None = None
    headline: Axes | None = Field(
        None, description="changes at this scale, which has only the grids that say so"
    )

    def is_at(self, scale: Scale) -> bool:
        """Return True if a scale has the grid: `headline` has those alone that declare it."""
        return scale != "headline" or self.headline is not None


class Changes(Axes):
    """Changes to a study at a scale."""

    metrics: dict[str, str] = Field(
        {},
        description="a metric of figures and claims -> the one measured at the scale; it is not "
        "compared with published numbers of another",
    )


class Scales(Written):
    """Changes to all grids, figures and claims of a study at a scale.

    A patch applies to the grids that have matching specs. A replaced axis applies to all grids that
    do not replace it themselves.
    """

    quick: Changes = Changes()
    small: Changes = Changes()
    headline: Changes = Changes()


class StudyFile(Written):
    """A study file."""

    title: str
    paper: str = Field(description="short citation; of a study without a paper, whose it is")
    base: dict[str, str] = Field({}, description="level -> default spec of all grids, or a variant")
    variants: dict[str, dict[str, Item]] = Field(
        {}, description="level -> name, also its label -> spec or modified variant"
    )
    labels: dict[str, str] = Field({}, description="labels in figures, for all grids")
    metrics: dict[str, str] = Field(
        {}, description="a metric of figures and claims -> its spec, as the paper measures it"
    )
    scales: Scales = Scales()
    searches: dict[Name, Fields] = Field(
        {}, description="hyperparameter searches, see `gleak.studies.search.declaration`"
    )
    grids: dict[Name, Fields]
    figures: dict[Name, Fields] = Field(description="name -> kind and the fields of that kind")
    expect: list[Fields] = Field([], description="claims of the paper to check")

    def changes(self, scale: Scale) -> Changes:
        """Return the changes at a scale; none at scale ``paper``."""
        changes: Changes = getattr(self.scales, scale, Changes())
        return changes


def inherited(
    name: str, written: Mapping[str, Mapping[str, Any]], merged: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return an entry of all written ones, merged with its chain of bases.

    Mappings under some keys are merged; otherwise the entry's own value replaces that of the base.
    """
    chain = [name]
    while base := written[chain[-1]].get("base"):
        if base not in written:
            raise SpecError(f"{chain[-1]!r}: unknown base {base!r}; {nearest(base, written)}")
        if base in chain:
            raise SpecError(f"circular base: {' -> '.join([*chain, base])}; name another base")
        chain.append(base)
    entry: dict[str, Any] = {}
    for ancestor in reversed(chain):
        for key, value in written[ancestor].items():
            joined = key in merged and isinstance(value, Mapping)
            entry[key] = {**entry.get(key, {}), **value} if joined else value
    entry.pop("base", None)
    return entry
