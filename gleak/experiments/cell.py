"""A cell: one point of an experiment, which is one path and the specs it is made of.

``<dataset>/<model>/<training>/<crafting>/<client>/<defense>/<attack>``; a cell cut short after any
level names that level's artifact. `Paths` is the one place where file names are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gleak.core.errors import IncompatibleError, SpecError, nearest
from gleak.core.registry import kinds_of, parse
from gleak.core.spec import Spec, format_spec
from gleak.knowledge.base import KnowledgeSpec, Pretraining

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec

LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
SCORED_BY: Mapping[str, str] = MappingProxyType(
    {"training": "score_model", "crafting": "score_parameters", "attack": "score"}
)
"""A level that a scored cell may end with, which its metrics have as theirs -> the rule that scores
it, and the function, in the module of `gleak.metrics` of the same name."""
LONGEST_CELL = 200
TRUTH = "truth"
KNOWLEDGE = "knowledge.h5"


@dataclass(frozen=True)
class Cell:
    """Specs of the levels that are set, by level, in the order of `LEVELS`."""

    specs: Mapping[str, Any]

    @classmethod
    def parse(cls, texts: Mapping[str, str], *, where: str = "") -> Cell:
        """Read spec strings and check that they fit together.

        Args:
            texts: a spec string for each level up to the last one wanted; other keys are ignored.
            where: place the strings stand in, put before an error.

        Raises:
            SpecError: unknown, malformed, a level left out, or too long for a cluster's logs.
            IncompatibleError: specs that do not fit together.
        """
        given = [level for level in LEVELS if level in texts]
        try:
            if gaps := [level for level in LEVELS[: len(given)] if level not in given]:
                raise SpecError(f"level {gaps[0]!r} is left out before {given[-1]!r}")
            cell = cls({level: parse(level, texts[level]) for level in given})
            cell.check()
        except (SpecError, IncompatibleError) as error:
            raise type(error)(f"{where}: {error}" if where else str(error)) from None
        return cell

    @classmethod
    def from_path(cls, texts: Mapping[str, str]) -> Cell:
        """Read the levels of a path, which must be written canonically so that it has one cache.

        Raises:
            SpecError: also where defaults are spelled out or fields are out of order; of levels in
                a wrong order the error gives the right one.
        """
        try:
            cell = cls.parse(texts)
        except SpecError as error:
            raise SpecError(f"{error}{_order(texts)}") from None
        for level, spec in cell.specs.items():
            if str(spec) != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {str(spec)!r}")
        return cell

    def __getattr__(self, level: str) -> Any:
        if level not in LEVELS:
            raise AttributeError(f"a cell has no {level!r}; {nearest(level, LEVELS)}")
        if level not in self.specs:
            raise AttributeError(f"this cell has no {level}; it is {self}")
        return self.specs[level]

    def __hash__(self) -> int:
        return hash(tuple(self.specs.items()))

    def __str__(self) -> str:
        return "/".join(map(format_spec, self.specs.values()))

    def strings(self) -> dict[str, str]:
        """Canonical string of each level."""
        return {level: str(spec) for level, spec in self.specs.items()}

    @property
    def end(self) -> str:
        """The last level that is set."""
        return list(self.specs)[-1]

    def upto(self, level: str) -> Cell:
        """The cell cut short after ``level``."""
        kept = LEVELS[: LEVELS.index(level) + 1]
        return Cell({name: self.specs[name] for name in kept})

    def check(self) -> None:
        """Refuse specs that do not fit together, as far as can be told before any work.

        Raises:
            SpecError: the names together are longer than a cluster can carry.
            IncompatibleError: names the two specs and what to change.
        """
        if len(str(self)) > LONGEST_CELL:
            raise SpecError(
                f"{self} is {len(str(self))} characters long; a cluster loses jobs whose names "
                f"exceed {LONGEST_CELL}: leave defaults out or shorten values"
            )
        dataset, model = self.specs.get("dataset"), self.specs.get("model")
        crafting, defense = self.specs.get("crafting"), self.specs.get("defense")
        training, client = self.specs.get("training"), self.specs.get("client")
        attack = self.specs.get("attack")
        if dataset and model:
            _check_samples(model, dataset)
        if dataset and training:
            training.check(dataset)
        if dataset and client:
            client.check(dataset)
        if client:
            self._check_required(client)
        if client and defense:
            defense.check(client)
        if crafting:
            crafting.check(dataset, model)
        if attack:
            attack.check(dataset, model, client)
            attack.check_crafting(crafting)
            attack.check_knowledge(dataset, client)

    def _check_required(self, client: ClientSpec) -> None:
        for kind, text in client.required_specs.items():
            found, required = self.specs.get(kind), parse(kind, text)
            if found is not None and found != required:
                raise IncompatibleError(f"client {client} requires {kind} {required}, not {found}")

    @property
    def pretrainings(self) -> list[Pretraining]:
        """What is trained on public data for the cell's attack; nothing without one."""
        return self._trained(self.attack.knowledge) if "attack" in self.specs else []

    @property
    def judges(self) -> list[Pretraining]:
        """What is trained on public data to score the cell's attack; nothing without one."""
        return self._trained(self.attack.judges) if "attack" in self.specs else []

    def _trained(self, specs: Iterable[KnowledgeSpec]) -> list[Pretraining]:
        return [Pretraining(spec.public_dataset(self.dataset), spec.trained) for spec in specs]

    def components(self, *levels: str) -> list[Spec]:
        """The specs of these levels and those nested in them."""
        return [part for level in levels for part in self.specs[level].components()]


def _order(texts: Mapping[str, str]) -> str:
    """What to say of a path some of whose specs are of another level; nothing of any other."""
    names = {level: texts[level].partition("+")[0] for level in LEVELS if level in texts}
    kinds = {level: kinds_of(name) for level, name in names.items()}
    if not any(found and level not in found for level, found in kinds.items()):
        return ""
    return f"; the levels of a path are {'/'.join(f'<{level}>' for level in LEVELS)}"


def _check_samples(model: Any, dataset: Any) -> None:
    """A model is told modality and shape alone; its refusal names the dataset too."""
    try:
        model.check(dataset.modality, dataset.shape)
    except IncompatibleError as error:
        raise IncompatibleError(
            f"dataset {dataset}: {error}; choose another dataset or model"
        ) from None


@dataclass(frozen=True)
class Paths:
    """Names of every file of a run, below one results folder.

    A cell's folders are canonical specs, of which none is ``..``, holds a separator or begins with
    one: no text leads out of the results folder. A link that stands in that folder is followed;
    no spec makes one, so whoever put it there could write where it leads.
    """

    results: Path

    def folder(self, cell: Cell | Mapping[str, str]) -> Path:
        """Folder of a cell, cut short or whole; an empty text is a level it does not have."""
        texts = cell.strings() if isinstance(cell, Cell) else cell
        return self.results.joinpath("artifacts", *(texts[lv] for lv in LEVELS if texts.get(lv)))

    def knowledge(self, pretraining: Pretraining) -> Path:
        """What comes of a training on public data."""
        return self.results.joinpath("knowledge", *pretraining.strings().values(), KNOWLEDGE)

    def scores(self, cell: Cell) -> Path:
        """Scores of a cell, whatever of `SCORED_BY` it ends with."""
        return self.folder(cell) / "scores.csv"

    def study(self, study: str, scale: str) -> Path:
        """Folder of a study's tables and figures at one scale."""
        return self.results / "studies" / study / scale
