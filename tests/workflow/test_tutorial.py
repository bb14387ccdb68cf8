"""docs/guide/tutorial.md, followed to the letter in a copy of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from PIL import Image

from tests.guide import follow, sections

if TYPE_CHECKING:
    from tests.project import Project

FOLLOWED = ("One experiment of the workflow", "Change one thing", "An image of your own")


@pytest.mark.slow
def test_the_tutorial_recovers_images(real: Project) -> None:
    page = sections("docs/guide/tutorial.md")
    printed = follow(real.root, *(page[name] for name in FOLLOWED))
    scores = {path: pd.read_csv(path) for path in real.results.glob("artifacts/**/scores.csv")}
    psnr = {str(path): table[table["metric"] == "psnr"]["value"] for path, table in scores.items()}
    assert all((values > 99).all() for path, values in psnr.items() if "spear" in path)
    assert len(psnr) == 4
    assert "better than the blind" in printed
    for name in ("found.png", "noisy.png", "mine.png"):
        with Image.open(real.root / name) as image:
            assert image.size[0] >= 96
