"""A disposable SLURM cluster and what it remembers of its jobs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.project import Job

SCRIPT = Path(__file__).with_name("cluster.sh")
NODES, CPUS, GPUS = 2, 2, 1
FIELD = re.compile(r"(\S+?)=(\S*)")
PATIENCE = 240  # seconds


@dataclass(frozen=True)
class Record:
    """What SLURM itself remembers of a job; moments are in seconds since 1970."""

    fields: Mapping[str, str]

    @property
    def number(self) -> str:
        return self.fields["JobId"]

    @property
    def job(self) -> str:
        """Its rule and wildcards, see `submitted_as`."""
        return self.fields["Comment"]

    @property
    def rule(self) -> str:
        return re.match(r"rule_(\w+?)(_wildcards_|$)", self.job)[1]

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def node(self) -> str:
        return self.fields["NodeList"]

    @property
    def log(self) -> str:
        """SLURM's log of it."""
        return self.fields["StdOut"]

    @property
    def start(self) -> int:
        return int(self.fields["StartTime"])

    @property
    def end(self) -> int:
        return int(self.fields["EndTime"])

    @property
    def gpus(self) -> int:
        """How many it was given."""
        found = re.fullmatch(r"gpu:(\d+)", self.fields.get("JOB_GRES", ""))
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Args:
        folder: all that it writes.
    """

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes SLURM's commands speak to it."""
        return {
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]]),
            "SLURM_TIME_FORMAT": "%s",
        }

    def ask(self, *words: str) -> str:
        """What a command of SLURM answers."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            words, env=environment, check=True, text=True, stdout=subprocess.PIPE
        ).stdout

    def records(self) -> list[Record]:
        """Every job it was ever given."""
        lines = self.ask("scontrol", "--detail", "--oneliner", "show", "jobs").splitlines()
        return [Record(dict(FIELD.findall(line))) for line in lines if line.startswith("JobId=")]

    def running(self, wanted: Callable[[Record], bool]) -> Record:
        """The job that is wanted, as soon as it runs."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for record in self.records():
                if record.state == "RUNNING" and wanted(record):
                    return record
            time.sleep(0.5)
        raise TimeoutError(f"no such job ran within {PATIENCE} s")


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts; never longer than this process, however it ends."""
    size = {"NODES": str(NODES), "CPUS": str(CPUS), "GPUS": str(GPUS)}
    with subprocess.Popen(
        [SCRIPT, "run", folder, "sh", "-c", "echo up; exec cat"],
        env={**os.environ, **size},
        stdin=subprocess.PIPE,  # closed when the block or this process ends: so `cat` ends, too
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "up\n"
        yield Cluster(folder)


def submitted_as(job: Job) -> str:
    """A planned job as the executor describes it to SLURM."""
    wildcards = "_".join(job.wildcards.values())
    return f"rule_{job.rule}_wildcards_{wildcards}" if wildcards else f"rule_{job.rule}"


def at_once(records: Iterable[Record], of: Callable[[Record], int]) -> int:
    """The most of something that was in use at any moment."""
    jobs = list(records)
    moments = {job.start for job in jobs}
    return max(sum(of(job) for job in jobs if job.start <= now < job.end) for now in moments)
