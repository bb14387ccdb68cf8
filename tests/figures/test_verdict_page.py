from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pandas as pd
import pytest

from gleak.figures.judge import COLUMNS
from gleak.figures.verdict_page import write_page
from gleak.studies.study import load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_verdict_of_a_study_is_on_its_page_with_links_to_its_figures(path: Path) -> None:
    study = load_study(path)
    verdicts = ["holds", "fails", "cannot tell", "no data"]
    table = pd.DataFrame(
        [
            {
                **dict.fromkeys(COLUMNS, ""),
                **claim.model_dump(include={"id", "level", "claim", "source"}),
                "group": f"group <{number}>",
                "measured": f"a {number}, b 0.5",
                "interval": "[1, 2]; [3, 4]",
                "verdict": verdicts[number % 4],
                "needed": str(10 * number) if number % 4 == 2 else "",
            }
            for number, claim in enumerate(study.expectations)
        ],
        columns=COLUMNS,
    )
    page = write_page(study, "quick", table)
    counts = table["verdict"].value_counts()
    listed = ", ".join(f"{verdict}: {counts.get(verdict, 0)}" for verdict in verdicts)
    assert f"{len(table)} comparisons at the scale quick ({listed})." in page
    assert f"about {median(range(20, 10 * len(table), 40)):.0f} victims (median)" in page
    rows = page.partition("<tbody>")[2].split("</tr>")[:-1]
    assert len(rows) == len(table)
    for number, (row, claim) in enumerate(zip(rows, study.expectations, strict=True)):
        assert f"<td>group &lt;{number}&gt;</td>" in row
        assert f'<span class="{verdicts[number % 4].split()[0]}">' in row
        assert (f"({10 * number} victims would)" in row) is (number % 4 == 2)
        assert "<td>[1, 2]<br>[3, 4]</td>" in row
        links = re.findall(r'<a href="(.+?)\.svg"', row)
        assert links == [name for name, f in study.figures.items() if claim.grid in f.grids]
