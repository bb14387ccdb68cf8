from __future__ import annotations

from base64 import b64decode
from typing import Any

import numpy as np
import pytest

from gleak.assessment.findings import Exposure, Loss
from gleak.assessment.strips import LEAST, Row, draw_strip, strips_of
from tests.assessment.test_report_page import exposure, report


def of(values: list[float], better: Any = "higher") -> Exposure:
    losses = [
        Loss(client=number, sample=0, value=value, blind=0.25, found=True)
        for number, value in enumerate(values)
    ]
    return exposure().model_copy(update={"losses": losses, "better": better})


@pytest.mark.parametrize(
    ("better", "scale", "drawn"),
    [("higher", "linear", [0.5, 0.75, 0]), ("lower", "log", [0.5, 0.75, LEAST])],
)
def test_every_client_is_a_point_beside_its_guess(
    better: str, scale: str, drawn: list[float]
) -> None:
    rows = [Row("as deployed", of([0.5, 0.75, 0], better)), Row("topk", of([0.3], better))]
    (axes,) = draw_strip(rows).axes
    first, guesses, second, _, threshold = axes.get_lines()
    assert first.get_xdata() == pytest.approx(drawn)
    assert guesses.get_xdata() == pytest.approx([0.25] * 3)
    assert len(second.get_xdata()) == 1
    assert np.ptp(threshold.get_xdata()) == 0
    assert axes.get_xscale() == scale
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "as deployed\n3 of 10",
        "topk\n3 of 10",
    ]


def test_each_metric_has_a_picture_with_every_defence_once() -> None:
    psnr = of([20]).model_copy(update={"metric": "psnr"})
    (shown,) = report().defenses
    others = [
        shown.model_copy(
            update={"defense": name, "deployed": name == "qsgd", "exposures": [of([0.1])]}
        )
        for name in ("none", "qsgd", "topk+keep=0.1")
    ]
    deployment = {**report().deployment, "defense": "qsgd"}
    found = report(
        exposures=[of([0.9, 0.4]), psnr], crafted=[], defenses=others, deployment=deployment
    )
    ssim, second = strips_of(found)
    assert ssim.text == (
        "Best recovered sample of each client. as deployed, by best: 3 of 10 clients at ssim ≥ "
        "0.5, 0.4 to 0.9; no defence, by best: 3 of 10 clients at ssim ≥ 0.5, 0.1 to 0.1; topk "
        "(keep 0.1), by best: 3 of 10 clients at ssim ≥ 0.5, 0.1 to 0.1."
    )
    assert "psnr ≥ 0.5, 20 to 20" in second.text and "topk" not in second.text
    assert b64decode(ssim.uri.partition("base64,")[2]).startswith(b"<?xml")
