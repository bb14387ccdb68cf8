"""Claims on how near images are, judged again by whether each image is identified.

PSNR, SSIM and successes ask how near a reconstruction is to its image; `identified` whether it can
be told from other images of its class. A claim may hold by one and fail by the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from gleak.core.lazy import pandas as pd
from gleak.figures.evidence import SplitSizes
from gleak.figures.headlines import in_page
from gleak.figures.judge import in_words, judge_claims
from gleak.figures.published import empty_published
from gleak.figures.statistics import Row, records
from gleak.figures.verdict_table import tabulate_verdicts
from gleak.studies.axis_labels import read_metric
from gleak.studies.claims import Bound, Expectation, Hides
from gleak.studies.grid import Grid
from gleak.studies.study import Study

IDENTIFIED = "identified"
NEARNESS = ("psnr", "ssim", "success_content")
"""Metrics of images in whose place images are identified; larger is better for all of them."""
SHARE = "success_content"
"""The one that is a share, too, so that its bounds are bounds of the images identified."""
MARGIN = 0.05
"""Difference of shares that counts as none."""
NEAR = "near"
"""Column: verdict by each metric of the claim, by the label of the metric."""
OPPOSITE = {"holds": "fails", "fails": "holds"}


def judge_by_identification(
    study: Study,
    scale: str,
    tables: Mapping[str, pd.DataFrame],
    sizes: SplitSizes,
    verdicts: pd.DataFrame,
) -> pd.DataFrame:
    """Return verdicts by identification on the claims on nearness whose cells have it.

    One row per claim and group, those first that change into their opposite; a claim on several
    metrics is one claim. Columns as of `gleak.figures.judge.in_words`, and `NEAR`.

    Args:
        study: with the expectations.
        scale: of the grids.
        tables: grid -> its scores.
        sizes: of datasets whose specs do not tell them.
        verdicts: on the same claims by their own metrics, of `gleak.figures.judge.in_words`.
    """
    asked = filter(None, map(by_identification, study.claims(scale)))
    known_margins = (_with_margin_of_gates(one, study.grid(one.grid, scale)) for one in asked)
    own = replace(study, expectations=[claim for claim in known_margins if claim])
    judged = judge_claims(own, scale, tables, empty_published(), sizes)
    judged = in_words(own, scale, judged[judged["verdict"] != "no data"])
    known = {(row["id"], row["group"]): row for row in records(verdicts)}
    together: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in records(judged):
        key = tuple(row[name] for name in ("claim", "group", "compared", "ours", "interval"))
        near = known[row["id"], row["group"]]
        together.setdefault(key, {**row, NEAR: {}})[NEAR][near["metric"]] = near["verdict"]
    table = pd.DataFrame([*together.values()], columns=[*judged.columns, NEAR])
    changed = [not is_opposite(row) for row in records(table)]
    return table.iloc[pd.Series(changed, dtype=bool).argsort(kind="stable")]


def by_identification(claim: Expectation) -> Expectation | None:
    """Return a claim on nearness as one on identification; None for other claims.

    Those on successes keep their numbers, which are shares, too. Of others a difference has to be
    above 0, and what is claimed to be equal, or not to go back, may differ by `MARGIN`; bounds are
    left out.
    """
    metric = read_metric(claim.metric).name
    if metric not in NEARNESS or (isinstance(claim, Bound) and metric != SHARE):
        return None
    strict = getattr(claim, "relation", "<") == "<" and not isinstance(claim, Hides)
    limits: dict[str, Any] = {
        "margin": 0.0 if strict else MARGIN,
        "slack": MARGIN,
        "within": MARGIN,
        "factor": 1.0,
    }
    known = () if metric == SHARE else type(claim).model_fields
    own = {name: value for name, value in limits.items() if name in known}
    return claim.model_copy(update={"metric": IDENTIFIED, "chance": None, **own})


def _with_margin_of_gates(claim: Expectation, grid: Grid) -> Expectation | None:
    """Return a claim that a defence hides with the margin of its grid; None if that has none."""
    if not isinstance(claim, Hides):
        return claim
    margin = grid.gates.margin(IDENTIFIED) if grid.gates else None
    return None if margin is None else claim.model_copy(update={"margin": margin})


def is_opposite(row: Row) -> bool:
    """Return True if a claim holds by identification and fails by nearness, or the reverse.

    Not if metrics of nearness contradict each other.
    """
    verdict, near = row["verdict"], {*row[NEAR].values()}
    return OPPOSITE.get(verdict) in near and verdict not in near


def section(table: pd.DataFrame) -> list[str]:
    """Return the section of a page: how many verdicts change, and all of them; or nothing.

    Args:
        table: of `judge_by_identification`.
    """
    if table.empty:
        return []
    opposite = sum(map(is_opposite, records(table)))
    text = (
        "The claims on PSNR, SSIM and successes on the same scores, by whether each image is told "
        "from others of its class ([`identified`](#metric-identified)). Margins of decibels and of "
        "SSIM do not count here: what is better has to identify more, and what is equal may differ "
        f"by {MARGIN:g}. Verdicts: {len(table)}; changed from *holds* to *fails* or the reverse: "
        f"{opposite}."
    )
    shown = {"by the claim's metric": lambda row: escape(_list(row[NEAR]))}
    return ["## Claims by identification", text, in_page(tabulate_verdicts(table, shown))]


def _list(verdicts: Mapping[str, str]) -> str:
    return "; ".join(f"{metric}: {verdict}" for metric, verdict in verdicts.items())
