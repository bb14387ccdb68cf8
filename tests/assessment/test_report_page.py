from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset
from gleak.assessment import findings
from gleak.assessment.charts import Charts, sample_uri
from gleak.assessment.findings import Exposure, Finding, Mean, Report, Variation, Varied
from gleak.assessment.report_page import (
    ShownImage,
    ShownRecord,
    format_spec,
    page_of,
    rows_of,
)
from gleak.assessment.strips import Strip
from gleak.assessment.verdict_words import MEANINGS
from gleak.assessment.wording import format_mean, format_percent

VOID = {"meta", "img", "link", "br", "wbr"}
DOT = sample_uri(np.zeros((1, 1, 1)))


def exposure(above: int = 3, attack: str = "best") -> Exposure:
    return Exposure(
        cell="d/m/t/c/clients/n/a",
        attack=attack,
        metric="ssim",
        threshold=0.5,
        better="higher",
        clients=10,
        above=above,
        share=Mean(value=above / 10, low=0.0667, high=0.6525),
        attacked=Mean(value=0.4321, low=0.1234, high=0.7654),
        blind=Mean(value=0.2222, low=0.1111, high=0.3333),
        gain=Mean(value=0.2099, low=0.0123, high=0.4321),
        losses=[],
        samples=Mean(value=0.25, low=0.1, high=0.5),
        verdict="partly exposed" if above else "not found",
    )


def finding(verdict: Any = "partly exposed", kind: str = "samples", **more: Any) -> Finding:
    facts: dict[str, Any] = {"decides": kind == "samples", "sentence": f"About {kind}."}
    return Finding(kind=kind, clients="simulated", verdict=verdict, **{**facts, **more})


def fact(name: str, text: str) -> findings.Fact:
    return findings.Fact(name=name, text=text)


def varied(field: str, exposures: dict[str, Exposure]) -> Variation:
    """The leakage at each value, of which 1 is deployed."""
    points = [
        Varied(value=v, number=int(v), deployed=v == "1", exposures=[each], reasons=[])
        for v, each in exposures.items()
    ]
    return Variation(field=field, points=points)


def named(clients: Any) -> findings.Labels:
    return findings.Labels(
        attack="best",
        clients=clients,
        share=Mean(value=0.6, low=0.15, high=0.95),
        guess=0.1,
        verdict="exposed",
    )


def report(**changes: Any) -> Report:
    own = exposure()
    facts: dict[str, Any] = {
        "name": "ward <A>",
        "deployment": {"model": "lenet", "data": "photographs <A>", "pictures": True},
        "verdict": own.verdict,
        "meaning": MEANINGS[own.verdict],
        "answer": [finding(), finding("not found", "labels")],
        "advice": ["Compare defences."],
        "client": "Each client has 2 samples.",
        "warnings": [],
        "agreement": [],
        "work": findings.Work(
            clients=10, iterations=300, default=4800, cpu_seconds=83.4, minutes=5
        ),
        "fail_above": [],
        "terms": [fact("ssim", "Structural similarity.")],
        "exposures": [own],
        "captured": [],
        "captured_rounds": [],
        "unchecked": [findings.Unchecked(capture="hand", attack="best", clients=4, converged=2)],
        "crafted": [exposure(0, "fishing")],
        "variations": [varied("batch_size", {"1": own, "2": own})],
        "defenses": [
            findings.DefenseCost(
                defense="dp+sigma=0.1",
                deployed=True,
                exposures=[own],
                labels=[named("simulated")],
                kilobytes=37.86,
                perturbation=Mean(value=9.742, low=9.7, high=9.8),
                accuracy=0.7844,
                guarantees={"epsilon_prv": 284.4},
            )
        ],
        "labels": [named("captured")],
        "members": [
            findings.Member(
                attack="best", member="aono", clients="simulated", proposed=9, chosen=7, cost=0.25
            )
        ],
        "audits": [findings.Audit(crafting="honest", alarms=0, raised=[], unavailable=[])],
        "refused": [findings.RefusedCell(cell="a/b", reason="too large")],
        "attacks": [findings.AttackRun(attack="best", crafting="honest", reason="published")],
        "left_out": [findings.NotRun(attack="rog", reason="not run by default")],
        "threat_model": [fact("attacker", "the server")],
        "not_tried": ["Collusion."],
        "conditions": [fact("seed", "0")],
        "run": [fact("devices", "cpu")],
    }
    return Report(**{**facts, **changes})


def test_captured_rounds_are_in_the_order_of_the_deployment() -> None:
    """Whichever reveals most, since leakage is read along the rounds."""
    names = ["mine-1", "mine-2", "mine-10"]
    cells = {name: f"d/m/captured+capture={name}/honest/client of {name}/none/a" for name in names}
    worst_first = [exposure().model_copy(update={"cell": cells[name]}) for name in names[::-1]]
    table = report(deployment={"captures": names}, captured=worst_first).captured_table
    assert [point.value for point in table] == [f"client of {name}" for name in names]


def page(**changes: Any) -> str:
    shown = [ShownImage("Client 7", DOT, DOT)]
    charts = {field: {"ssim": Charts(DOT, DOT)} for field in ("batch_size", "round of mine")}
    records = [ShownRecord("Client 4", [("mean radius", "0.125", "0.126", "0.338")], 2)]
    strips = [Strip(DOT, "Best recovered sample of each client.")]
    return page_of(report(**changes), shown, records, charts, strips)


class Outline(HTMLParser):
    """Tags, open ones checked, and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_the_page_stands_alone() -> None:
    found = outline(page())
    sources = [each.get("src") or "" for each in found.all("img")]
    assert len(sources) == 5
    assert all(source.startswith("data:image/") for source in sources)
    assert not found.all("script") and not found.all("link")
    assert "http" not in page()


def test_the_page_can_be_read_aloud() -> None:
    found = outline(page())
    assert found.all("html") == [{"lang": "en"}]
    assert len(found.all("main")) == len(found.all("h1")) == 1
    assert all(each["alt"] for each in found.all("img"))
    assert all(each["scope"] in ("col", "row") for each in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table"))
    headings = {each["id"] for each in found.all("h2")}
    assert {each["aria-labelledby"] for each in found.all("section")} == headings


def test_numbers_of_the_report_are_on_the_page() -> None:
    text, own = page(), exposure()
    shown = [own.attacked, own.blind, own.gain, report().defenses[0].perturbation]
    assert all(format_mean(each) in text for each in shown)
    assert format_percent(own.share) in text
    of_clients = "3 of 10", "2 of 4", "0 of 10", "60% [15%, 95%]"
    of_defences, of_records = ("37.9", "0.784", "284"), ("The first 1 of 2 columns",)
    row = "<td>0.125</td><td>0.126</td><td>0.338</td>"
    for part in (*of_clients, *of_defences, *of_records, row, "Structural similarity."):
        assert part in text, part
    assert "<td>captured</td><td>60% [15%, 95%]</td><td>10%</td><td>exposed</td>" in text
    assert "<td>60% [15%, 95%], 10%</td>" in text
    assert "<td>aono</td><td>7 of 9 clients</td><td>0.25</td>" in text
    assert "candidates of" not in page(members=[])


def test_the_text_of_a_picture_has_its_numbers() -> None:
    cell = "d/m/captured+capture=mine-0/honest/c/none/a"
    changes = {
        "deployment": {**report().deployment, "captures": ["mine-0"]},
        "captured": [exposure().model_copy(update={"cell": cell})],
        "captured_rounds": [varied("round of mine", {"0": exposure(0), "2": exposure(9)})],
    }
    found = outline(page(**changes))
    texts = [each["alt"] for each in found.all("img")]
    assert (
        "Clients above the threshold ssim ≥ 0.5 against round of mine. By best, 0: 0% [7%, 65%]; "
        "2: 90% [7%, 65%]." in texts
    )
    mean = "0.432 [0.123, 0.765], guess 0.222 [0.111, 0.333]"
    assert (
        "Mean ssim of the best sample of a client, and of the guess without the update, against "
        f"batch_size. By best, 1: {mean}; 2: {mean}." in texts
    )


def with_reasons(*exposures: Exposure, reasons: Sequence[str]) -> str:
    """The page of a varied model, which has no pictures without exposures."""
    model = {"value": "resnet50", "number": None, "deployed": False}
    point = Varied(**model, exposures=exposures, reasons=reasons)
    return page(variations=[Variation(field="batch_size", points=[point])])


def test_a_value_that_was_not_computed_has_a_row_with_the_reason() -> None:
    text = with_reasons(reasons=["attack best on model resnet50: no second derivatives"])
    row = '<th scope="row">resnet50</th><td colspan="8">not computed'
    assert f"{row}: attack best on model resnet50: no second derivatives</td>" in text
    assert "<figure><img" not in text
    assert f"{row}</td>" in with_reasons(reasons=[])


def test_a_value_at_which_other_attacks_were_run_has_a_row_with_the_reason() -> None:
    text = with_reasons(exposure(3, "cpa_edges"), reasons=["attack best: no derivatives"])
    assert "the strongest of the attacks that fit; attack best: no derivatives</td>" in text
    assert "not computed" not in text
    assert "that fit" not in with_reasons(exposure(), reasons=[])


def body(text: str) -> str:
    """The page without its folds, in which specs and tables are."""
    return re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)


def test_specs_are_in_the_folds_alone() -> None:
    text = page(exposures=[exposure(3, "best+budget=300")])
    assert "best+<wbr>budget=300" in text
    shown = re.sub(r"<[^>]+>", " ", body(text))
    assert not re.search(r"\w\+\w+=|\w=\d", shown.partition("</style>")[2])
    assert "dp (sigma 0.1) (in use)" in body(text)


def test_the_answer_has_every_finding_the_effort_and_what_would_do() -> None:
    doubt = findings.Doubt(text="the attack was short", remedy="iterations: 4800")
    weak = finding("inconclusive", doubts=[doubt])
    answer, _, _ = page(answer=[weak, finding("exposed", "labels")]).partition("</section>")
    for part in (
        "About samples.",
        "About labels.",
        "Cannot tell, as the attack was short. What would do: iterations: 4800.",
        "300 iterations for each (by default 4800), 83.4 s of one core, of 5 minutes",
        "Each client has 2 samples.",
    ):
        assert part in answer, part


def test_own_thresholds_stand_beside_the_verdict() -> None:
    limit = exposure(0).model_copy(update={"threshold": 0.9})
    found = report(fail_above=[limit])
    assert (found.headline, found.exposed) == ("Partly exposed", False)
    assert "By --fail-above ssim ≥ 0.9: 0 of 10 clients are above it." in page(fail_above=[limit])


def test_a_capture_that_contradicts_its_description_is_the_headline() -> None:
    disagreeing = findings.Agreement(
        capture="hand", error=1.57, agrees=False, text="1 of 1 updates differ by up to 157%"
    )
    changes: dict[str, Any] = {"agreement": [disagreeing], "verdict": "inconclusive"}
    found, text = report(**changes), page(**changes)
    assert found.headline == "No verdict"
    assert found.title.startswith("No verdict: the captured updates are not those")
    answer, _, _ = text.partition("</section>")
    assert "up to 157%" in answer


def test_guarantees_and_changes_of_defences_are_in_words() -> None:
    assert "epsilon 284: guarantees practically nothing; changes the update by more" in page()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("digits", "digits"),
        ("/home/me/photographs", "photographs"),
        ({"folder": "../photographs", "size": 32}, "photographs"),
    ],
)
def test_the_heading_names_network_and_data(data: Any, named: str) -> None:
    text = page(deployment={**report().deployment, "data": data}, name="a")
    assert f"What the updates of lenet on {named} reveal to the server" in text
    assert f"<title>lenet on {named}: " in text
    assert "<h1>The server can recover samples of some of its clients</h1>" in text


@pytest.mark.parametrize("verdict", list(MEANINGS))
def test_the_page_never_calls_a_deployment_safe(verdict: Any) -> None:
    text = page(verdict=verdict, meaning=MEANINGS[verdict])
    text += report(verdict=verdict, answer=[finding("exposed", "labels")]).title
    assert not re.search(r"\b(safe|secure|private|protected)\b", text, re.IGNORECASE)
    limited = "Not found by these attacks at this budget" in text
    assert limited == (verdict == "not found")


def test_texts_are_escaped_and_a_line_may_end_between_the_fields_of_a_spec() -> None:
    assert "photographs &lt;A&gt;" in page()
    assert "<A>" not in page()
    assert format_spec("dp+sigma=0.1") == "dp+<wbr>sigma=0.1"
    assert format_spec("<a>+b") == "&lt;a&gt;+<wbr>b"


def test_a_mean_without_interval_or_value() -> None:
    assert format_mean(Mean(value=0.5, low=None, high=None)) == "0.5"
    assert format_mean(Mean(value=None, low=None, high=None)) == "–"
    assert format_percent(Mean(value=0.5, low=None, high=None)) == "50%"


def test_one_hot_features_are_one_column_with_the_name_of_the_category() -> None:
    table = Dataset(
        spec="adult",
        modality="tabular",
        train_inputs=np.zeros((1, 4), np.float32),
        train_labels=np.zeros(1, int),
        test_inputs=np.zeros((1, 4), np.float32),
        test_labels=np.zeros(1, int),
        class_names=np.array(["no"], object),
        feature_names=np.array(["age", "sex=Female", "sex=Male", "hours"], object),
        feature_groups=np.array([0, 1, 1, 2]),
    )
    sample = np.array([0.25, 0.4, 0.6, 1.0], np.float32)
    assert rows_of(table, sample, 1 - sample) == [
        ("age", "0.250", "0.750"),
        ("sex", "Male", "Female"),
        ("hours", "1.000", "0.000"),
    ]
