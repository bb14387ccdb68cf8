"""What the README and the guides say must work as written."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gleak.assessment.deployment import Deployment
from gleak.studies.study import load_study

ROOT = Path(__file__).parents[1]
EXTENDING = (ROOT / "docs" / "guide" / "extending.md").read_text(encoding="utf-8")
STUDIES = (ROOT / "docs" / "guide" / "studies.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_each_class_of_the_guide_registers_and_describes_itself() -> None:
    code = "\n".join(blocks(EXTENDING, "python"))
    names = re.findall(r'@register\("(\w+)"\)', code)
    code += f"\nfrom gleak.cli.catalog import describe\nfor name in {names}: print(describe(name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(names) == len(blocks(EXTENDING, "python"))
    assert all(name in done.stdout for name in names)


def test_the_studies_of_the_guide_are_valid(tmp_path: Path) -> None:
    cells, figures = {}, set()
    for block in blocks(STUDIES, "yaml"):
        path = tmp_path / "guide.yaml"
        written = {"title": "t", "paper": "p", "figures": {}, **yaml.safe_load(block)}
        path.write_text(yaml.safe_dump(written))
        study = load_study(path)
        cells |= {name: len(study.grid(name, "quick").cells) for name in study.grids}
        figures |= {spec.name for spec in study.figures.values()}
    assert cells == {"sizes": 3 * 3, "priors": 3, "attacked": 2 * 2, "trained": 2}
    assert figures == {"line", "tradeoff"}


@pytest.mark.parametrize(
    ("page", "models"),
    [
        ("assess", ["lenet", "my_models.wide"]),
        ("assess-images", ["networks.scans"] * 2),
        ("assess-records", ["mlp+activation=relu"] * 2),
    ],
)
def test_the_deployments_of_the_guide_are_valid(page: str, models: list[str]) -> None:
    text = (ROOT / f"docs/guide/{page}.md").read_text(encoding="utf-8")
    found = [Deployment(**yaml.safe_load(block)) for block in blocks(text, "yaml")]
    assert [each.model for each in found] == models


def test_every_file_that_is_linked_exists() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            target = document.parent / link
            # the page of a record is drawn by `make docs`
            recorded = target.with_suffix("") / "conditions.yaml"
            assert target.exists() or recorded.exists(), f"{document}: {link}"


def test_the_table_of_stages_is_that_of_the_code() -> None:
    """If not: ``python docs/write_stages.py``."""
    page = ROOT / "docs" / "design.md"
    written = runpy.run_path(str(ROOT / "docs" / "write_stages.py"))["written"]
    assert written(page.read_text(encoding="utf-8")) == page.read_text(encoding="utf-8")
