"""Tiny tables of scores and the names that go with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.figures.published import empty_published
from gleak.metrics.score_table import COLUMNS, TYPES
from gleak.studies.axis_labels import AxisLabels, read_spec
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, FigureSpec, Shown
from gleak.studies.study import Study, load_study

STUDY = Path(__file__).parent / "figures" / "study.yaml"
LEVELS = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "none",
    "attack": "cpl",
}


Scored = Callable[..., pd.DataFrame]
WriteScores = Callable[..., Path]
MakeCell = Callable[..., Cell]
ShowCell = Callable[..., Shown]
DrawTwice = Callable[[FigureSpec, FigureData], None]
"""Types of the fixtures `scored`, `write`, `cell`, `shown` and `draw_twice`."""


def read_cell(row: Mapping[str, str]) -> Cell:
    """The cell of a row of strings; an empty one is a level it does not have."""
    return Cell({level: read_spec(level, row[level]) for level in LEVELS if row[level]})


def make_figure(kind: str, **fields: Any) -> Any:
    return build_spec(find("figure", kind), fields)


def published_values(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """Published means as they are read: levels are specs."""
    common = {"figure": "f", "statistic": "mean", "note": "", "incomparable": ""}
    table = pd.DataFrame([{**common, **row} for row in rows])
    levels = [level for level in LEVELS if level in table]
    return table.assign(
        **{level: [read_spec(level, text) for text in table[level]] for level in levels}
    )


def read_page(path: Path) -> tuple[list[list[str]], str]:
    """The texts of the rows of a page with a table, and what is below the table."""
    table, _, below = path.read_text(encoding="utf-8").partition("<main")[2].partition("</main>")
    rows = [
        [text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in table.split("</tr>")[:-1]
    ]
    return rows, text_of(below)


def text_of(html: str) -> str:
    return unescape(re.sub("<.*?>", "", html)).strip()


@pytest.fixture
def draw_twice(tmp_path: Path) -> Callable[[FigureSpec, FigureData], None]:
    """Draws a figure two times: files are equal to the byte, the picture has a fair size."""

    def draw(figure: FigureSpec, material: FigureData) -> None:
        for name in ("first", "second"):
            figure.draw(material, tmp_path / name)
        for suffix in figure.suffixes:
            first, second = (tmp_path / f"{name}{suffix}" for name in ("first", "second"))
            assert first.read_bytes() == second.read_bytes()
        assert {path.suffix for path in tmp_path.glob("first.*")} == set(figure.suffixes)
        if ".png" in figure.suffixes:
            with Image.open(tmp_path / "first.png") as picture:
                assert min(picture.size) > 200

    return draw


@pytest.fixture
def study() -> Study:
    """A study with every kind of figure."""
    return load_study(STUDY)


@pytest.fixture
def row() -> Callable[..., dict[str, str]]:
    """The levels of a cell as text, with any of them changed."""
    return lambda **levels: {**LEVELS, **levels}


@pytest.fixture
def cell() -> Callable[..., Cell]:
    """A cell, with any of its levels changed."""
    return lambda **levels: read_cell({**LEVELS, **levels})


@pytest.fixture
def scored() -> Callable[..., pd.DataFrame]:
    """Rows of one metric of one cell: a value per victim, or a list of them, one per sample."""

    def make(metric: str, values: Sequence[Any], status: str = "ok", **levels: str) -> pd.DataFrame:
        grants = levels.pop("grants", "")
        rows = [
            {"victim": victim, "sample": sample, "value": value}
            for victim, entry in enumerate(values)
            for sample, value in (enumerate(entry) if isinstance(entry, list) else [(pd.NA, entry)])
        ]
        fixed = {**LEVELS, **levels, "metric": metric, "status": status}
        fixed |= {"grants": grants, "reason": ""}
        table = pd.DataFrame([{**fixed, **row} for row in rows])[list(COLUMNS)].astype(TYPES)
        return table.assign(cell=[read_cell(fixed)] * len(rows))

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Tables of scores as one file."""

    def make(name: str, *tables: pd.DataFrame) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.concat(tables).to_csv(path, index=False, columns=list(COLUMNS))
        return path

    return make


@pytest.fixture
def names() -> AxisLabels:
    """Two datasets, one a stand-in; a defence in several strengths; attacks with the controls."""
    values = {level: (value,) for level, value in LEVELS.items()}
    values["dataset"] = ("photos", "digits")
    values["defense"] = ("none", "gaussian+std=1e-4", "gaussian", "laplace+std=1e-4")
    values["attack"] = ("cpl+restarts=0", "dlg", "blind", "truth")
    labels = {"cpl": "CPL", "cifar10": "CIFAR-10", "gaussian": "Gaussian", "mse": "MSE"}
    proxies = {"dataset": {"photos": "cifar10"}, "attack": {"cpl+restarts=0": "cpl"}}
    return AxisLabels.read(values, proxies, labels)


@pytest.fixture
def nothing_published() -> pd.DataFrame:
    return empty_published()


@pytest.fixture
def noise(scored: Callable[..., pd.DataFrame], names: AxisLabels) -> FigureData:
    """Similarity and success under four defences, with the controls; two victims each."""
    similarities = {
        "none": [1.0, 0.8],
        "gaussian+std=1e-4": [0.9, 0.7],
        "gaussian": [0.1, 0.3],
        "laplace+std=1e-4": [0.6, 0.6],
    }
    attacks = {"cpl+restarts=0": None, "blind": [0.2, 0.4], "truth": [1.0, 1.0]}
    tables = [
        scored(metric, values, defense=defense, attack=attack)
        for defense, found in similarities.items()
        for attack, fixed in attacks.items()
        for metric, values in (
            ("ssim", [[v] for v in fixed or found]),
            ("success_content", [[float(v > 0.75)] for v in fixed or found]),
        )
    ]
    published = published_values({"defense": "gaussian", "metric": "ssim", "value": 0.019})
    values = {**names.values, "dataset": ("digits",)}
    return FigureData(
        pd.concat(tables), published, replace(names, axes=AxisLabels.read(values).axes)
    )


@pytest.fixture
def shown(tmp_path: Path, row: Callable[..., dict[str, str]]) -> Callable[..., Shown]:
    """A cell of 3 victims with 2 samples each, drawn from a seed.

    Its result is the truth plus 0.1, its samples in the other order; 5 snapshots of 2 victims.
    """

    def make(
        channels: int = 3,
        snapshots: bool = True,
        converged: Sequence[bool] = (True, True, True),
        seed: int = 0,
        **levels: str,
    ) -> Shown:
        texts = row(**levels)
        folder = tmp_path.joinpath("cells", *texts.values())
        folder.mkdir(parents=True)
        shape = (3, 2, channels, 8, 8)
        truth = np.random.default_rng(seed).random(shape, dtype=np.float32) * 0.5
        found = truth[:, ::-1] + np.float32(0.1)
        books: dict[str, Any] = {}
        if snapshots:
            shares = np.linspace(0, 1, 5, dtype=np.float32).reshape(1, -1, 1, 1, 1, 1)
            books["snapshots"] = found[:2, None] * shares
            books["snapshot_iteration"] = np.array((0, 5, 10, 20, 40))
            books["iterations"] = np.array([7, 8, 9])
        labels = np.zeros(shape[:2], dtype=int)
        Private(inputs=truth, labels=labels, indices=labels).write(folder / "private.h5")
        reconstruction = Reconstruction(
            inputs=found, labels=labels, converged=np.array(converged), **books
        )
        reconstruction.write(folder / "reconstruction.h5")
        return Shown(read_cell(texts), folder / "reconstruction.h5", folder / "private.h5")

    return make
