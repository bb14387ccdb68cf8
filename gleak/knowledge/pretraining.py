"""One piece of knowledge and the public dataset it is trained on: what a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.core.spec import Spec
from gleak.data.base import DatasetSpec
from gleak.knowledge.base import KnowledgeSpec


@dataclass(frozen=True)
class Pretraining:
    """A training of knowledge.

    Args:
        dataset: the public dataset.
        knowledge: what is trained on it, without a word on where from.
    """

    dataset: DatasetSpec
    knowledge: KnowledgeSpec

    @classmethod
    def parse(cls, dataset: str, knowledge: str) -> Pretraining:
        """Read two spec strings and check that they fit together.

        Raises:
            SpecError: unknown or malformed; a ``public`` beside the dataset that it stands for.
            IncompatibleError: knowledge that cannot be trained on the dataset.
        """
        found = cls(parse("dataset", dataset), parse("knowledge", knowledge))
        if found.knowledge != found.knowledge.trained:
            raise SpecError(
                f"knowledge {knowledge!r} stands beside its public dataset {dataset!r}: write it "
                f"as {str(found.knowledge.trained)!r}"
            )
        found.knowledge.check(found.dataset)
        return found

    @classmethod
    def from_path(cls, texts: Mapping[str, str]) -> Pretraining:
        """Read the levels of a path, which must be written canonically so that it has one cache.

        Raises:
            SpecError: see `parse`; also where defaults are spelled out or fields are out of order.
            IncompatibleError: see `parse`.
        """
        found = cls.parse(texts["dataset"], texts["knowledge"])
        for level, text in found.strings().items():
            if text != texts[level]:
                raise SpecError(f"{level} {texts[level]!r}: write it as {text!r}")
        return found

    def __str__(self) -> str:
        return "/".join(self.strings().values())

    def strings(self) -> dict[str, str]:
        """Canonical string of each level."""
        return {"dataset": str(self.dataset), "knowledge": str(self.knowledge)}

    def components(self) -> list[Spec]:
        """The knowledge and the specs nested in it."""
        return self.knowledge.components()
