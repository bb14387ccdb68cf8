"""Kinds of faults for which a claim gets no verdict, or counts its victims as fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.figures.judge import judge_claims, judge_study
from gleak.figures.needs import describe_needed
from gleak.figures.published import empty_published
from gleak.metrics.score_table import read_scores
from tests.figures.test_judge import OWN, make_study
from tests.score_tables import Scored, WriteScores


def test_repeats_of_a_batch_are_one_victim(tmp_path: Path, scored: Scored, write: WriteScores):
    client = "fedsgd+victims=40+repeats=10"
    axes = {"client": client, "defense": "none", "attack": "cpl", "controls": []}
    study = make_study(tmp_path, [{"at_most": 7.5, **OWN}], **axes)
    values = [value for value in (4.0, 5.0, 6.0, 7.0) for _ in range(10)]
    rows = study.grid("attacks", "quick").scored
    path = write("s.csv", *(scored("iterations", values, **row) for row in rows))
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    assert table[["n", "verdict"]].to_numpy().tolist() == [[4, "cannot tell"]] * 2


Judge = Callable[..., "pd.Series[Any]"]


@pytest.fixture
def judge_values(tmp_path: Path, scored: Scored, write: WriteScores) -> Judge:
    """The verdict on a claim, from the values of CPL's victims at the paper's scale."""

    def judge_one(
        claim: dict[str, Any],
        values: Sequence[float],
        metric: str = "success_content",
        paper: str = "",
        incomparable: str = "",
        **axes: Any,
    ) -> pd.Series:
        axes = {"dataset": "mnist", "defense": "none", "attack": "cpl", "controls": [], **axes}
        figure = {"table": {"kind": "bar", "grid": "attacks", "x": "attack", "y": metric}}
        scale = "quick" if "quick" in axes else "paper"
        axes.setdefault("quick", {})
        study = make_study(tmp_path, [{"metric": metric, **claim}], figure, **axes)
        published = tmp_path / "published.csv"
        published.write_text(
            "figure,metric,statistic,value,note,incomparable\n"
            f"table,{metric},mean,{paper},,{incomparable}\n"
        )
        (row,) = study.grid("attacks", scale).scored
        path = write("s.csv", scored(metric, list(values), **row))
        arguments = study, scale, {"attacks": path}, tmp_path
        return judge_study(*arguments, published if paper else None).iloc[0]

    return judge_one


@pytest.mark.parametrize(
    ("paper", "verdict"), [("0.95", "holds"), ("0.9", "holds"), ("0.5", "differs"), ("", "holds")]
)
def test_a_paper_s_number_outside_of_the_interval_differs(
    judge_values: Judge, paper: str, verdict: str
):
    """By more than 0.05 of a share: of 60 successes in 60 the interval is from 0.94."""
    row = judge_values({"at_least": 0.4}, [1.0] * 60, paper=paper)
    assert (row["verdict"], row["protocol"]) == (verdict, "the paper's")


def test_a_mean_of_few_values_does_not_differ(judge_values: Judge):
    for n, verdict in ((49, "holds"), (50, "differs")):
        values = 20 + np.arange(n) / n
        row = judge_values({"at_least": 10}, values, metric="psnr", paper="30")
        assert row["verdict"] == verdict


CHANGED = {"quick": {"dataset": "digits", "proxy_for": {"digits": "mnist"}}}


def test_under_another_protocol_a_number_does_not_differ_and_is_no_bound(judge_values: Judge):
    claim = {"at_least": 0.4}
    row = judge_values(claim, [1.0] * 60, paper="0.5", **CHANGED)
    assert (row["verdict"], row["protocol"]) == ("cannot tell", "digits for mnist")
    assert "other data, another network" in describe_needed(row["needed"])
    for told in ({"transfers": "digits are digits"}, {"source": "ours"}):
        row = judge_values({**claim, **told}, [1.0] * 60, paper="0.5", **CHANGED)
        assert row["verdict"] == "holds"


@pytest.mark.parametrize(
    ("bound_to", "verdict"), [([], "holds"), (["client"], "holds"), (["dataset"], "cannot tell")]
)
def test_a_claim_is_bound_to_levels_of_the_paper(
    judge_values: Judge, bound_to: list[str], verdict: str
):
    claim = {"at_least": 0.4, "transfers": "digits are digits", "bound_to": bound_to}
    row = judge_values(claim, [1.0] * 60, **CHANGED)
    assert (row["verdict"], row["protocol"]) == (verdict, "digits for mnist")


def test_other_clients_are_told_with_what_they_have_in_common(judge_values: Judge):
    small = {"client": "fedsgd", "proxy_for": {"fedsgd": "fedavg+batch_size=16+local_steps=5"}}
    axes = {"client": "fedavg+batch_size=16+local_steps=5", "quick": {"dataset": "mnist", **small}}
    row = judge_values({"at_least": 0.4}, [1.0] * 60, **axes)
    assert row["protocol"] == "fedsgd for fedavg; client batch_size 1 for 16"


@pytest.mark.parametrize(
    ("model", "protocol"),
    [
        ("lenet+dropout=0.1", "model activation sigmoid for tanh or relu; model dropout 0.1 for 0"),
        ("mlp", "mlp, which this part of the paper does not have"),
    ],
)
def test_a_spec_unlike_all_of_the_papers_is_told_by_its_fields(
    tmp_path: Path, scored: Scored, write: WriteScores, model: str, protocol: str
):
    axes = {"dataset": "mnist", "defense": "none", "attack": "cpl", "controls": []}
    axes |= {"model": ["lenet+activation=tanh", "lenet+activation=relu"], "quick": {"model": model}}
    study = make_study(tmp_path, [{"metric": "success_labels", "at_least": 0.4}], **axes)
    (row,) = study.grid("attacks", "quick").scored
    path = write("s.csv", scored("success_labels", [1.0] * 60, **row))
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    assert table["protocol"].tolist() == [protocol]


def test_why_a_published_number_is_incomparable_is_part_of_the_protocol(judge_values: Judge):
    row = judge_values({"at_least": 0.4}, [1.0] * 60, paper="0.5", incomparable="on a ResNet20")
    assert (row["protocol"], row["paper"]) == ("on a ResNet20", "–")
    assert (row["verdict"], row["needed"]) == ("cannot tell", "the paper's protocol")


@pytest.mark.parametrize(
    ("values", "needed"), [([300.0] * 5 + [40.0] * 3, "longer searches"), ([40.0] * 8, "")]
)
def test_a_cost_that_the_budget_decides_has_no_verdict(
    judge_values: Judge, values: list[float], needed: str
):
    row = judge_values({"at_least": 30}, values, metric="iterations")
    assert (row["verdict"], row["needed"]) == ("cannot tell" if needed else "holds", needed)


@pytest.mark.parametrize(("chance", "verdict"), [(0.97, "cannot tell"), (0.2, "holds")])
def test_what_may_be_chance_has_no_verdict(judge_values: Judge, chance: float, verdict: str):
    row = judge_values({"at_least": 0.4, "chance": chance}, [1.0] * 60)
    assert row["verdict"] == verdict
    assert row["needed"] == ("more than chance" if verdict == "cannot tell" else "")


def test_victims_of_one_job_share_one_measurement_of_time(judge_values: Judge):
    row = judge_values({"at_most": 30}, [2.0] * 8, metric="seconds")
    assert (row["n"], row["verdict"]) == (1, "cannot tell")


@pytest.mark.parametrize(
    ("size", "n", "verdict", "needed"),
    [(80, 8, "holds", ""), (65, 6, "holds", ""), (50, 5, "cannot tell", "more samples")],
)
def test_victims_that_share_images_count_as_those_that_do_not(
    tmp_path: Path,
    scored: Scored,
    write: WriteScores,
    size: int,
    n: int,
    verdict: str,
    needed: str,
) -> None:
    """Eight batches of ten need eighty images; of fifty, five batches are disjoint."""
    axes = {"client": "fedsgd+batch_size=10", "defense": "none", "attack": "cpl", "controls": []}
    study = make_study(
        tmp_path, [{"at_most": 9, **OWN}], **axes, dataset="mnist", quick={"dataset": "mnist"}
    )
    (row,) = study.grid("attacks", "quick").scored
    table = read_scores([write("s.csv", scored("iterations", [float(i) for i in range(8)], **row))])
    sizes = {"mnist": {"train": 2000, "test": size}}
    (verdicts,) = judge_claims(
        study, "quick", {"attacks": table}, empty_published(), sizes
    ).to_dict("records")
    assert (verdicts["n"], verdicts["verdict"], verdicts["needed"]) == (n, verdict, needed)


def test_the_size_of_a_bundled_dataset_is_known(tmp_path: Path, scored: Scored, write: WriteScores):
    """The test split of the digits has 450, in four batches of a hundred."""
    axes = {"client": "fedsgd+batch_size=100", "defense": "none", "attack": "cpl", "controls": []}
    study = make_study(
        tmp_path, [{"at_most": 9, **OWN}], **axes, dataset="digits", quick={"dataset": "digits"}
    )
    (row,) = study.grid("attacks", "quick").scored
    path = write("s.csv", scored("iterations", [2.0] * 8, **row))
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    assert table[["n", "verdict"]].to_numpy().tolist() == [[4, "cannot tell"]]


@pytest.mark.parametrize(
    ("needed", "told"),
    [("280", "280 victims would"), ("123022", "no practical number of victims would")],
)
def test_a_number_of_victims_that_nobody_has_is_not_told(needed: str, told: str):
    assert describe_needed(needed).startswith(told)
