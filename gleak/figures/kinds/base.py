"""Base classes of the kinds of figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict, override

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import Spec, parameter
from gleak.knowledge.base import Pretraining
from gleak.studies.axes import Axis
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.figure_spec import FigureSpec, GridFigure, Over, without_controls


class Plot(GridFigure):
    """Base class of the kinds that show metrics along an axis.

    If hue is of the same level as x (``x: defense.std``, ``hue: defense.name``), a cell whose
    spec lacks the field of x (``none``) is drawn in every colour.
    """

    x: str = Field(description="axis: a level, or a field of its specs such as defense.std")
    hue: str | None = parameter(None, "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    @abstractmethod
    def measured(self) -> Mapping[str, Over]:
        """Metrics on y, each with the reconstructions that it averages."""

    @abstractmethod
    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        """Return the position of a spec on x: a number, or its tick label."""

    @property
    def x_axis(self) -> Axis:
        """Axis of x."""
        return Axis.read(self.x)

    @property
    def hue_axis(self) -> Axis | None:
        """Axis of the colours."""
        return None if self.hue is None else Axis.read(self.hue)

    @property
    def facet_axis(self) -> Axis | None:
        """Axis of the panels."""
        return None if self.facets is None else Axis.read(self.facets)

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return list(self.measured)

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.x, self.hue, self.facets) if axis is not None]

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))


class MeanPlot(Plot):
    """Base class of the plots that show means with their error bands."""

    error: Literal["ci", "sd"] = parameter(
        "ci", "95% confidence interval of the mean over victims, or one standard deviation"
    )

    @property
    @override
    def reading(self) -> str:
        band = "95% confidence intervals" if self.error == "ci" else "standard deviations"
        return (
            f"Values are means; bands and error bars are {band} over victims, absent for fewer "
            "than three. Open circles: values of the paper. Grey lines: controls (blind uses no "
            "update)."
        )


class SampleFigure(GridFigure):
    """Base class of the kinds that show single samples of some victims."""

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    victims: int = parameter(4, "victims shown of each cell, the first ones", ge=1)
    samples: int = parameter(1, "samples shown of each victim", ge=1)
    pick: Literal["first", "best", "worst", "both"] = parameter(
        "first", "which samples; both: so many of the best, and then of the worst"
    )
    metric: str = parameter("mse", "number under each result, by which the best and worst are told")

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return LEVELS

    @property
    def course(self) -> int | None:
        """Number of snapshots shown besides the start; None if only the result is shown."""
        return None

    @override
    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        if read_metric(self.metric).per != "sample":
            raise SpecError(f"metric {self.metric!r} is not of single samples; choose mse or ssim")
        for cell in self.chosen(names, cells):
            if (modality := cell.dataset.modality) != "image":
                raise SpecError(
                    f"dataset {str(cell.dataset)!r} has {modality} data, which have no images to "
                    "show; choose one of images under where, or another kind of figure"
                )

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))


@with_config(ConfigDict(extra="forbid"))
class Trained(TypedDict):
    """A training in a study file: a public dataset, and the spec of the trained knowledge."""

    dataset: str
    spec: str


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


def _canonical(written: Trained) -> Trained:
    try:
        training = Pretraining.parse(written["dataset"], written["spec"])
    except (SpecError, IncompatibleError) as error:
        raise ValueError(str(error)) from None
    return {"dataset": str(training.dataset), "spec": str(training.knowledge)}


Trainings = Annotated[
    list[Annotated[Trained, AfterValidator(_canonical)]],
    BeforeValidator(_as_list),
    Field(description="the public dataset and the spec of each", min_length=1),
]


@with_config(ConfigDict(extra="forbid"))
class AtScale(TypedDict):
    """Fields of a figure that a scale may override."""

    knowledge: Trainings


class TrainedFigure(FigureSpec):
    """Base class of the kinds drawn from trained knowledge, which may differ between scales."""

    knowledge: Trainings
    quick: AtScale | None = parameter(None, "what is different at this scale")
    small: AtScale | None = parameter(None, "what is different at this scale")

    def written(self, scale: str) -> list[Trained]:
        """Return the trainings at a scale, as in the study file."""
        own: AtScale | None = getattr(self, scale, None)
        return self.knowledge if own is None else own["knowledge"]

    @override
    def trainings(self, scale: str) -> Sequence[Pretraining]:
        return [Pretraining.parse(one["dataset"], one["spec"]) for one in self.written(scale)]
