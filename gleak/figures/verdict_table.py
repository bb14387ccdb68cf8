"""Verdicts as tables in HTML, in which the verdict is first and long texts are wrapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from gleak.artifacts.atomic import atomic
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import DASH
from gleak.figures.statistics import Row, records

ONE = "mean"
"""Name of a comparison that is about one value alone."""
HOLM = "does not stand"
HEADLINES = "headlines.csv"
"""File with the recorded verdicts on the headline claims of a study, beside its records."""


def read_headlines(path: Path) -> pd.DataFrame:
    """Read the recorded verdicts on the headline claims of a study; all columns are texts."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def save_headlines(table: pd.DataFrame, path: Path) -> None:
    """Write the recorded verdicts on the headline claims of a study."""
    with atomic(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def comparisons(row: Row) -> list[Row]:
    """Return what a verdict compares, one after another: names, our values, the paper's."""
    keys = ("compared", "ours", "interval", "paper", "found")
    columns = [str(row[key]).split("; ") for key in keys]
    most = max(map(len, columns))
    padded = [[*column, *[""] * (most - len(column))] for column in columns]
    return [dict(zip(keys, texts, strict=True)) for texts in zip(*padded, strict=True)]


def name_of(comparison: Row) -> str:
    """Return the name of a comparison, "" if the claim is about one value."""
    compared = str(comparison["compared"])
    return "" if compared == ONE else compared.replace(" - ", " − ")


def verdict_in_html(verdict: str, needed: str = "", corrected: str = "") -> str:
    """Return a verdict with what it needs and whether it survives Holm's correction."""
    notes = [needed] if needed else []
    notes += ["not with Holm's correction"] if corrected == HOLM else []
    added = f"<br><small>{escape('; '.join(notes))}</small>" if notes else ""
    return f'<span class="{verdict.split()[0]}">{escape(verdict)}</span>{added}'


def tabulate_verdicts(
    table: pd.DataFrame, more: Mapping[str, Callable[[Row], str]] | None = None
) -> str:
    """Return verdicts as a table: verdict, claim, protocol, ours and the paper's numbers, n.

    Args:
        table: of `gleak.figures.judge.judge_claims` with a column ``metric``; what a verdict needs
            is in words.
        more: heading -> HTML of a row, for columns at the end.
    """
    more = more or {}
    heads = ["verdict", "claim", "protocol", "compared", "ours [95% interval]", "paper", "n", *more]
    head = "".join(f"<th>{heading}</th>" for heading in heads)
    body = "\n".join(_row(row, [make(row) for make in more.values()]) for row in records(table))
    return (
        f'<table class="verdicts">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        "</table>"
    )


def _row(row: Row, more: Sequence[str]) -> str:
    """Return the lines of a verdict, one a comparison."""
    compared = comparisons(row)
    before = [
        verdict_in_html(str(row["verdict"]), str(row["needed"]), str(row["corrected"])),
        _claim(row),
        escape(str(row["protocol"])),
    ]
    lines = [_numbers(each) for each in compared]
    span = f' rowspan="{len(lines)}"' if len(lines) > 1 else ""
    left, right = (
        "".join(f"<td{span}>{text}</td>" for text in texts)
        for texts in (before, [str(row["n"]), *more])
    )
    return "".join(f"<tr>{line}</tr>" for line in [f"{left}{lines[0]}{right}", *lines[1:]])


def _claim(row: Row) -> str:
    """Return the claim; below it in small letters what it is about and its identifier."""
    differences = any(map(name_of, comparisons(row)))
    means = f"measured: {row['measured']}" if differences else ""
    facts = [row["group"], row["metric"], row["source"], means]
    told = "; ".join(escape(str(fact)) for fact in facts if fact)
    name = f"<code>{escape(str(row['id']))}</code>"
    return f"{escape(str(row['claim']))}<br><small>{told}; {name}</small>"


def _numbers(comparison: Row) -> str:
    """Return the cells of a comparison: name, our value and the paper's."""
    ours, interval, found = (str(comparison[key]) for key in ("ours", "interval", "found"))
    only = f"<br><small>found only: {escape(found)}</small>" if found not in (ours, "") else ""
    value = f'<span class="number">{escape(ours)}</span> '
    value += f'<span class="number">{escape(interval)}</span>{only}'
    paper = escape(str(comparison["paper"]) or DASH)
    return f"<td>{escape(name_of(comparison))}</td><td>{value.strip()}</td><td>{paper}</td>"


def tabulate_recorded(recorded: pd.DataFrame, run: pd.DataFrame, scale: str) -> str:
    """Return recorded headlines as a table, with what a run saw beside them.

    Args:
        recorded: of `read_headlines`.
        run: verdicts of the run.
        scale: of the run.
    """

    def seen(row: Row) -> str:
        same = run[run["id"] == row["id"]]
        exact = same[same["group"] == row["group"]]
        rows = records(exact if len(exact) else same)
        return "<br>".join(_seen(each, len(exact) == 0) for each in rows) or DASH

    return tabulate_verdicts(recorded, {f"this run, {escape(scale)}": seen})


def _seen(row: Row, named: bool) -> str:
    """Return the verdict and values of a run."""
    group = f"{row['group']}: " if named and row["group"] else ""
    values = "; ".join(f"{each['ours']} {each['interval']}".strip() for each in comparisons(row))
    return f"{escape(group)}{escape(str(row['verdict']))}, {escape(values)}".removesuffix(", ")
