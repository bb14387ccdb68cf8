"""Command ``gleak import``: updates captured outside of gleak."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleak.cli.common import EXIT_FINDING, Add, add_config_option, read_settings
from gleak.cli.completion import offer, specs_of
from gleak.core.errors import SpecError

if TYPE_CHECKING:
    from gleak.captures.round_folder import Files
    from gleak.clients.base import ClientSpec
    from gleak.studies.cell import Cell

PROTOCOL = {
    "batch_size": "samples per client",
    "local_steps": "local steps; default 1",
    "local_lr": "learning rate of the local steps",
    "mini_batch": "samples per step; default all",
    "loss": "cross_entropy (default) or nll_raw",
    "batch_norm": "evaluation (default), or training: clients normalised by their batches",
    "split": "test (default) or train (victims for searches)",
}
"""Options for the client's fields, with their help."""


def add_import_command(add: Add) -> None:
    """Add the command.

    Args:
        add: adds a command by its name, function and help.
    """
    text = "import updates captured outside of gleak; exit with 3 if the truth contradicts them"
    command = add("import", run_import, text)
    command.add_argument("name", metavar="NAME", help="name of the capture, as in paths")
    for kind in ("dataset", "model"):
        text = f"spec of the {kind}"
        spec = command.add_argument(f"--{kind}", required=True, metavar="SPEC", help=text)
        offer(spec, specs_of(kind))
    _add_files(command)
    for field, text in PROTOCOL.items():
        command.add_argument(f"--{field.replace('_', '-')}", metavar="VALUE", help=text)
    command.add_argument("--replace", action="store_true", help="replace the capture of that name")
    for option in ("data", "captures"):
        text = f"{option} folder; default as configured"
        command.add_argument(f"--{option}-dir", metavar="FOLDER", help=text)
    add_config_option(command)


def _add_files(command: ArgumentParser) -> None:
    """Add the options for the input files; state dicts are safetensors."""
    files: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    command.add_argument("--before", **files, help="broadcast state dict")
    sent = command.add_mutually_exclusive_group(required=True)
    sent.add_argument(
        "--after", nargs="+", **files, help="state dict of each client after training"
    )
    sent.add_argument("--gradients", nargs="+", **files, help="gradients of each client")
    text = "folder of a round, with the state dicts and what is recorded of the training"
    sent.add_argument("--round", type=Path, metavar="FOLDER", help=text)
    text = "folder of a training: each of its rounds is imported, as NAME-<number>"
    sent.add_argument("--rounds", type=Path, metavar="FOLDER", help=text)
    command.add_argument(
        "--truth", nargs="+", default=[], **files, help="inputs and labels of each client"
    )


def run_import(arguments: Namespace) -> int:
    """Run ``gleak import NAME --dataset SPEC --model SPEC --round FOLDER``."""
    from gleak.captures.importing import import_capture
    from gleak.captures.locations import Captures
    from gleak.captures.report import describe_capture

    folders = {"data_dir": arguments.data_dir, "captures_dir": arguments.captures_dir}
    changes = {key: folder for key, folder in folders.items() if folder}
    settings = read_settings(arguments.config, changes)
    captures = Captures(settings.captures)
    every = {_cell(name, files, arguments): files for name, files in _files(arguments).items()}
    for cell in every:
        captures.check_new(cell.captured.capture, replace=arguments.replace)
    agree = True
    for cell, files in every.items():
        capture = import_capture(
            cell, files, captures, settings.data_dir, replace=arguments.replace
        )
        print(describe_capture(cell, capture, settings.results_dir, changes), flush=True)
        agree = agree and (capture.comparison is None or capture.comparison.agrees)
    return 0 if agree else EXIT_FINDING


def _cell(name: str, files: Files, arguments: Namespace) -> Cell:
    """Return the cell of a capture, by the options and what its files contain.

    Raises:
        SpecError: options are invalid, or contradict the files.
        ArtifactError: a file is damaged, or clients differ in a field.
    """
    from gleak.captures.report import captured_cell
    from gleak.captures.round_folder import recorded_fields

    recorded = {} if arguments.gradients else recorded_fields(files.sent)
    options = {field: getattr(arguments, field) for field in PROTOCOL}
    given = {field: value for field, value in options.items() if value is not None}
    cell = captured_cell(
        name,
        arguments.dataset,
        arguments.model,
        victims=len(files.sent),
        sends="gradient" if arguments.gradients else "weights",
        **{**recorded, **given},
    )
    _check_recorded(cell.client, recorded, files.sent[0])
    return cell


def _files(arguments: Namespace) -> dict[str, Files]:
    """Return the input files by the names of their captures.

    Raises:
        SpecError: the broadcast state is missing, or given beside a folder that has it.
        ArtifactError: a folder does not contain what it should.
    """
    from gleak.captures.round_folder import Files, rounds_in

    if arguments.round is None and arguments.rounds is None:
        if arguments.before is None:
            raise SpecError("--before is missing: give the state dict that was broadcast")
        sent = arguments.after or arguments.gradients
        return {arguments.name: Files(arguments.before, sent, arguments.truth)}
    if arguments.before is not None:
        raise SpecError("--before: the folder of a round contains it; leave it out")
    if arguments.rounds is None:
        return {arguments.name: _of_round(arguments.round, arguments.truth)}
    if arguments.truth:
        raise SpecError("--truth: with --rounds, truth-<client>.safetensors is beside each client")
    rounds = rounds_in(arguments.rounds)
    return {f"{arguments.name}-{number}": rounds[number].files() for number in rounds}


def _of_round(folder: Path, truth: list[Path]) -> Files:
    """Return the files of a round, with true samples from elsewhere if they are not in its folder.

    Raises:
        SpecError: there are true samples in both places.
        ArtifactError: the folder does not contain what it should.
    """
    from gleak.captures.round_folder import Files, RoundFolder

    found = RoundFolder(folder).files()
    if truth and found.truth:
        raise SpecError("--truth: the folder of --round contains it; leave it out")
    return Files(found.before, found.sent, truth or found.truth)


def _check_recorded(client: ClientSpec, recorded: Mapping[str, str], file: Path) -> None:
    """Check that options agree with the fields that the clients' files contain.

    Raises:
        SpecError: names the option.
    """
    for field, text in recorded.items():
        if getattr(client, field) != float(text):
            raise SpecError(
                f"--{field.replace('_', '-')} is {getattr(client, field)}, but {file} was recorded "
                f"with {text}; leave the option out"
            )
