"""Copies of the project in which the real Snakemake runs, and what its dry runs say."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from gleak.metrics.score_table import read_scores

ROOT = Path(__file__).parents[1]
PARTS = (
    "Snakefile",
    "config.yaml",
    "docs/report",
    "envs",
    "gleak",
    "profiles",
    "rules",
    "studies",
    "workflow_scripts",
)
OF_THE_MACHINE = ("seconds", "peak_memory")
SNAKEMAKE = (sys.executable, "-m", "snakemake")
SOON = 120.0
NOTHING = "Nothing to be done"
CELL = "digits/lenet/untrained+init=uniform/honest/fedsgd+victims=2/none"

JOB = re.compile(r"^ *(?:local)?rule (?P<rule>\w+):\n(?P<body>(?: +\w+: .*\n)+)", re.MULTILINE)
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
        jobs = jobs_in(self.text)
        total = TOTAL.search(self.text)
        assert total, self.text
        assert len(jobs) == int(total[1]), "not every job of the dry run was understood"
        return jobs


@dataclass(frozen=True)
class Underway:
    """A run that has not ended; called, it waits for the end."""

    process: subprocess.Popen[str]

    def __call__(self) -> Result:
        return Result(text=self.process.communicate()[0], code=self.process.wait())

    def wait_for(self, what: Callable[[], object]) -> None:
        """Wait until something is so, for as long as the run goes on."""
        end = time.monotonic() + SOON
        while not what():
            assert self.process.poll() is None, self().text
            assert time.monotonic() < end
            time.sleep(0.1)

    def signal(self, number: int) -> Result:
        """Send a signal to all of its processes, and wait for the end."""
        os.killpg(self.process.pid, number)
        return self()


@dataclass(frozen=True)
class Project:
    """A copy of the project.

    Args:
        root: where it stands; Snakemake keeps its own notes there.
        config: keys set on the command line.
        first_on_path: folders in front of the copy on PYTHONPATH.
        options: where and how its jobs run, for Snakemake's command line.
        environment: variables that differ from those of the tests.
        within: a command that runs Snakemake's.
    """

    root: Path
    config: dict[str, Any] = field(default_factory=dict)
    first_on_path: Sequence[Path] = ()
    options: Sequence[str] = ("--cores", "1")
    environment: Mapping[str, str] = field(default_factory=dict)
    within: Sequence[str] = ()

    @property
    def results(self) -> Path:
        return self.root / self.config.get("results_dir", "results")

    @property
    def cell(self) -> Path:
        """The folder of the tiny study's updates."""
        return self.results / "artifacts" / CELL

    def scores(self) -> pd.DataFrame:
        """All scores there are, without those that say what the machine did."""
        scores = read_scores(sorted(self.results.glob("artifacts/**/scores.csv")))
        return scores[~scores["metric"].isin(OF_THE_MACHINE)].reset_index(drop=True)

    def command(self, *words: str | Path, **config: Any) -> list[str]:
        """Snakemake's command line."""
        keys = {"device": "cpu", **self.config, **config}
        settings = [f"{key}={value}" for key, value in keys.items()]
        return [*map(str, words), *self.options, "--config", *settings]

    @property
    def variables(self) -> dict[str, str]:
        """The environment that Snakemake runs in; the library is that of the copy."""
        path = os.pathsep.join(map(str, [*self.first_on_path, self.root]))
        return {**os.environ, "OMP_NUM_THREADS": "1", **self.environment, "PYTHONPATH": path}

    def snakemake(self, *words: str | Path, **config: Any) -> Result:
        """Run Snakemake to its end."""
        if self.within:
            with self.started(*words, **config) as result:
                return result()
        with tempfile.NamedTemporaryFile() as output:
            run = {
                "words": self.command(*words, **config),
                "folder": str(self.root),
                "environment": self.variables,
                "output": output.name,
            }
            server = snakemake_server()
            print(json.dumps(run), file=server.stdin, flush=True)
            code = int(server.stdout.readline())
            return Result(code, Path(output.name).read_text())

    @contextmanager
    def started(self, *words: str | Path, **config: Any) -> Iterator[Underway]:
        """Run Snakemake beside the block, which is given the run."""
        with subprocess.Popen(
            [*self.within, *SNAKEMAKE, *self.command(*words, **config)],
            cwd=self.root,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield Underway(process)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                if not process.stdout.closed:
                    print(process.communicate()[0])  # that nobody asked for: for whoever looks why

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

    @contextmanager
    def slowed(self) -> Iterator[Path]:
        """Steps of jobs take long while the file that the block is given exists."""
        slow = self.root / "slow"
        with self.edited("gleak/runtime/progress.py", edit=slower):
            slow.touch()
            yield slow


def jobs_in(text: str) -> list[Job]:
    """The jobs that a part of a dry run's text describes."""
    return [
        Job(found["rule"], dict(re.findall(r"^ +(\w+): (.*)$", found["body"], re.MULTILINE)))
        for found in JOB.finditer(text)
    ]


@cache
def snakemake_server() -> subprocess.Popen[str]:
    """The process in which runs are forked, for as long as this one lasts."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/snakemake_server.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)  # closes its input, upon which it ends
    return process


def slower(text: str) -> str:
    """Let progress tell each second, and each step take a tenth while there is a file `slow`."""
    count = "self.done += units\n"
    changes = {
        "import sys\n": "import os\nimport sys\n",
        "LINE_SECONDS = 10.0": "LINE_SECONDS = 1.0",
        count: f"{count}        time.sleep(0.1 * os.path.exists('slow'))\n",
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return text


def copy_project(root: Path) -> Path:
    """The files a run needs, and the studies of these tests."""
    for part in PARTS:
        source, target = ROOT / part, root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    for study in (ROOT / "tests/workflow/studies").glob("*.yaml"):
        shutil.copy2(study, root / "studies")
    return root
