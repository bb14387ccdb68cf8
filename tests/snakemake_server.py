"""A process with Snakemake imported, which forks for each run: that saves the imports.

Run as a script. Each line of the input is a run, as JSON with `words` (its command line), `folder`
(where it runs), `environment` and `output` (the file that it prints to); each line of the output is
the exit status of one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PRELOADED = (
    *("snakemake.cli", "snakemake.api", "snakemake.dag", "snakemake.parser", "snakemake.profiles"),
    *("snakemake.report.html_reporter", "snakemake.storage", "snakemake.workflow"),
    *("PIL.Image", "h5py", "numpy", "pydantic", "yaml"),
)


def become(run: dict[str, Any]) -> None:
    """Make this process one that was started for a run."""
    os.setsid()
    for target, source in ((0, os.devnull), (1, run["output"]), (2, run["output"])):
        flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_APPEND
        os.dup2(os.open(source, flags), target)
    os.chdir(run["folder"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.path[:0] = run["environment"]["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["snakemake", *run["words"]]


def main() -> None:
    """Fork for each run that is asked for."""
    sys.path.pop(0)  # the folder of this file
    for name in PRELOADED:
        __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(json.loads(line))
            sys.modules["snakemake.cli"].main()
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
