"""Command ``gleak import``: updates captured outside of gleak."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from gleak.assessment.resolved import dataset_of, model_of
from gleak.captures.importing import captured_cell, describe_capture, import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import Files, RoundFolder, recorded_fields, rounds_in
from gleak.cli.common import EXIT_FINDING, add_config_option, settings_here
from gleak.cli.completion import offer, specs_of
from gleak.core.errors import SpecError
from gleak.core.spec import changed, field_text
from gleak.studies.cell import Cell

PROTOCOL = {
    "batch_size": "samples per client",
    "local_steps": "local steps; default 1",
    "local_lr": "learning rate of the local steps",
    "mini_batch": "samples per step; default all",
    "loss": "cross_entropy (default) or nll_raw",
    "batch_norm": "evaluation (default), or training: clients normalised by their batches",
    "optimizer": "sgd (default), sgd~momentum=0.9, adam, ...: gleak list client_optimizer",
    "schedule": "of the learning rate: constant (default), cosine, ...: gleak list schedule",
    "clip_norm": "largest norm of a step's gradient; default any",
    "clip_value": "largest magnitude of a value of a step's gradient; default any",
    "proximal": "factor of FedProx's term; default none",
    "label_smoothing": "share of the label that is spread over all classes; default none",
    "order": "fixed (default), or shuffled: samples have another order in every epoch",
    "drop_last": "true: an epoch leaves out a last smaller batch; default false",
    "state": "zero (default), or kept: the optimiser began with the state of an earlier round",
    "autocast": "bfloat16: mixed precision; default none",
    "split": "test (default) or train (victims for searches)",
}
"""Options for the client's fields, with their help."""


def add_import(command: ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the capture, as in paths")
    for kind, other in (("dataset", "a folder of images"), ("model", "a function of yours")):
        text = f"spec of the {kind}, or {other}, as in a deployment"
        spec = command.add_argument(f"--{kind}", required=True, metavar="SPEC", help=text)
        offer(spec, specs_of(kind))
    files: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    command.add_argument("--before", **files, help="broadcast state dict")
    sent = command.add_mutually_exclusive_group(required=True)
    text = "state dict of each client after training"
    sent.add_argument("--after", nargs="+", **files, help=text)
    sent.add_argument("--gradients", nargs="+", **files, help="gradients of each client")
    text = "folder of a round, with the state dicts and what is recorded of the training"
    sent.add_argument("--round", type=Path, metavar="FOLDER", help=text)
    text = "folder of a training: each of its rounds is imported, as NAME-<number>"
    sent.add_argument("--rounds", type=Path, metavar="FOLDER", help=text)
    text = "inputs and labels of each client"
    command.add_argument("--truth", nargs="+", default=[], **files, help=text)
    for field, text in PROTOCOL.items():
        command.add_argument(f"--{field.replace('_', '-')}", metavar="VALUE", help=text)
    text = "of the clients, such as dp+sigma=0.01: gleak list defense; default none"
    offer(
        command.add_argument("--defense", default="none", metavar="SPEC", help=text),
        specs_of("defense"),
    )
    command.add_argument("--replace", action="store_true", help="replace the capture of that name")
    for option in ("data", "captures"):
        text = f"{option} folder; default as configured"
        command.add_argument(f"--{option}-dir", metavar="FOLDER", help=text)
    add_config_option(command)


def run_import(arguments: Namespace) -> int:
    """Read dataset and model as in a deployment file, modules of networks in the current folder."""
    folders = {"data_dir": arguments.data_dir, "captures_dir": arguments.captures_dir}
    changes = {key: folder for key, folder in folders.items() if folder}
    configured, here = settings_here(arguments.config), Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    settings = settings_here(arguments.config, changes)
    dataset, settings = dataset_of(arguments.dataset, here, settings)
    specs = str(dataset), str(model_of(arguments.model))
    captures = Captures(settings.captures)
    files = _files(arguments)
    cells = {name: _cell(name, *specs, files[name], arguments) for name in files}
    for name in cells:
        captures.check_new(name, replace=arguments.replace)
    changed = {key: getattr(settings, key) for key in folders}
    config = {key: folder for key, folder in changed.items() if folder != getattr(configured, key)}
    agree = True
    for name, cell in cells.items():
        capture = import_capture(
            cell, files[name], captures, settings.data_dir, replace=arguments.replace
        )
        print(describe_capture(cell, capture, settings.results_dir, config), flush=True)
        agree = agree and capture.agrees
    return 0 if agree else EXIT_FINDING


def _cell(name: str, dataset: str, model: str, files: Files, arguments: Namespace) -> Cell:
    """Return the cell of a capture, by the options and by what its files contain."""
    recorded = {} if arguments.gradients else recorded_fields(files.sent)
    options = {field: getattr(arguments, field) for field in PROTOCOL}
    given = {field: value for field, value in options.items() if value is not None}
    cell = captured_cell(
        name,
        dataset,
        model,
        arguments.defense,
        victims=len(files.sent),
        sends="gradient" if arguments.gradients else "weights",
        **{**recorded, **given},
    )
    as_recorded = changed(cell.client, recorded)
    for field in recorded:
        if getattr(cell.client, field) != getattr(as_recorded, field):
            raise SpecError(
                f"--{field.replace('_', '-')} is {field_text(cell.client, field)}, but "
                f"{files.sent[0]} was recorded with {recorded[field]}; leave the option out"
            )
    return cell


def _files(arguments: Namespace) -> dict[str, Files]:
    """Return the input files by the names of their captures."""
    name, truth = arguments.name, arguments.truth
    if arguments.round is None and arguments.rounds is None:
        if arguments.before is None:
            raise SpecError("--before is missing: give the state dict that was broadcast")
        return {name: Files(arguments.before, arguments.after or arguments.gradients, truth)}
    if arguments.before is not None:
        raise SpecError("--before: the folder of a round contains it; leave it out")
    if arguments.round is not None:
        files = RoundFolder(arguments.round).files()
        if truth and files.truth:
            raise SpecError("--truth: the folder of --round contains it; leave it out")
        return {name: Files(files.before, files.sent, truth or files.truth, files.kept)}
    if truth:
        raise SpecError("--truth: with --rounds, truth-<client>.safetensors is beside each client")
    rounds = rounds_in(arguments.rounds)
    return {f"{name}-{number}": rounds[number].files() for number in rounds}
