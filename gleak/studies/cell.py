"""A cell: one point of an experiment, given by one spec for each level of its path.

``<dataset>/<model>/<training>/<crafting>/<client>/<defense>/<attack>``; a cell truncated after
a level identifies that level's artifact. `Paths` defines all file names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gleak.clients.base import ClientSpec, check_used
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import kinds_at, kinds_of, parse, parse_at
from gleak.core.spec import Spec
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.knowledge.base import KnowledgeSpec, Pretraining
from gleak.models.base import ModelSpec
from gleak.training.base import TrainingSpec

LEVELS = ("dataset", "model", "training", "crafting", "client", "defense", "attack")
SCORED_BY: Mapping[str, str] = MappingProxyType(
    {
        "training": "score_model",
        "crafting": "score_parameters",
        "attack": "score",
        "membership": "score_members",
        "audit": "score_audit",
    }
)
"""Kind of the last spec of a scored cell, as its metrics declare it -> the rule that scores it, and
the function that does."""
LONGEST_LEVEL = 255
"""Bytes of a folder's name, of which file systems take no more."""
LONGEST_JOB = 220
"""Characters of all levels together, after which SLURM's plugin for Snakemake names a folder."""
TRUTH = "truth"
KNOWLEDGE = "knowledge.h5"


@dataclass(frozen=True)
class Cell:
    """Specs of the levels that are set, in the order of `LEVELS`; others raise `AttributeError`.

    Of the control `TRUTH`, which is no `AttackSpec`, only the name is read.
    """

    specs: Mapping[str, Spec]

    @property
    def dataset(self) -> DatasetSpec:
        return self._spec("dataset")

    @property
    def model(self) -> ModelSpec:
        return self._spec("model")

    @property
    def training(self) -> TrainingSpec:
        return self._spec("training")

    @property
    def crafting(self) -> CraftingSpec:
        return self._spec("crafting")

    @property
    def client(self) -> ClientSpec:
        return self._spec("client")

    @property
    def defense(self) -> DefenseSpec:
        return self._spec("defense")

    @property
    def attack(self) -> Any:
        """The last spec, of any kind that may stand there (`gleak.attacks.attacker`)."""
        return self._spec("attack")

    @property
    def captured(self) -> CapturedUpdates:
        """The clients, if they are those of a capture."""
        return self._spec("client")

    def _spec(self, level: str) -> Any:
        if level not in self.specs:
            raise AttributeError(f"this cell has no {level}; it is {self}")
        return self.specs[level]

    @classmethod
    def parse(cls, texts: Mapping[str, str], *, where: str = "") -> Cell:
        """Parse spec strings and check that they are compatible.

        Args:
            texts: a spec string for each level up to the last one wanted; other keys are ignored.
            where: location of the strings; prefix of error messages.

        Raises:
            SpecError: a spec is unknown or malformed, a level is missing, or too long for a folder.
            IncompatibleError: specs are incompatible.
        """
        given = [level for level in LEVELS if level in texts]
        try:
            if gaps := [level for level in LEVELS[: len(given)] if level not in given]:
                raise SpecError(f"level {gaps[0]!r} is left out before {given[-1]!r}")
            cell = cls({level: parse_at(level, texts[level]) for level in given})
            cell.check()
        except (SpecError, IncompatibleError) as error:
            raise type(error)(f"{where}: {error}" if where else str(error)) from None
        return cell

    @classmethod
    def from_path(cls, texts: Mapping[str, str]) -> Cell:
        """Parse the levels of a path, which must be canonical so that each cell has one folder.

        Raises:
            SpecError: as for `parse`; also if defaults are spelled out or fields are out of order.
                If levels are in the wrong order, the error gives the right one.
        """
        try:
            cell = cls.parse(texts)
        except SpecError as error:
            kinds = {lv: kinds_of(texts[lv].partition("+")[0]) for lv in LEVELS if lv in texts}
            if any(known and not {*kinds_at(level)} & {*known} for level, known in kinds.items()):
                order = "/".join(f"<{level}>" for level in LEVELS)
                raise SpecError(f"{error}; the levels of a path are {order}") from None
            raise
        for level, spec in cell.specs.items():
            if str(spec) != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {str(spec)!r}")
        return cell

    def __hash__(self) -> int:
        return hash(tuple(self.specs.items()))

    def __str__(self) -> str:
        return "/".join(map(str, self.specs.values()))

    def strings(self) -> dict[str, str]:
        """Return the canonical string of each level."""
        return {level: str(spec) for level, spec in self.specs.items()}

    @property
    def end(self) -> str:
        """Last level that is set."""
        return list(self.specs)[-1]

    @property
    def end_kind(self) -> str:
        """Kind of the last spec, which determines the stages that make and score its result."""
        return self.specs[self.end].kind

    def upto(self, level: str) -> Cell:
        """Return the cell truncated after ``level``."""
        return Cell({name: self.specs[name] for name in LEVELS[: LEVELS.index(level) + 1]})

    def repeated(self, number: int) -> Cell:
        """Return the cell with another repetition of its training, and other victims."""
        training = self.training.model_copy(update={"repetition": number})
        changed: dict[str, Spec] = {"training": training}
        if "client" in self.specs:
            first = self.client.first + number * self.client.batches
            changed["client"] = self.client.model_copy(update={"first": first})
        return Cell({**self.specs, **changed})

    def repetitions(self, networks: int) -> list[Cell]:
        """Return the cell itself for one network, or a cell for each of several repetitions."""
        return [self] if networks == 1 else [self.repeated(number) for number in range(networks)]

    def check_submission(self) -> None:
        """Check that jobs of this cell can be submitted to a cluster.

        Raises:
            SpecError: SLURM would lose them.
        """
        if len(str(self)) > LONGEST_JOB:
            raise SpecError(
                f"{self} is {len(str(self))} characters long; SLURM loses jobs whose names exceed "
                f"{LONGEST_JOB}: leave defaults out, shorten values, or run it without SLURM"
            )

    def check(self) -> None:
        """Check the specs together, as far as is known before any job.

        Raises:
            SpecError: a level is too long for the name of a folder.
            IncompatibleError: two specs are incompatible; names both and what to change.
        """
        for level, text in self.strings().items():
            if len(text.encode()) > LONGEST_LEVEL:
                raise SpecError(
                    f"{level} {text} has {len(text.encode())} bytes, more than the {LONGEST_LEVEL} "
                    "of a folder's name: leave defaults out or shorten values"
                )
        levels = self.specs.keys()
        if "model" in levels:
            _check_samples(self.model, self.dataset)
        if "training" in levels:
            self.training.check(self.dataset)
            self.training.check_model(self.model)
        if "client" in levels:
            self.client.check(self.dataset)
            self.client.check_model(self.model)
            for level, text in self.client.required_specs.items():
                spec, required = self.specs.get(level), parse(level, text)
                if spec is not None and spec != required:
                    raise IncompatibleError(
                        f"client {self.client} requires {level} {required}, not {spec}"
                    )
        if "defense" in levels:
            self.defense.check(self.client)
            if self.defense.needs_samples and isinstance(self.client, CapturedUpdates):
                raise IncompatibleError(
                    f"defense {self.defense} changes the training, or is that of several clients, "
                    f"and is not known of {self.client}; attack captured updates without it"
                )
            check_used(self.client, self.defense.protocol_of(self.client))
        if "crafting" in levels:
            self.crafting.check(self.dataset, self.model)
            if "defense" in levels:
                self.crafting.check_clients(self.model, self.defense)
        if "attack" in levels:
            self.attack.check(self.dataset, self.model, self.client)
            self.attack.check_defense(self.client, self.defense)
            self.attack.check_crafting(self.crafting)
            self.attack.check_knowledge(self.dataset, self.client)

    @property
    def pretrainings(self) -> list[Pretraining]:
        """Trainings on public data that the cell's attack uses; empty without an attack."""
        return self._trained(self.attack.knowledge) if "attack" in self.specs else []

    @property
    def evaluators(self) -> list[Pretraining]:
        """Trainings on public data that score the cell's attack; empty without an attack."""
        return self._trained(self.attack.evaluators) if "attack" in self.specs else []

    def _trained(self, specs: Iterable[KnowledgeSpec]) -> list[Pretraining]:
        return [Pretraining(spec.public_dataset(self.dataset), spec.trained) for spec in specs]

    def components(self, *levels: str) -> list[Spec]:
        """Return the specs of these levels and the specs nested in them.

        An attack repeats the steps of the clients: those nested in the client's spec, its optimiser
        and schedule, belong to it.
        """
        parts = [part for level in levels for part in self.specs[level].components()]
        return [*parts, *(self.client.components()[1:] if "attack" in levels else [])]


def levels_of(cell: Cell) -> dict[str, str]:
    """Return the spec of each level as in rows of scores; empty for levels that are not set."""
    return dict.fromkeys(LEVELS, "") | cell.strings()


def levels_of_truth(cell: Cell) -> dict[str, str]:
    """Return `levels_of` for the control ``truth`` of a cell truncated after the defence."""
    return levels_of(cell) | {"attack": TRUTH}


@cache
def _check_samples(model: ModelSpec, dataset: DatasetSpec) -> None:
    try:
        model.check(dataset.modality, dataset.shape)
    except IncompatibleError as error:
        raise IncompatibleError(
            f"dataset {dataset}: {error}; choose another dataset or model"
        ) from None


@dataclass(frozen=True)
class Paths:
    """Names of all files of a run, below one results folder.

    A cell's folders are canonical specs. None is ``..`` or contains a separator, so no spec leads
    out of the results folder.
    """

    results: Path

    def folder(self, cell: Cell | Mapping[str, str]) -> Path:
        """Return the folder of a cell; an empty text marks a level that it does not have."""
        texts = cell.strings() if isinstance(cell, Cell) else cell
        return self.results.joinpath("artifacts", *(texts[lv] for lv in LEVELS if texts.get(lv)))

    def knowledge(self, pretraining: Pretraining) -> Path:
        """Return the file with the result of a training on public data."""
        return self.results.joinpath("knowledge", *pretraining.strings().values(), KNOWLEDGE)
