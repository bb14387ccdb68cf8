"""What figures of trained knowledge have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict, override

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import FigureSpec
from gleak.knowledge.base import Pretraining


@with_config(ConfigDict(extra="forbid"))
class Trained(TypedDict):
    """A training as a study file has it: a public dataset, and the spec of what is trained."""

    dataset: str
    spec: str


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


def _canonical(written: Trained) -> Trained:
    try:
        found = Pretraining.parse(written["dataset"], written["spec"])
    except (SpecError, IncompatibleError) as error:
        raise ValueError(str(error)) from None
    return {"dataset": str(found.dataset), "spec": str(found.knowledge)}


Trainings = Annotated[
    list[Annotated[Trained, AfterValidator(_canonical)]],
    BeforeValidator(_as_list),
    Field(description="the public dataset and the spec of each", min_length=1),
]


@with_config(ConfigDict(extra="forbid"))
class AtScale(TypedDict):
    """What a scale may say of the figure."""

    knowledge: Trainings


class TrainedFigure(FigureSpec):
    """A figure that is drawn from knowledge, which may be another one at another scale."""

    knowledge: Trainings
    quick: AtScale | None = parameter(None, "what is different at this scale")
    small: AtScale | None = parameter(None, "what is different at this scale")

    def written(self, scale: str) -> list[Trained]:
        """The trainings at a scale."""
        own: AtScale | None = getattr(self, scale, None)
        return self.knowledge if own is None else own["knowledge"]

    @override
    def trainings(self, scale: str) -> Sequence[Pretraining]:
        return [Pretraining.parse(one["dataset"], one["spec"]) for one in self.written(scale)]
