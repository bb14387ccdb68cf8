from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset
from gleak.assessment.charts import Charts, sample_uri
from gleak.assessment.findings import (
    MEANINGS,
    AttackRun,
    Audit,
    DefenseCost,
    Exposure,
    Fact,
    Labels,
    Loss,
    Mean,
    NotRun,
    Refused,
    Report,
    Unchecked,
    Variation,
    Varied,
)
from gleak.assessment.report_page import (
    ShownImage,
    ShownRecord,
    format_mean,
    format_percent,
    format_spec,
    page_of,
    rows_of,
)

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
        losses=[Loss(client=7, sample=0, value=0.9111, blind=0.1313, found=True)],
    )


def report(**changes: Any) -> Report:
    own = exposure()
    facts: dict[str, Any] = {
        "name": "ward <A>",
        "deployment": {"model": "lenet", "data": "photographs <A>", "pictures": True},
        "verdict": own.verdict,
        "meaning": MEANINGS[own.verdict],
        "terms": [Fact(name="ssim", text="Structural similarity.")],
        "exposures": [own],
        "captured": [],
        "captured_rounds": [],
        "unchecked": [Unchecked(capture="hand", attack="best", clients=4, converged=2)],
        "crafted": [exposure(0, "fishing")],
        "variations": [
            Variation(
                field="batch_size",
                points=[
                    Varied(value=v, number=int(v), deployed=v == "1", exposures=[own], reasons=[])
                    for v in ("1", "2")
                ],
            )
        ],
        "defenses": [
            DefenseCost(
                defense="dp+sigma=0.1",
                deployed=True,
                exposures=[own],
                kilobytes=37.86,
                perturbation=Mean(value=9.742, low=9.7, high=9.8),
                accuracy=0.7844,
                guarantees={"epsilon_prv": 284.4},
            )
        ],
        "labels": [
            Labels(attack="best", clients="captured", share=Mean(value=0.6, low=0.15, high=0.95))
        ],
        "audits": [Audit(crafting="honest", alarms=0, raised=[], unavailable=[])],
        "refused": [Refused(cell="a/b", reason="too large")],
        "attacks": [AttackRun(attack="best", crafting="honest", reason="published")],
        "left_out": [NotRun(attack="rog", reason="not run by default")],
        "threat_model": [Fact(name="attacker", text="the server")],
        "not_tried": ["Collusion."],
        "conditions": [Fact(name="seed", text="0")],
        "run": [Fact(name="devices", text="cpu")],
    }
    return Report(**{**facts, **changes})


def test_captured_rounds_are_in_the_order_of_the_deployment() -> None:
    """Whichever reveals most, since leakage is read along the rounds."""
    names = ["mine-1", "mine-2", "mine-10"]
    cells = {name: f"d/m/captured+capture={name}/honest/client of {name}/none/a" for name in names}
    worst_first = [exposure().model_copy(update={"cell": cells[name]}) for name in names[::-1]]
    found = report(deployment={"captures": names}, captured=worst_first)
    assert [group.value for group in found.captured_table] == [
        f"client of {name}" for name in names
    ]


def page(**changes: Any) -> str:
    shown = [ShownImage("Client 7", DOT, DOT)]
    charts = {field: {"ssim": Charts(DOT, DOT)} for field in ("batch_size", "round of mine")}
    records = [ShownRecord("Client 4", [("mean radius", "0.125", "0.126", "0.338")], 2)]
    return page_of(report(**changes), shown, records, charts)


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
    assert len(sources) == 4
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
    for number in (
        "3 of 10",
        "2 of 4",
        "0 of 10",
        "37.9",
        "Structural similarity.",
        "0.784",
        "284",
        "60% [15%, 95%]",
        "The first 1 of 2 columns",
        "<td>0.125</td><td>0.126</td><td>0.338</td>",
    ):
        assert number in text, number


def rounds(*exposures: Exposure) -> Variation:
    points = [
        Varied(value=str(number), number=number, deployed=False, exposures=[each], reasons=[])
        for number, each in enumerate(exposures)
    ]
    return Variation(field="round of mine", points=points)


def test_the_text_of_a_picture_has_its_numbers() -> None:
    cell = "d/m/captured+capture=mine-0/honest/c/none/a"
    changes = {
        "deployment": {**report().deployment, "captures": ["mine-0"]},
        "captured": [exposure().model_copy(update={"cell": cell})],
        "captured_rounds": [rounds(exposure(0), exposure(9))],
    }
    found = outline(page(**changes))
    texts = [each["alt"] for each in found.all("img")]
    assert (
        "Clients above the threshold ssim ≥ 0.5 against round of mine. By best, 0: 0% [7%, 65%]; "
        "1: 90% [7%, 65%]." in texts
    )
    mean = "0.432 [0.123, 0.765], guess 0.222 [0.111, 0.333]"
    assert (
        "Mean ssim of the best sample of a client, and of the guess without the update, against "
        f"batch_size. By best, 1: {mean}; 2: {mean}." in texts
    )


def with_reasons(*exposures: Exposure, reasons: Sequence[str]) -> str:
    """The page of a varied model, which has no pictures without exposures."""
    model = Varied(
        value="resnet50",
        number=None,
        deployed=False,
        exposures=[*exposures],
        reasons=[*reasons],
    )
    return page(variations=[Variation(field="batch_size", points=[model])])


def test_a_value_that_was_not_computed_has_a_row_with_the_reason() -> None:
    text = with_reasons(reasons=["attack best on model resnet50: no second derivatives"])
    row = '<th scope="row">resnet50</th><td colspan="7">not computed'
    assert f"{row}: attack best on model resnet50: no second derivatives</td>" in text
    assert "<figure><img" not in text
    assert f"{row}</td>" in with_reasons(reasons=[])


def test_a_value_at_which_other_attacks_were_run_has_a_row_with_the_reason() -> None:
    text = with_reasons(exposure(3, "cpa_edges"), reasons=["attack best: no derivatives"])
    assert "the strongest of the attacks that fit; attack best: no derivatives</td>" in text
    assert "not computed" not in text
    assert "that fit" not in with_reasons(exposure(), reasons=[])


def test_labels_say_whose_they_are() -> None:
    assert '<th scope="row">best</th><td>captured</td><td>60% [15%, 95%]</td>' in page()


def test_the_answer_says_what_each_defence_would_change() -> None:
    hidden = (
        report()
        .defenses[0]
        .model_copy(update={"defense": "topk", "exposures": [exposure(0)], "deployed": False})
    )
    unmeasured = hidden.model_copy(update={"defense": "soteria", "exposures": []})
    answer, _, _ = page(defenses=[report().defenses[0], hidden, unmeasured]).partition("</section>")
    assert "from 3 of 10 clients (dp+sigma=0.1), 0 of 10 clients (topk);" in answer
    assert "compared defences" not in page(defenses=[])


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
    assert f"<h1>What updates of lenet on {named} reveal</h1>" in text
    assert f"<title>lenet on {named}: " in text


def test_texts_are_escaped() -> None:
    assert "photographs &lt;A&gt;" in page()
    assert "<A>" not in page()


@pytest.mark.parametrize("verdict", list(MEANINGS))
def test_the_page_never_calls_a_deployment_safe(verdict: Any) -> None:
    text = page(verdict=verdict, meaning=MEANINGS[verdict])
    assert not re.search(r"\b(safe|secure|private|protected)\b", text, re.IGNORECASE)


def test_nothing_found_is_limited_to_attacks_and_budget() -> None:
    text = page(verdict="not found", meaning=MEANINGS["not found"])
    assert "Not found by these attacks at this budget" in text


def test_a_line_may_end_between_the_fields_of_a_spec() -> None:
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
