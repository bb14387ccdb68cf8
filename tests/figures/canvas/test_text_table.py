from __future__ import annotations

from pathlib import Path

import pandas as pd

from gleak.figures.canvas.style import PAGE
from gleak.figures.canvas.text_table import divide, write_forms


def make(columns: int, text: str = "0.1234 ± 0.56") -> pd.DataFrame:
    heads = [(f"attack {number // 2}", ("ours", "paper")[number % 2]) for number in range(columns)]
    return pd.DataFrame(
        [[text] * columns] * 2,
        index=pd.MultiIndex.from_tuples([("a dataset", "MSE"), ("a dataset", "SSIM")]),
        columns=pd.MultiIndex.from_tuples(heads),
    ).rename_axis(index=["dataset", "metric"])


def test_a_table_that_fits_is_one_part() -> None:
    (part,) = divide(make(2), PAGE)
    pd.testing.assert_frame_equal(part, make(2))


def test_a_wide_table_is_divided_between_the_headings() -> None:
    cells = make(12)
    parts = divide(cells, PAGE)
    assert len(parts) > 1
    pd.testing.assert_frame_equal(pd.concat(parts, axis=1), cells)
    for part in parts:
        assert part.shape[1] % 2 == 0


def test_columns_of_one_heading_are_divided_if_they_must(tmp_path: Path) -> None:
    cells = make(6, "a text that is far too long for two of them on a line of a page")
    parts = divide(cells, PAGE)
    assert [part.shape[1] for part in parts] == [1] * 6
    write_forms(cells, "a note", tmp_path / "table")
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex.startswith("% a note\n")
    assert latex.count(r"\begin{tabular}") == 6
