"""Pages of the documentation that are followed to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^##? (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    return dict(SECTION.findall((ROOT / page).read_text(encoding="utf-8")))


def follow(folder: Path, *texts: str, modules: Path = Path()) -> str:
    """Write the files of some sections, run their commands in order; gives what these print.

    Args:
        folder: to write into; current folder of the commands.
        texts: the sections.
        modules: folder of gleak.
    """
    commands = ["set -eu", f"export PYTHONPATH={modules}"]
    for language, block in (found for text in texts for found in BLOCK.findall(text)):
        if language == "sh":
            commands.append(block)
        elif file := re.match(r"# (\S+\.\w+)\n", block):
            (folder / file[1]).write_text(block)
    done = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=folder,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
