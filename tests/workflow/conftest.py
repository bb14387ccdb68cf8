"""Copies of the project in which the real Snakemake runs, and what its dry runs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    "Snakefile",
    "config.yaml",
    "docs/report",
    "gleak",
    "profiles",
    "rules",
    "studies",
    "workflow_scripts",
)
NOTHING = "Nothing to be done"
CELL = "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/none"

JOB = re.compile(r"^(?:local)?rule (?P<rule>\w+):\n(?P<body>(?:    .*\n)+)", re.MULTILINE)
TOTAL = re.compile(r"^total +(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """A job of a dry run: its rule and the lines Snakemake prints of it."""

    rule: str
    lines: dict[str, str]

    def files(self, kind: str) -> list[Path]:
        """Its files: "input", "output", "log" or "benchmark"."""
        return [Path(text) for text in self.lines.get(kind, "").split(", ") if text]

    @property
    def wildcards(self) -> dict[str, str]:
        pairs = (text.partition("=") for text in self.lines.get("wildcards", "").split(", "))
        return {name: value for name, _, value in pairs}

    @property
    def attacks(self) -> bool:
        """Whether it is an attack's, on a whole cell or a share of it."""
        return self.rule in ("attack", "attack_shard")


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    code: int
    text: str

    @property
    def jobs(self) -> list[Job]:
        """The jobs of a dry run."""
        if NOTHING in self.text:
            return []
        jobs = [
            Job(found["rule"], dict(re.findall(r"^    (\w+): (.*)$", found["body"], re.MULTILINE)))
            for found in JOB.finditer(self.text)
        ]
        total = TOTAL.search(self.text)
        assert total, self.text
        assert len(jobs) == int(total[1]), "not every job of the dry run was understood"
        return jobs


@dataclass(frozen=True)
class Project:
    """A copy of the project.

    Args:
        root: where it stands; Snakemake keeps its own notes there.
        config: keys set on the command line.
        first_on_path: folders in front of the copy on PYTHONPATH.
    """

    root: Path
    config: dict[str, Any] = field(default_factory=dict)
    first_on_path: Sequence[Path] = ()

    @property
    def results(self) -> Path:
        return self.root / self.config.get("results_dir", "results")

    @property
    def cell(self) -> Path:
        """The folder of the tiny study's updates."""
        return self.results / "artifacts" / CELL

    def snakemake(self, *words: str | Path, **config: Any) -> Result:
        """Run Snakemake on one core; the library is that of the copy."""
        keys = {"device": "cpu", **self.config, **config}
        path = os.pathsep.join(map(str, [*self.first_on_path, self.root]))
        settings = [f"{key}={value}" for key, value in keys.items()]
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", *words, "--cores", "1", "--config", *settings],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            start_new_session=True,
        )
        return Result(done.returncode, done.stdout)

    def run(self, *words: str | Path, **config: Any) -> Result:
        """A run that must succeed."""
        result = self.snakemake(*words, **config)
        assert result.code == 0, result.text
        return result

    def jobs(self, *words: str | Path, **config: Any) -> list[Job]:
        """The jobs of a dry run."""
        return self.run("--dry-run", *words, **config).jobs

    @contextmanager
    def edited(self, *files: str, edit: Callable[[str], str]) -> Iterator[None]:
        """Change source files while the block runs."""
        before = {self.root / file: (self.root / file).read_text() for file in files}
        assert all(edit(text) != text for text in before.values())
        try:
            for path, text in before.items():
                path.write_text(edit(text))
            yield
        finally:
            for path, text in before.items():
                path.write_text(text)


def copy_project(root: Path) -> Path:
    """The files a run needs, and the studies of these tests."""
    for part in PARTS:
        source, target = ROOT / part, root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    for study in (Path(__file__).parent / "studies").glob("*.yaml"):
        shutil.copy2(study, root / "studies")
    return root


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy, for tests that change it."""
    root = copy_project(tmp_path / "project")
    return Project(root, {"studies": "tiny", "results_dir": root / "results"})


@pytest.fixture(scope="module")
def painting(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with one more attack, which brings a codec."""
    root = copy_project(tmp_path_factory.mktemp("painting"))
    attack = Path(__file__).parent / "painting.py"
    shutil.copy2(attack, root / "gleak/attacks")
    with (root / "gleak/attacks/__init__.py").open("a") as package:
        package.write("from gleak.attacks import painting as painting\n")
    return Project(root, {"studies": "tiny"})


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy that only dry runs use; importing torch stops them."""
    root = copy_project(tmp_path_factory.mktemp("planned"))
    poison = tmp_path_factory.mktemp("poison")
    (poison / "torch.py").write_text("raise SystemExit('the graph is built without torch')\n")
    return Project(root, first_on_path=[poison])


@pytest.fixture(scope="session")
def graph(planned: Project) -> Callable[[str, str], list[Job]]:
    """All jobs of a study at a scale."""
    return cache(lambda study, scale: planned.jobs(studies=study, scale=scale))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy in which the tiny study has run whole, its results in a folder elsewhere.

    Tests leave it as it is.
    """
    root = copy_project(tmp_path_factory.mktemp("finished"))
    results = tmp_path_factory.mktemp("elsewhere") / "results"
    project = Project(root, {"studies": "tiny", "results_dir": results})
    project.run()
    return project
