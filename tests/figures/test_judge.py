from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from gleak.core.errors import GleakError, SpecError
from gleak.figures.judge import (
    COLUMNS,
    VERDICTS,
    compare_with_blind,
    holm,
    judge_study,
    warn_of_weak_attacks,
    write_page,
)
from gleak.figures.needs import describe_needed
from gleak.metrics.score_table import refused_scores
from gleak.studies.study import Study, load_study
from tests.score_tables import Scored, WriteScores

GRID = {
    "dataset": ["mnist", "cifar10", "cifar100"],
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": ["none", "gaussian"],
    "attack": ["cpl", "dlg"],
    "quick": {
        "dataset": ["digits", "photos"],
        "proxy_for": {"digits": "mnist", "photos": "cifar10"},
    },
}
OWN = {"source": "ours"}
CLAIM = {"grid": "attacks", "metric": "iterations", "claim": "CPL is faster", "source": "Table 2"}
VICTIMS = np.arange(8) / 8 - 0.4375
"""Around zero, with a standard deviation of 0.3; added to the mean of every cell."""


@pytest.fixture
def judge(tmp_path: Path, scored: Scored, write: WriteScores) -> Callable[..., Any]:
    """The verdicts on some expectations: CPL is faster than DLG on digits and not on photos."""
    speeds = {("digits", "cpl"): 10.0, ("digits", "dlg"): 20.0, ("photos", "cpl"): 30.0}
    speeds |= {("photos", "dlg"): 25.0, ("digits", "blind"): 1.0, ("photos", "blind"): 1.0}
    tables = []
    for (dataset, attack), speed in speeds.items():
        for noise, defense in enumerate(("none", "gaussian")):
            levels = {"dataset": dataset, "attack": attack, "defense": defense}
            tables.append(scored("iterations", list(speed + noise + VICTIMS), **levels))
    path = write("scores/attacks.csv", *tables)

    def judge(*expectations: dict[str, Any]) -> pd.DataFrame:
        study = make_study(tmp_path, list(expectations))
        return judge_study(study, "quick", {"attacks": path}, tmp_path)

    return judge


def make_study(
    folder: Path,
    expectations: list[dict[str, Any]],
    figures: dict[str, Any] | None = None,
    **axes: Any,
) -> Study:
    claims = [{"id": f"e{i}", **CLAIM, **fields} for i, fields in enumerate(expectations)]
    content = {"title": "t", "paper": "p", "grids": {"attacks": {**GRID, **axes}}}
    content |= {"figures": figures or {}, "expect": claims}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_study(path)


def test_every_group_has_its_verdict(judge: Callable[..., pd.DataFrame]):
    table = judge({"along": "attack", "order": ["cpl", "dlg"], "where": {"defense": "none"}})
    assert table["group"].tolist() == ["digits (for mnist)", "photos (for cifar10)"]
    assert table["verdict"].tolist() == ["holds", "fails"]
    assert table["measured"].tolist() == ["cpl 10, dlg 20", "cpl 30, dlg 25"]
    assert table["compared"].tolist() == ["dlg - cpl"] * 2
    assert table["ours"].tolist() == table["found"].tolist() == ["10", "-5"]
    assert table["interval"].tolist() == ["[10, 10]", "[-5, -5]"]
    assert table["n"].tolist() == [8, 8]


def test_a_group_tells_the_only_one_of_the_papers_values(
    tmp_path: Path, scored: Scored, write: WriteScores
):
    quick = {"dataset": "digits", "proxy_for": {"digits": "mnist"}}
    compared = {"along": "attack", "order": ["cpl", "dlg"]}
    where = {"dataset": "mnist", "defense": "none"}
    study = make_study(tmp_path, [compared, {**compared, "where": where}], quick=quick)
    tables = [
        scored("iterations", list(speed + VICTIMS), dataset="digits", attack=attack, defense=noise)
        for attack, speed in (("cpl", 10.0), ("dlg", 20.0))
        for noise in ("none", "gaussian")
    ]
    path = write("scores/attacks.csv", *tables)
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    assert table["group"].tolist() == [
        "digits (for mnist), none",
        "digits (for mnist), gaussian",
        "",
    ]


def test_where_names_what_a_stand_in_stands_for(judge: Callable[..., pd.DataFrame]):
    table = judge({"where": {"dataset": "mnist", "attack": "cpl"}, "at_most": 10.5, **OWN})
    assert table[["group", "measured", "verdict"]].to_numpy().tolist() == [
        ["none", "10", "holds"],
        ["gaussian", "11", "fails"],
    ]


def test_controls_are_judged_only_by_name(judge: Callable[..., pd.DataFrame]):
    everything = judge({"at_least": 5, **OWN})
    assert set(everything["verdict"]) == {"holds"}
    assert len(everything) == 8
    blind = judge({"at_least": 5, "where": {"attack": "blind"}, **OWN})
    assert blind["verdict"].tolist() == ["fails"] * 4


@pytest.mark.parametrize(
    ("blind", "claim", "verdict"),
    [
        (12.0, {}, "holds"),
        (18.0, {}, "holds"),
        (20.0, {}, "cannot tell"),
        (30.0, {}, "cannot tell"),
        (30.0, {"order": ["dlg", "blind"]}, "holds"),
        (30.0, {"order": None, "along": None, "at_most": 25, **OWN}, "holds"),
    ],
)
def test_reconstructions_no_better_than_blind_are_not_compared(
    blind: float,
    claim: dict[str, Any],
    verdict: str,
    tmp_path: Path,
    scored: Scored,
    write: WriteScores,
) -> None:
    quality = {"cpl": 20.0, "dlg": 15.0, "blind": blind}
    tables = [scored("psnr", list(q + VICTIMS), attack=name) for name, q in quality.items()]
    path = write("scores/attacks.csv", *tables)
    fields = {"metric": "psnr", "along": "attack", "order": ["dlg", "cpl"], **claim}
    stated = {key: value for key, value in fields.items() if value is not None}
    study = make_study(tmp_path, [stated], quick={"dataset": "digits"}, defense="none")
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    assert set(table["verdict"]) == {verdict}
    assert set(table["needed"]) == {"stronger attacks" if verdict == "cannot tell" else ""}


def test_what_beats_an_attack_below_blind_has_to_beat_blind(
    tmp_path: Path, scored: Scored, write: WriteScores
):
    """InvertGrad's 15 dB is 5 above DLG's 10, and 1 above the 14 of blind."""
    quality = {"invertgrad": 15.0, "dlg": 10.0, "blind": 14.0}
    tables = [scored("psnr", list(q + VICTIMS), attack=name) for name, q in quality.items()]
    path = write("scores/attacks.csv", *tables)
    claim = {"metric": "psnr", "along": "attack", "order": ["dlg", "invertgrad"], "margin": 2}
    axes = {"defense": "none", "attack": ["invertgrad", "dlg"], "quick": {"dataset": "digits"}}
    study = make_study(tmp_path, [claim], **axes)
    row = judge_study(study, "quick", {"attacks": path}, tmp_path).iloc[0]
    assert (row["ours"], row["verdict"]) == ("1", "fails")
    assert row["measured"] == "dlg 10, invertgrad 15"


STRENGTHS = ["gaussian+std=1e-3", "gaussian", "gaussian+std=0.1"]
GATES = {"margins": {"psnr": 1}, "strengths": [STRENGTHS]}
HIDDEN = {"metric": "psnr", "hides": STRENGTHS[2], "attack": "cpl"}


@pytest.fixture
def judge_leaks(tmp_path: Path, scored: Scored, write: WriteScores) -> Callable[..., pd.Series]:
    """The verdict on a claim, from the mean PSNR under each defence; blind has 12 dB."""

    def judge(claim: dict[str, Any], leaks: list[float], n: int = 8) -> pd.Series:
        defenses = ["none", *STRENGTHS]
        axes = {"defense": defenses, "attack": "cpl", "quick": {"dataset": "digits"}}
        study = make_study(tmp_path, [claim], **axes, gates=GATES)
        tables = [
            scored("psnr", [[level + v] for v in VICTIMS[:n]], defense=defense, attack=attack)
            for defense, leak in zip(defenses, leaks, strict=True)
            for attack, level in (("cpl", leak), ("blind", 12.0))
        ]
        path = write("scores/attacks.csv", *tables)
        return judge_study(study, "quick", {"attacks": path}, tmp_path).iloc[0]

    return judge


@pytest.mark.parametrize(
    ("leaks", "verdict", "needed"),
    [
        ([40, 30, 20, 12.1], "holds", ""),
        ([40, 30, 20, 4], "holds", ""),
        ([40, 30, 20, 15], "fails", ""),
        ([40, 12, 12, 12], "cannot tell", "a weaker strength that leaks"),
        ([20, 30, 20, 12], "cannot tell", "under-attacked"),
    ],
)
def test_a_defence_hides_if_its_attack_succeeds_at_a_weaker_strength(
    judge_leaks: Callable[..., pd.Series], leaks: list[float], verdict: str, needed: str
) -> None:
    row = judge_leaks(HIDDEN, leaks)
    assert (row["verdict"], row["needed"]) == (verdict, needed)
    assert row["compared"] == "cpl - blind"


def test_a_cell_that_is_under_attacked_is_not_compared(judge_leaks: Callable[..., pd.Series]):
    claim = {"metric": "psnr", "along": "defense", "order": [STRENGTHS[2], "none"]}
    assert judge_leaks(claim, [40, 30, 20, 12])["verdict"] == "holds"
    row = judge_leaks(claim, [20, 30, 20, 12])
    assert (row["verdict"], row["needed"]) == ("cannot tell", "under-attacked")
    assert describe_needed(row["needed"]).startswith("under-attacked: the same victims leak more")


def test_few_victims_are_missing_first(judge_leaks: Callable[..., pd.Series]):
    row = judge_leaks(HIDDEN, [40, 30, 20, 12], n=4)
    assert row["verdict"] == "cannot tell"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, "expect 'e0': the grid has no gates with a margin of 'psnr'; add them"),
        ({"gates": {**GATES, "margins": {"ssim": 0.1}}}, "no gates with a margin of 'psnr'"),
        ({"gates": {**GATES, "margins": {"nonsense": 1}}}, "gates: .*nonsense"),
        ({"gates": {**GATES, "strengths": [["laplace"]]}}, "the grid has no defense 'laplace'"),
        ({"gates": {**GATES, "reference": "topk"}}, "the grid has no defense 'topk' at any scale"),
        ({"gates": GATES, "controls": []}, "the grid has no control 'blind'"),
    ],
)
def test_gates_that_do_not_fit_are_refused_before_anything_runs(
    tmp_path: Path, fields: dict[str, Any], fault: str
):
    with pytest.raises(SpecError, match=fault):
        make_study(tmp_path, [HIDDEN], **{"defense": ["none", *STRENGTHS], **fields})


def test_a_claim_that_a_defence_hides_has_no_margin_of_its_own(tmp_path: Path):
    with pytest.raises(SpecError, match="that of the grid's gates counts; leave it out"):
        make_study(tmp_path, [{**HIDDEN, "margin": 2}], defense=["none", *STRENGTHS], gates=GATES)


def test_a_trend_along_defences(judge: Callable[..., pd.DataFrame]):
    table = judge({"along": "defense", "trend": "rises", "order": ["none", "gaussian"]})
    assert table["verdict"].tolist() == ["holds"] * 4
    assert table["measured"][0] == "none 10, gaussian 11"


def test_attacks_are_compared_across_the_parameters_that_advance_with_them(
    tmp_path: Path, scored: Scored, write: WriteScores
):
    axes = {"crafting": ["honest", "honest", "fishing"], "attack": ["cpl", "dlg", "fishing"]}
    claim = {"along": "attack", "order": ["fishing", "cpl", "dlg", "blind"]}
    study = make_study(tmp_path, [claim], **axes, defense="none", zip=[["crafting", "attack"]])
    speeds = {"fishing": 1.0, "cpl": 2.0, "dlg": 3.0, "blind": 4.0, "truth": 5.0}
    rows = study.grid("attacks", "quick").scored
    path = write(
        "s.csv", *(scored("iterations", [speeds[row["attack"]]] * 6, **row) for row in rows)
    )
    table = judge_study(study, "quick", {"attacks": path}, tmp_path)
    ours = "fishing 1, cpl 2, dlg 3, blind 4"
    assert table[["group", "measured", "verdict"]].to_numpy().tolist() == [
        ["digits (for mnist)", ours, "holds"],
        ["photos (for cifar10)", ours, "holds"],
    ]


def test_cells_that_would_count_as_one_are_refused_before_they_run(tmp_path: Path):
    axes = {"crafting": ["honest", "fishing", "fishing+target=1"], "zip": [["crafting", "attack"]]}
    claim = {"along": "attack", "order": ["fishing", "cpl"]}
    fault = "expect 'e0', scale 'quick': attack 'fishing' is in 2 cells .*crafting.* grid of its"
    with pytest.raises(SpecError, match=fault):
        make_study(tmp_path, [claim], attack=["cpl", "fishing", "fishing"], **axes)


def test_a_failed_gate_stops_after_writing(judge: Callable[..., pd.DataFrame], tmp_path: Path):
    claim = {"along": "attack", "order": ["cpl", "dlg"]}
    with pytest.raises(GleakError, match="gates not passed: e1"):
        judge({"at_least": 5, **OWN}, {**claim, "level": "gate"}, {**claim})
    table = pd.read_csv(tmp_path / "expectations.csv", keep_default_na=False)
    assert set(table["id"]) == {"e0", "e1", "e2"}
    text = (tmp_path / "expectations.md").read_text(encoding="utf-8")
    assert "| e1 " in text and "fails" in text


def test_a_gate_that_cannot_tell_or_has_no_data_is_not_passed(
    judge: Callable[..., pd.DataFrame], tmp_path: Path
):
    claim = {"where": {"dataset": "mnist", "attack": "cpl", "defense": "none"}, "at_most": 10.1}
    claim |= OWN
    nothing = {"where": {"dataset": "cifar100"}, "at_most": 1}
    with pytest.raises(GleakError, match="gates not passed: e0, e1"):
        judge({**claim, "level": "gate"}, {**nothing, "level": "gate"})
    (row, _) = pd.read_csv(tmp_path / "expectations.csv").to_dict("records")
    assert (row["verdict"], float(row["ours"])) == ("cannot tell", 10)
    assert int(row["needed"]) > len(VICTIMS)


PAPER = """figure,attack,metric,statistic,value,note
table,cpl,iterations,mean,11.5,
table,dlg,iterations,mean,18.4,
"""


def test_the_papers_effect_is_that_of_a_figure_of_the_grid(
    tmp_path: Path, scored: Scored, write: WriteScores
):
    study = make_study(
        tmp_path,
        [{"along": "attack", "order": ["cpl", "dlg"]}, {"where": {"attack": "cpl"}, "at_most": 20}],
        {"table": {"kind": "bar", "grid": "attacks", "x": "attack", "y": "iterations"}},
        dataset="mnist",
        defense="none",
        quick={"dataset": "digits", "proxy_for": {"digits": "mnist"}},
    )
    (tmp_path / "published.csv").write_text(PAPER)
    rows = study.grid("attacks", "quick").scored
    path = write("s.csv", *(scored("iterations", [3.0, 4.0], **row) for row in rows))
    arguments = study, "quick", {"attacks": path}, tmp_path
    assert judge_study(*arguments, tmp_path / "published.csv")["paper"].tolist() == ["6.9", "11.5"]
    assert judge_study(*arguments)["paper"].tolist() == ["–", "–"]


def test_holms_correction_stops_at_the_first_error_that_is_too_large():
    """Five claims: 0.05 / 5, / 4, / 3, and so on; a claim without a verdict counts too."""
    errors = pd.Series([0.001, 0.013, 0.0124, math.nan, 0.02])
    assert holm(errors).tolist() == ["stands", "stands", "stands", "", "stands"]
    errors = pd.Series([0.001, 0.04, 0.013, math.nan, 0.016])
    assert holm(errors).tolist() == ["stands", *["does not stand"] * 2, "", "does not stand"]


def test_a_study_without_claims_writes_empty_tables(judge: Callable[..., pd.DataFrame]):
    assert judge().empty


def test_of_a_refused_cell_there_are_no_data(tmp_path: Path, scored: Scored, write: WriteScores):
    study = make_study(tmp_path, [{"along": "attack", "order": ["cpl", "dlg"]}], defense="none")
    rows = [row for row in study.grid("attacks", "quick").scored if row["dataset"] == "digits"]
    scores = [scored("iterations", [3.0], **row) for row in rows if row["attack"] != "dlg"]
    scores += [refused_scores(row, "why not") for row in rows if row["attack"] == "dlg"]
    table = judge_study(study, "quick", {"attacks": write("all.csv", *scores)}, tmp_path)
    assert table[["measured", "verdict"]].to_numpy().tolist() == [["cpl 3, dlg n/a", "no data"]]


STUDIES = [
    path
    for path in sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
    if load_study(path).expectations
]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_verdict_of_a_study_is_on_its_page_with_links_to_its_figures(path: Path) -> None:
    study = load_study(path)
    verdicts = ["holds", "fails", "cannot tell", "no data", "differs"]
    rows = [
        {
            **dict.fromkeys(COLUMNS, ""),
            **claim.model_dump(include={"id", "level", "claim", "source"}),
            "group": f"group <{number}>",
            "interval": "[1, 2]; [3, 4]",
            "verdict": verdicts[number % 5],
            "needed": str(10 * number) if number % 5 == 2 else "",
        }
        for number, claim in enumerate(study.expectations)
    ]
    table = pd.DataFrame(rows)
    page = write_page(study, "quick", table)
    counts = table["verdict"].value_counts()
    listed = ", ".join(f"{verdict}: {counts.get(verdict, 0)}" for verdict in VERDICTS)
    assert f"{len(table)} comparisons at the scale quick ({listed})." in page
    assert f"about {median(range(20, 10 * len(table), 50)):.0f} victims (median)" in page
    rows = page.partition("<tbody>")[2].split("</tbody>")[0].strip().splitlines()
    assert len(rows) == len(table)
    for number, (row, claim) in enumerate(zip(rows, study.expectations, strict=True)):
        assert f"<small>group &lt;{number}&gt;; " in row
        assert row.startswith(
            f'<tr><td rowspan="2"><span class="{verdicts[number % 5].split()[0]}">'
        )
        assert (f"{10 * number} victims would<" in row) is (number % 5 == 2)
        assert re.search(r">\[1, 2\]</span></td>.*<tr>.*>\[3, 4\]</span></td>", row)
        links = re.findall(r'<a href="([^"]+?)\.(?:svg|html)"', row)
        assert links == [name for name, f in study.figures.items() if claim.grid in f.grids]


HIDES = "the noise hides the gradient"


@pytest.fixture
def scores(scored: Scored) -> pd.DataFrame:
    """CPL is better than blind without noise only, DLG never."""
    plain = {
        "blind": [[0.2], [0.2]],
        "cpl": [[0.1], [0.2]],
        "dlg": [[0.1], [0.3]],
        "truth": [[0.0]],
    }
    noisy = {"blind": [[0.2], [0.2]], "cpl": [[0.5], [0.5]], "dlg": [[0.9], [0.9]]}
    return pd.concat(
        scored("mse", errors[attack], attack=attack, defense=defense)
        for attack in plain
        for defense, errors in (("none", plain), ("gaussian", noisy))
        if attack in errors
    )


def study_with(folder: Path, *declared: dict[str, Any]) -> Study:
    return make_study(folder, [], dataset="digits", quick={}, no_better_than_blind=list(declared))


def test_attacks_are_compared_with_the_blind_of_their_setting(
    scores: pd.DataFrame, tmp_path: Path
) -> None:
    grid = study_with(tmp_path).grid("attacks", "quick")
    table = compare_with_blind(scores, grid.names)
    assert table["ours"].tolist() == pytest.approx([0.15, 0.5, 0.2, 0.9])
    assert table["blind"].tolist() == pytest.approx([0.2] * 4)


@pytest.mark.parametrize(
    ("declared", "warned"),
    [
        ([], ["cpl is no better", "dlg is no better", "dlg is no better"]),
        (
            [{"cells": {"defense": "gaussian"}, "reason": HIDES}],
            ["dlg is no better than blind, which uses no update (mean mse 0.2, blind 0.2)"],
        ),
        (
            [
                {"cells": {"defense": "gaussian"}, "reason": HIDES},
                {"cells": {"attack": "dlg", "defense": "none"}, "reason": "it diverges"},
            ],
            [],
        ),
        (
            [
                {"cells": {"attack": "cpl"}, "reason": HIDES},
                {"cells": {"attack": "dlg"}, "reason": "it diverges"},
            ],
            ["cpl is declared in no_better_than_blind, but is better (mean mse 0.15, blind 0.2)"],
        ),
    ],
)
def test_only_what_is_not_declared_is_named(
    scores: pd.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    declared: list[dict[str, Any]],
    warned: list[str],
) -> None:
    warn_of_weak_attacks(study_with(tmp_path, *declared), "quick", {"attacks": scores})
    assert len(caplog.messages) == len(warned)
    for message, expected in zip(caplog.messages, warned, strict=True):
        assert message.startswith("grid attacks: ") and expected in message
