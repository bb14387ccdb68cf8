"""Verdicts on the claims of a study as a page of HTML, with links to the figures."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from gleak.experiments.study import Study

VERDICTS = ("holds", "fails", "no data")
HEADINGS = ["claim", "source", "verdict", "cells", "metric", "measured", "figures"]


def write_page(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return a page with a sentence of counts and one table row per comparison.

    Args:
        study: with the claims and the figures.
        scale: of the grids.
        table: verdicts, from `gleak.figures.judge.judge_study`.
    """
    title = escape(f"{study.name.upper()}: {study.title}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<section>\n<h2>{title}</h2>\n<p>{escape(study.paper)}. {_count(table, scale)}</p>\n"
        f"{_tabulate(study, scale, table)}\n</section>\n</html>\n"
    )


def _count(table: pd.DataFrame, scale: str) -> str:
    number = table["verdict"].value_counts()
    counts = ", ".join(f"{verdict}: {number.get(verdict, 0)}" for verdict in VERDICTS)
    return f"{len(table)} comparisons at the scale {scale} ({counts})."


def _tabulate(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return the table as HTML."""
    claims = study.expectations
    links = {claim.id: _links(study, claim.grid) for claim in claims}
    metrics = {c.id: study.grid(c.grid, scale).names.metric(c.metric) for c in claims}
    rows = table.assign(
        claim=table["claim"].map(escape),
        source=table["source"].map(escape),
        verdict=[f'<span class="{word.split()[0]}">{word}</span>' for word in table["verdict"]],
        cells=table["group"].map(escape),
        metric=table["id"].map(metrics).map(escape),
        measured=table["ours"].map(escape),
        figures=table["id"].map(links),
    )
    return str(rows[HEADINGS].to_html(escape=False, index=False, border=0, justify="left"))


def _links(study: Study, grid: str) -> str:
    """Return links to the figures that show the scores of a grid."""
    shown: Mapping[str, str] = {
        name: spec.reproduces.partition(" (")[0] or spec.title or name
        for name, spec in study.figures.items()
        if grid in spec.grids
    }
    return ", ".join(
        f'<a href="{name}.svg" title="{escape(study.figure(name).title)}">{escape(label)}</a>'
        for name, label in shown.items()
    )
