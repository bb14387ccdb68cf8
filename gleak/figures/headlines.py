"""Headline claims of the recorded studies: in a picture, in words, and on a page of all papers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from gleak.artifacts.atomic import atomic
from gleak.core.markup import table_in_markdown, to_markdown
from gleak.core.numbers import DASH
from gleak.core.settings import Scale
from gleak.figures.canvas.forest import Comparison
from gleak.figures.claim_protocol import THE_PAPERS
from gleak.figures.judge import SURVIVES, VERDICTS
from gleak.figures.statistics import Row, records
from gleak.figures.verdict_table import (
    HEADLINES,
    comparisons,
    name_of,
    read_headlines,
    tabulate_verdicts,
)
from gleak.studies.study import Study

CORRECTED = "with Holm's correction"
NO_DATA = "no data"
PAGE = "headlines.md"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def choose_headlines(study: Study, by_scale: Mapping[Scale, pd.DataFrame]) -> pd.DataFrame:
    """Return the verdicts on the headline claims of a study, each at its largest scale with data.

    Only claims of the paper count. While none of them is marked as a headline, those with a number
    of the paper are taken; if there are none of these either, all with data.

    Args:
        study: its claims.
        by_scale: verdicts by `gleak.figures.judge.in_words`, from the smallest scale on.
    """
    facts = {"study": study.name, "citation": study.paper}
    every = pd.concat([table.assign(**facts, scale=scale) for scale, table in by_scale.items()])
    of_paper = [claim for claim in study.expectations if claim.of_paper]
    every = every[every["id"].isin([claim.id for claim in of_paper])]
    marked = {claim.id for claim in of_paper if claim.headline}
    with_data = every[every["verdict"] != NO_DATA]
    if marked:
        chosen = every[every["id"].isin(marked)]
    elif with_data["paper"].map(_has_number).any():
        chosen = with_data[with_data["paper"].map(_has_number)]
    else:
        chosen = with_data
    scale_of = {**dict(zip(chosen["id"], chosen["scale"], strict=True))}
    judged = chosen[chosen["verdict"] != NO_DATA]
    scale_of |= dict(zip(judged["id"], judged["scale"], strict=True))
    chosen = chosen[chosen["id"].map(scale_of) == chosen["scale"]]
    order = [claim.id for claim in study.expectations]
    return chosen.sort_values("id", key=lambda ids: ids.map(order.index), kind="stable")


def _has_number(paper: str) -> bool:
    return any(text not in ("", DASH) for text in paper.split("; "))


def compare(study: Study, headlines: pd.DataFrame) -> list[Comparison]:
    """Return the rows of the picture of headlines; those without data are left out.

    The paper's number is left out where blind stands for one of our values, as none does for its.
    """
    claims = {claim.id: claim for claim in study.expectations}
    rows = []
    for row in records(headlines[headlines["verdict"] != NO_DATA]):
        ranges = claims[row["id"]].comparisons
        for number, (one, claimed) in enumerate(zip(comparisons(row), ranges, strict=True)):
            name, unit = name_of(one), row["metric"]
            low, high = one["interval"].strip("[]").split(", ")
            rows.append(
                Comparison(
                    claim=row["claim"],
                    label=": ".join(text for text in (row["group"], name) if text),
                    unit=unit if claimed.minus is None else f"difference: {unit}",
                    verdict=row["verdict"],
                    first=number == 0,
                    ours=_number(one["ours"]),
                    interval=(_number(low), _number(high)),
                    paper=_number(one["paper"]) if one["found"] == one["ours"] else math.nan,
                    claimed=(claimed.low, claimed.high),
                )
            )
    return rows


def _number(text: str) -> float:
    """Return a number that `format_number` has written."""
    return float(text.replace(DASH, "nan").replace("∞", "inf"))


def list_headlines(headlines: pd.DataFrame) -> str:
    """Return verdict and protocol of each headline claim as a list in Markdown."""
    items = []
    for (claim, source), rows in headlines.groupby(["claim", "source"], sort=False):
        one = rows["metric"].nunique() == 1
        told = [_tell(row, named=not one) for row in records(rows)]
        about = f"{source}; {rows['metric'].iloc[0]}" if one else str(source)
        head = f"- **{to_markdown(str(claim))}** ({to_markdown(about)})"
        if len(told) == 1:
            items.append(f"{head}: {told[0]}")
        else:
            items += [f"{head}:", *(f"  - {text}" for text in told)]
    return "\n".join(items)


def _tell(row: Row, named: bool) -> str:
    """Return a verdict with its numbers and its protocol in one line of Markdown.

    Args:
        row: the verdict.
        named: begin with the metric.
    """
    about = ", ".join(text for text in (row["metric"] if named else "", row["group"]) if text)
    verdict = f"**{row['verdict']}**"
    if about:
        verdict = f"{to_markdown(about)}: {verdict}"
    if row["verdict"] == NO_DATA:
        return f"{verdict}."
    if row["needed"]:
        verdict += f" ({to_markdown(row['needed'])})"
    numbers = "; ".join(
        f"{name_of(one)} {one['ours']} {one['interval']}".strip()
        + ("" if one["paper"] in ("", DASH) else f", paper {one['paper']}")
        for one in comparisons(row)
    )
    return f"{verdict}. {to_markdown(numbers)}; n = {row['n']}; {_protocol(row['protocol'])}."


def _protocol(protocol: str) -> str:
    return (
        "the paper's protocol" if protocol == THE_PAPERS else to_markdown(f"protocol: {protocol}")
    )


def count(verdicts: Iterable[str]) -> str:
    """Return how often each verdict was given, as a sentence."""
    counts = Counter(verdicts)
    return ", ".join(f"{verdict}: {counts[verdict]}" for verdict in VERDICTS) + "."


def write_overview(folder: Path) -> Path:
    """Write the page of the headline claims of all recorded studies, and return its path.

    Args:
        folder: of the records; each study has its headlines in ``<study>/headlines.csv``.
    """
    paths = sorted(folder.glob(f"*/{HEADLINES}"))
    tables = [table for table in map(read_headlines, paths) if len(table)]
    page = folder / PAGE
    with atomic(page) as temporary:
        temporary.write_text("\n\n".join(_overview(tables)) + "\n", encoding="utf-8")
    return page


def _overview(tables: Sequence[pd.DataFrame]) -> Iterator[str]:
    number = NUMBERS[len(tables)] if len(tables) < len(NUMBERS) else str(len(tables))
    yield f"# What holds of {number} paper{'' if len(tables) == 1 else 's'}"
    yield (
        "The headline claims of each paper, judged on recorded runs on [parts of the data]"
        "(index.md) ([how](../guide/verdicts.md)). *Ours* is the rate, median or difference that a "
        "claim is about, with its 95% interval; *protocol* says what was changed of the paper's, "
        "as we read it, but for the data. "
        "This page and the records are written by `gleak results`."
    )
    counts = [
        {
            "paper": f"[{table['study'].iloc[0].upper()}](#{table['study'].iloc[0]})",
            "claims": table["id"].nunique(),
            **Counter(table["verdict"]),
            CORRECTED: (table["corrected"] == SURVIVES[True]).sum(),
        }
        for table in tables
    ]
    shown = pd.DataFrame(counts, columns=["paper", "claims", *VERDICTS, CORRECTED])
    numbers = shown.drop(columns="paper").fillna(0).astype(int)
    shown[numbers.columns] = numbers
    yield table_in_markdown(pd.concat([shown, pd.DataFrame([{"paper": "all", **numbers.sum()}])]))
    yield (
        "A claim has a verdict for each dataset, batch size or metric on which it is judged. The "
        "last column counts the verdicts that stand with Holm's correction over all claims of "
        "their study."
    )
    for table in tables:
        study, citation = table[["study", "citation"]].iloc[-1]
        of_scales = ", ".join(f"[{scale}]({study}/{scale}.md)" for scale in table["scale"].unique())
        yield f"## {study.upper()}"
        yield f"{to_markdown(citation)}. Records: {of_scales}."
        yield in_page(tabulate_verdicts(table))


def in_page(table: str) -> str:
    """Return a table in HTML as a part of a page in Markdown."""
    return f'<div class="words">\n{table}\n</div>'
