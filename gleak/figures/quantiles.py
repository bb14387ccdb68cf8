"""The numbers in distribution figures: quantiles of a metric, and all of its values."""

from __future__ import annotations

import pandas as pd

from gleak.core.registry import parse
from gleak.experiments.figure_spec import FigureData
from gleak.figures.distribution import Distribution
from gleak.figures.points import place_rows, summarise_controls
from gleak.figures.summary import CELL, cells_of, counted, summarise

QUANTILES = {"q0.05": 0.05, "q0.25": 0.25, "q0.5": 0.5, "q0.75": 0.75, "q0.95": 0.95}
PLACE = ["x", "hue", "facet"]
COLUMNS = [*CELL, "metric", *PLACE, *QUANTILES, "mean", "count", "rows", "reason"]


def summarise_quantiles(figure: Distribution, material: FigureData) -> pd.DataFrame:
    """One row per box: its cell, place, quantiles, mean and counts, in the study's order.

    Returns:
        Columns `COLUMNS` and ``shown``, the metric as the study writes it. Quantiles are those of
        all values of a cell, interpolated linearly; count is how many values there are, rows how
        many samples or victims are scored.
    """
    scores, names = material.scores, material.names
    metric = str(parse("metric", figure.y))
    chosen = pd.DataFrame(figure.chosen(names, cells_of(scores)), columns=CELL)
    means = summarise(scores, metric).rename(columns={"ours": "mean"}).assign(shown=figure.y)
    values = counted(scores, metric, "all").groupby(CELL)["value"]
    quantiles = pd.DataFrame({name: values.quantile(share) for name, share in QUANTILES.items()})
    boxes = chosen.merge(means).merge(quantiles.reset_index(), on=CELL, how="left")
    return place_rows(figure, names, boxes)


def summarise_control_means(figure: Distribution, material: FigureData) -> pd.DataFrame:
    """The controls' means in each panel; columns as of the boxes, without quantiles."""
    controls = summarise_controls(figure, material).assign(mean=lambda table: table["ours"])
    return controls.reindex(columns=[*COLUMNS, "ours"])


def place_values(
    figure: Distribution, material: FigureData, boxes: pd.DataFrame
) -> dict[tuple[str, ...], pd.Series]:
    """The values in each box: x, hue and facet -> values, in the order of victims and samples."""
    values = counted(material.scores, str(parse("metric", figure.y)), "all")[[*CELL, "value"]]
    placed = boxes[[*CELL, *PLACE]].merge(values, on=CELL)
    return {tuple(map(str, key)): rows["value"] for key, rows in placed.groupby(PLACE)}
