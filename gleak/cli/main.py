"""Command line ``gleak``.

Two commands write inputs of the workflow: ``adopt`` writes hyperparameters selected by searches to
the folder of a study, and ``import`` writes captured updates to the data folder.

Only some commands import torch: ``import`` and ``audit --data``, which compute gradients, and
``validate`` and ``plan`` for studies with a user's own model, which they build. Modules are
imported by the command that needs them, so that commands start fast.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from gleak import __version__
from gleak.cli.assess_command import add_assess_command
from gleak.cli.common import (
    EXIT_FINDING,
    Command,
    complain,
    use_configured_plugins,
)
from gleak.cli.completion import complete, kinds, offer, specs_of
from gleak.cli.import_command import add_import_command
from gleak.cli.record_commands import add_record_commands
from gleak.cli.study_commands import add_study_commands
from gleak.core.errors import GleakError, SpecError
from gleak.runtime.perceptual import SQUEEZE, Net

EXIT_BROKEN_PIPE = 141


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        words: arguments after ``gleak``; None for those of this process.

    Returns:
        Exit code: 0; 1 after an error, which is one line on stderr; 3 if an audit raises an alarm,
        or the true samples of a capture do not give its updates; 141 if the reader of the output
        ended early, as the shell reports it (``gleak list | head``).
    """
    parser = build_parser()
    complete(parser)
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


def build_parser() -> ArgumentParser:
    """Build the parser of all commands and their options."""
    parser = ArgumentParser(prog="gleak", description="Measure gradient leakage. See README.md.")
    parser.add_argument("--version", action="version", version=f"gleak {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    command = add("list", run_list, "list all registered names")
    kind = command.add_argument("kind", nargs="?", metavar="KIND", help="dataset, attack, ...")
    offer(kind, kinds)
    command = add("describe", run_describe, "describe a name, its fields and their defaults")
    text = "a name, or a spec such as cpl+restarts=2"
    offer(command.add_argument("name", metavar="NAME", help=text), specs_of())
    command = add(
        "inspect", run_inspect, "show the contents of an artifact, or save one of its images"
    )
    command.add_argument(
        "file", type=Path, metavar="FILE", help="any .h5 file of a run, or a table of scores"
    )
    command.add_argument("--image", type=int, metavar="N", help="save the image of sample N")
    command.add_argument(
        "--output", type=Path, metavar="PNG", help="output file; default ./<stem>-<N>.png"
    )
    add_scores_options(add("scores", run_scores, "show scores, and images beside the true ones"))
    text = "test parameters for signs of crafting; exit with 3 on an alarm"
    add_audit_options(add("audit", run_audit, text))
    add_assess_command(add)
    add_demo_options(add("demo", run_demo, "recover a batch of photographs from one gradient"))
    add_weights_options(
        add(
            "weights",
            run_weights,
            "download weights, those of LPIPS by default, to the cache of torch.hub; replace an "
            "altered file",
        )
    )
    add_import_command(add)
    add_study_commands(add)
    add_record_commands(add)
    return parser


def add_audit_options(command: ArgumentParser) -> None:
    """Add the options of ``gleak audit``."""
    command.add_argument("file", type=Path, metavar="FILE", help="parameters.h5 or model.h5")
    command.add_argument(
        "--data", type=Path, metavar="DATASET", help="dataset.h5 with samples for the audits"
    )


def add_weights_options(command: ArgumentParser) -> None:
    """Add the options of ``gleak weights``."""
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "file", nargs="?", metavar="FILE", help="name of a file that torchvision publishes"
    )
    which.add_argument(
        "--net",
        choices=get_args(Net),
        default=SQUEEZE,
        help="network whose features LPIPS compares: squeeze (default, 5 MB), alex (244 MB) or vgg "
        "(553 MB)",
    )


def add_demo_options(command: ArgumentParser) -> None:
    """Add the options of ``gleak demo``."""
    command.add_argument(
        "--attack", default="spear", metavar="SPEC", help="spec of the attack; default spear"
    )
    command.add_argument(
        "--defense", default="none", metavar="SPEC", help="spec of the defence; default none"
    )
    command.add_argument(
        "--size", type=int, default=224, metavar="PX", help="side of the photographs; default 224"
    )
    command.add_argument(
        "--output", type=Path, default=Path("demo.png"), metavar="PNG", help="default ./demo.png"
    )


def add_scores_options(command: ArgumentParser) -> None:
    """Add the options of ``gleak scores``."""
    paths: dict[str, Any] = {"type": Path, "metavar": "PATH"}
    command.add_argument(
        "paths", nargs="+", help="scores.csv, or folders that contain some", **paths
    )
    command.add_argument("--metric", action="append", default=[], metavar="SPEC", dest="metrics")
    command.add_argument(
        "--image", type=Path, metavar="PNG", help="save truth and reconstructions as one picture"
    )
    for name, default in (("victims", 4), ("samples", 2)):
        text = f"largest number of {name} in the picture; default {default}"
        command.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)


def run_list(arguments: Namespace) -> int:
    """Run ``gleak list [KIND]``."""
    from gleak.cli.catalog import list_registered

    use_configured_plugins()
    print(list_registered(arguments.kind))
    return 0


def run_describe(arguments: Namespace) -> int:
    """Run ``gleak describe NAME``."""
    from gleak.cli.catalog import describe

    use_configured_plugins()
    print(describe(arguments.name))
    return 0


def run_inspect(arguments: Namespace) -> int:
    """Run ``gleak inspect FILE [--image N] [--output PNG]``."""
    from gleak.artifacts.inspect import describe_file, save_image

    if arguments.file.suffix not in (".h5", ".csv"):
        raise SpecError(f"{arguments.file}: neither an .h5 file nor a table of scores (.csv)")
    if arguments.image is not None:
        output = arguments.output or Path(f"{arguments.file.stem}-{arguments.image}.png")
        print(save_image(arguments.file, arguments.image, output))
    elif arguments.output is not None:
        raise SpecError("--output needs the number of an image; add --image N")
    elif arguments.file.suffix == ".csv":
        from gleak.cli.score_report import describe_scores

        print(describe_scores([arguments.file]))
    else:
        print(describe_file(arguments.file))
    return 0


def run_scores(arguments: Namespace) -> int:
    """Run ``gleak scores PATH ... [--metric SPEC] [--image PNG]``."""
    from gleak.cli.score_report import describe_scores, find_tables, save_comparison

    use_configured_plugins()
    tables = find_tables(arguments.paths)
    print(describe_scores(tables, arguments.metrics))
    if arguments.image is not None:
        counts = {"victims": arguments.victims, "samples": arguments.samples}
        print(save_comparison(tables, arguments.image, **counts))
    return 0


def run_audit(arguments: Namespace) -> int:
    """Run ``gleak audit FILE [--data DATASET]``."""
    from gleak.cli.audit_report import audit_file

    report = audit_file(arguments.file, arguments.data)
    print(report)
    return EXIT_FINDING if report.alarms else 0


def run_demo(arguments: Namespace) -> int:
    """Run ``gleak demo [--attack SPEC] [--defense SPEC] [--size PX] [--output PNG]``."""
    from gleak.cli.demo import attack_photographs

    outcome = attack_photographs(arguments.attack, arguments.size, defense=arguments.defense)
    outcome.draw(arguments.output)
    print(f"{outcome}\n\n{arguments.output.resolve()}")
    return 0


def run_weights(arguments: Namespace) -> int:
    """Run ``gleak weights [FILE | --net NET]``."""
    from gleak.runtime.hub_weights import address, download, expected_digests
    from gleak.runtime.perceptual import BACKBONES

    name = arguments.file or BACKBONES[arguments.net].file
    digest = next(iter(expected_digests(name)), "unknown")
    print(f"{address(name)}, sha256 {digest}", flush=True)
    print(download(name))
    return 0
