"""Verdicts on the claims of a study as a page of HTML, with links to the figures."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, get_args

import pandas as pd

from gleak.core.markup import table_in_markdown, to_markdown
from gleak.figures.intervals import FEWEST
from gleak.figures.statistics import records
from gleak.studies.claims import Verdict

if TYPE_CHECKING:
    from gleak.studies.study import Study

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FIRST = ["verdict", "needed"]
NUMBERS = ["compared", "paper", "ours", "interval", "found"]
HEADINGS = ["verdict", "claim", "source", "cells", "metric", "measured", *NUMBERS, "n", "figures"]
NO_NUMBER = "none"
"""In place of the number of victims that would do: the estimate is at the end of the range."""
STRONGER = "stronger attacks"
"""In place of the number of victims: no compared attack is above blind."""
LABELS = {"interval": "95% interval", "found": "found only"}


def verdicts_in_markdown(table: pd.DataFrame) -> str:
    """Return verdicts as a table in Markdown: the verdict first, the identifier last.

    Args:
        table: verdicts, from `gleak.figures.judge.judge_study`.
    """
    others = table.columns.drop([*FIRST, "id"])
    return table_in_markdown(table[[*FIRST, *others, "id"]].astype(str).map(to_markdown))


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
    return f"{len(table)} comparisons at the scale {scale} ({counts}).{_explain(table)}"


def _explain(table: pd.DataFrame) -> str:
    """Explain in a sentence why some verdicts are "cannot tell"; empty if none is."""
    waiting = table[table["verdict"] == "cannot tell"]
    if waiting.empty:
        return ""
    numbers = pd.to_numeric(waiting["needed"], errors="coerce").dropna()
    advice = (
        f" about {numbers.median():.0f} victims (median) would do, if means and variances stayed "
        "as they are; each row says how many."
        if len(numbers)
        else " their variance is unknown, or no difference was measured."
    )
    return (
        f" Cannot tell: there are fewer than {FEWEST} victims (a trained model counts as one), or "
        f"the interval is on both sides of what is claimed;{advice}"
    )


def _tabulate(study: Study, scale: str, table: pd.DataFrame) -> str:
    """Return the table as HTML."""
    claims = study.claims(scale)
    links = {claim.id: _links(study, claim.grid) for claim in claims}
    metrics = {c.id: study.grid(c.grid, scale).names.metric(c.metric) for c in claims}
    rows = table.assign(
        claim=table["claim"].map(escape),
        source=table["source"].map(escape),
        verdict=[_mark(row["verdict"], row["needed"]) for row in records(table)],
        cells=table["group"].map(escape),
        metric=table["id"].map(metrics).map(escape),
        measured=table["measured"].map(escape),
        **{name: table[name].map(escape).str.replace("; ", "<br>") for name in NUMBERS},
        figures=table["id"].map(links),
    )
    shown = rows[HEADINGS].rename(columns=LABELS)
    return str(shown.to_html(escape=False, index=False, border=0, justify="left"))


def _mark(verdict: str, needed: str) -> str:
    """Return a verdict as HTML, with the number of victims that would do if it cannot tell."""
    span = f'<span class="{verdict.split()[0]}">{verdict}</span>'
    return f"{span} ({describe_needed(needed)})" if needed else span


def describe_needed(needed: str) -> str:
    """Return what a verdict needs, a number of victims or stronger attacks, in a sentence."""
    if needed == STRONGER:
        return "no attack is above blind; stronger ones would"
    return "no number of victims would" if needed == NO_NUMBER else f"{needed} victims would"


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
