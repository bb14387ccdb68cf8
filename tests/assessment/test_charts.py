from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from gleak.assessment.charts import Series, charts_of, draw_series, sample_uri
from gleak.assessment.findings import Exposure, Mean, Variation, Varied


def mean(value: float | None) -> Mean:
    if value is None:
        return Mean(value=None, low=None, high=None)
    return Mean(value=value, low=value - 0.1, high=value + 0.2)


def exposure(metric: str, value: float | None) -> Exposure:
    return Exposure(
        cell="d/m/t/c/clients/n/a",
        attack="best",
        metric=metric,
        threshold=0.5,
        better="higher",
        clients=2,
        above=0,
        share=mean(0.5),
        attacked=mean(value),
        blind=mean(0.2),
        gain=mean(value),
        losses=[],
        samples=mean(0.5),
        verdict="not found",
    )


def point(value: str, *exposures: Exposure) -> Varied:
    number, deployed = float(value) if value.isdecimal() else None, value == "1"
    return Varied(value=value, number=number, deployed=deployed, exposures=exposures, reasons=[])


@pytest.mark.parametrize("values", [("1", "2", "4"), ("fc2", "lenet", "mlp")])
def test_each_metric_has_its_pictures_and_missing_values_are_left_out(values: list[str]) -> None:
    points = [
        point(values[0], exposure("ssim", 0.5), exposure("psnr", None)),
        point(values[1], exposure("psnr", 20), exposure("ssim", 0.1)),
        point(values[2]),
    ]
    found = charts_of(Variation(field="what", points=points))
    assert set(found) == {"ssim", "psnr"}
    uris = [uri for charts in found.values() for uri in (charts.share, charts.mean)]
    assert len(set(uris)) == 4
    assert all(b64decode(uri.partition("base64,")[2]).startswith(b"<?xml") for uri in uris)
    assert charts_of(Variation(field="what", points=points[2:])) == {}


def draw(field: str, values: Sequence[str], numeric: bool = True) -> Axes:
    series = [Series("attack", [mean(0.5), mean(0.25)][: len(values)], {"marker": "o"})]
    (axes,) = draw_series(field, list(map(point, values)), numeric, series, "ssim").axes
    return axes


def intervals(axes: Axes) -> list[list[float]]:
    """Middle and both ends of each interval of the first series, in the picture's units."""
    (container,) = axes.containers
    line, _, (bars,) = container
    middles = line.get_xydata()
    ends = [segment.ravel().tolist() for segment in bars.get_segments()]
    return [[*middle, *end] for middle, end in zip(middles, ends, strict=True)]


def test_numbers_are_where_they_belong_with_their_intervals() -> None:
    found = intervals(draw("rounds", ["2", "5"]))
    assert np.allclose(found, [[2, 0.5, 2, 0.4, 2, 0.7], [5, 0.25, 5, 0.15, 5, 0.45]])


def test_names_are_below_each_other() -> None:
    axes = draw("model", ["lenet+width=24", "fc2"], numeric=False)
    assert np.allclose(intervals(axes), [[0.5, 0, 0.4, 0, 0.7, 0], [0.25, 1, 0.15, 1, 0.45, 1]])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["lenet\n+width=24", "fc2"]
    top, bottom = axes.get_ylim()[::-1]
    assert top < 0 < 1 < bottom


@pytest.mark.parametrize(
    ("values", "scale"),
    [("0 2", "linear"), ("1 10", "linear"), ("1 100", "symlog"), ("0", "linear")],
)
def test_numbers_far_apart_have_a_logarithmic_axis(values: str, scale: str) -> None:
    axes = draw("rounds", values.split())
    assert axes.get_xscale() == scale
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert shown == [f"{value}\n(deployed)" if value == "1" else value for value in values.split()]


def test_a_sample_is_enlarged_without_blur() -> None:
    sample = np.zeros((1, 8, 8))
    sample[0, 0, 0] = 1
    content = b64decode(sample_uri(sample).partition("base64,")[2])
    pixels = np.array(Image.open(BytesIO(content)))
    assert pixels.shape == (128, 128)
    assert (pixels[:16, :16] == 255).all()
    assert pixels.sum() == 16 * 16 * 255
