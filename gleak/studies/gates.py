"""Gates of a grid: what must be true of its scores before a defence is said to hide anything.

A measure of leakage is a lower bound: it is worth as much as the attack. `gleak.figures.leaks`
checks the gates from scores; a study is read without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from pydantic import BaseModel, ConfigDict, Field

from gleak.core.errors import SpecError
from gleak.core.spec import Spec
from gleak.studies.axis_labels import BLIND, AxisLabels, read_metric

DEFENSE = "defense"


class Gates(BaseModel):
    """Defences of a grid that are compared, and differences that count."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    margins: dict[str, float] = Field(
        description="metric -> difference from blind, in its unit, from which an attack succeeds",
        min_length=1,
    )
    reference: str = Field("none", description="the value without a defence")
    strengths: list[list[str]] = Field(
        description="for each defence its values, from the weakest to the strongest"
    )

    def margin(self, metric: str) -> float | None:
        """Return the margin of a metric; None if nothing is said of it."""
        wanted = read_metric(metric)
        return next((m for text, m in self.margins.items() if read_metric(text) == wanted), None)

    def check(self, names: Iterable[AxisLabels]) -> None:
        """Check that the metrics fit, and that each value exists at some scale.

        Args:
            names: labels of the grid, at every scale; read until all values are known.
        """
        scales = iter(names)
        first = next(scales)
        for metric in self.margins:
            first.check_metric(metric)
        if all(attack.name != BLIND for attack in first.axes["attack"]):
            raise SpecError(f"the grid has no control {BLIND!r}, with which attacks are compared")
        unknown = [self.reference, *chain.from_iterable(self.strengths)]
        for scale in chain([first], scales):
            unknown = [text for text in unknown if scale.resolve(DEFENSE, text) is None]
            if not unknown:
                return
        raise SpecError(f"the grid has no {DEFENSE} {unknown[0]!r} at any scale")

    def families(self, names: AxisLabels) -> list[list[Spec]]:
        """Return the strengths of each defence that a grid has, from weak to strong."""
        return [_known(names, strengths) for strengths in self.strengths]

    def without_defense(self, names: AxisLabels) -> Spec | None:
        """Return the value without a defence; None if a grid has none."""
        return names.resolve(DEFENSE, self.reference)


def _known(names: AxisLabels, texts: Sequence[str]) -> list[Spec]:
    found = (names.resolve(DEFENSE, text) for text in texts)
    return [spec for spec in found if spec is not None]
