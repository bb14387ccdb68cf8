"""Command line ``gleak``.

Two commands write inputs of the workflow: ``adopt`` writes hyperparameters selected by searches to
the folder of a study, and ``import`` writes captured updates to the data folder.

Only the module of the command that is run is imported, so that commands start fast: few need torch.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module

from gleak import __version__
from gleak.cli.common import complain
from gleak.core.errors import GleakError

EXIT_BROKEN_PIPE = 141
COMMANDS = {
    "list": ("catalog", "list all registered names"),
    "describe": ("catalog", "describe a name, its fields and their defaults"),
    "inspect": ("files", "show the contents of an artifact, or save one of its images"),
    "scores": ("score_report", "show scores, and images beside the true ones"),
    "audit": ("files", "test parameters for signs of crafting; exit with 3 on an alarm"),
    "assess": (
        "assess_command",
        "assess a deployment; exit with 3 if clients are exposed, with 4 if that cannot be told",
    ),
    "demo": ("demo", "recover a batch of photographs from one gradient"),
    "weights": (
        "files",
        "download weights, those of LPIPS by default, to the cache of torch.hub; replace an "
        "altered file",
    ),
    "import": (
        "import_command",
        "import updates captured outside of gleak; exit with 3 if the truth contradicts them",
    ),
    "validate": ("study_commands", "check studies at every scale without running them"),
    "adopt": ("study_commands", "use the hyperparameters selected by searches in studies"),
    "rehearse": ("rehearse_command", "run all stages without data on a virtual GPU"),
    "plan": ("study_commands", "estimate cells, jobs, hours and gigabytes of studies"),
    "record": ("record_commands", "record the scores of a run's finished grids"),
    "results": ("record_commands", "write the pages of recorded runs"),
}
"""Module of each command, with its functions ``add_<command>`` and ``run_<command>``, and help."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command, by default that of this process, and return the exit code.

    It is 1 after an error, which is one line on stderr; 3 if an audit raises an alarm, or the true
    samples of a capture do not give its updates; 141 if the reader of the output ended early, as
    the shell reports it (``gleak list | head``).
    """
    words = sys.argv[1:] if words is None else words
    if "_ARGCOMPLETE" in os.environ:  # complete a command line, and end the process
        from argcomplete import autocomplete

        autocomplete(build_parser(os.environ["COMP_LINE"].split()[1:2]))
    parser = build_parser([*words[:1]])
    arguments = parser.parse_args(words)
    if arguments.run is None:
        parser.print_help()
        return 0
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except GleakError as error:
        complain(error)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


def build_parser(commands: Sequence[str] = tuple(COMMANDS)) -> ArgumentParser:
    """Build the parser of all commands, with the options of those given: of all by default."""
    parser = ArgumentParser(prog="gleak", description="Measure gradient leakage. See README.md.")
    parser.add_argument("--version", action="version", version=f"gleak {__version__}")
    parser.set_defaults(run=None)
    added = parser.add_subparsers(metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = added.add_parser(name, help=text, description=text)
        if name in commands:
            functions = import_module(f"gleak.cli.{module}")
            getattr(functions, f"add_{name}")(command)
            command.set_defaults(run=getattr(functions, f"run_{name}"))
    return parser
