"""The command ``gleak``: what there is, what a file holds, whether studies are sound, their cost.

Two commands write what the workflow reads: ``adopt``, which takes over what searches chose, into a
study's folder, and ``import``, which takes in captured updates, into the user's data.

No command imports torch but ``import`` and ``audit --data``, which compute gradients, and
``validate`` and ``plan`` of studies with a user's own model, which they build. What a command needs
is imported when it runs, so that each starts as fast as it can.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleak import __version__
from gleak.core.errors import GleakError, SpecError, nearest

if TYPE_CHECKING:
    from gleak.core.settings import Settings
    from gleak.experiments.study import Study

CONFIG = Path("config.yaml")
STUDIES = Path("studies")
ALARMED = 3
PROTOCOL = {
    "batch_size": "samples of each client",
    "local_steps": "steps of its training; 1",
    "local_lr": "learning rate of a step",
    "mini_batch": "samples of a step; all",
    "loss": "cross_entropy, or nll_raw",
    "split": "test; train: these victims are for searches",
}
"""Fields of the client that ``gleak import`` is told."""
OUTCOMES = "results/studies/*/*/searches/*/chosen.yaml"
Command = Callable[[Namespace], int]


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        words: of the command line after ``gleak``; None for those this process was started with.

    Returns:
        The exit code: 0, or 1 after an error, which is one line on stderr; of ``audit``, 3 where
        it alarms.
    """
    parser = build_parser()
    chosen = parser.parse_args(words)
    if chosen.run is None:
        parser.print_help()
        return 0
    try:
        code: int = chosen.run(chosen)
    except GleakError as error:
        _complain(error)
        return 1
    return code


def build_parser() -> ArgumentParser:
    """All commands and their options."""
    parser = ArgumentParser(prog="gleak", description="Measure gradient leakage. See README.md.")
    parser.add_argument("--version", action="version", version=f"gleak {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    command = add("list", run_list, "everything that can be named in a study")
    command.add_argument("kind", nargs="?", metavar="KIND", help="dataset, attack, metric, ...")
    command = add("describe", run_describe, "what a name means, its fields and their defaults")
    command.add_argument("name", metavar="NAME", help="a name, or a spec such as cpl+restarts=2")
    command = add("inspect", run_inspect, "what an artifact holds, or one of its images")
    command.add_argument("file", type=Path, metavar="FILE", help="any .h5 of a run")
    command.add_argument("--image", type=int, metavar="N", help="save the image of sample N")
    command.add_argument("--output", type=Path, metavar="PNG", help="where; ./<stem>-<N>.png")
    command = add("audit", run_audit, "whether parameters look crafted; exits with 3 if they do")
    command.add_argument("file", type=Path, metavar="FILE", help="parameters.h5 or model.h5")
    command.add_argument("--data", type=Path, metavar="DATASET", help="dataset.h5, to try them on")
    add_import_options(add("import", run_import, "take in updates that were captured elsewhere"))
    command = add("validate", run_validate, "check studies at every scale; runs nothing")
    command.add_argument("studies", nargs="*", metavar="STUDY", help="files; all of studies/")
    command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help="config.yaml")
    command = add("adopt", run_adopt, "let studies use what their searches chose")
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help=f"{OUTCOMES} of snakemake searches"
    )
    command = add("plan", run_plan, "cells, jobs, hours and gigabytes of studies; runs nothing")
    command.add_argument("studies", nargs="*", metavar="STUDY", help="those of the configuration")
    command.add_argument("--scale", metavar="SCALE", help="quick, small or paper")
    command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help="config.yaml")
    return parser


def add_import_options(command: ArgumentParser) -> None:
    """The options of ``gleak import``; state dicts are safetensors."""
    command.add_argument("name", metavar="NAME", help="of the capture, as it stands in paths")
    command.add_argument("--dataset", required=True, metavar="SPEC", help="as in a path")
    command.add_argument("--model", required=True, metavar="SPEC", help="as in a path")
    files: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    command.add_argument("--before", required=True, **files, help="what was broadcast")
    sent = command.add_mutually_exclusive_group(required=True)
    sent.add_argument("--after", nargs="+", **files, help="of each client, after its training")
    sent.add_argument("--gradients", nargs="+", **files, help="of each client, if it sent these")
    command.add_argument(
        "--truth", nargs="+", default=[], **files, help="of each client: inputs, labels"
    )
    for field, text in PROTOCOL.items():
        option, required = f"--{field.replace('_', '-')}", field == "batch_size"
        command.add_argument(option, required=required, metavar="VALUE", help=text)
    command.add_argument("--replace", action="store_true", help="the capture of that name")
    command.add_argument("--data-dir", metavar="FOLDER", help="that of the configuration")
    command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help="config.yaml")


def run_list(chosen: Namespace) -> int:
    """``gleak list [KIND]``."""
    from gleak.cli.catalog import list_registered

    print(list_registered(chosen.kind))
    return 0


def run_describe(chosen: Namespace) -> int:
    """``gleak describe NAME``."""
    from gleak.cli.catalog import describe

    print(describe(chosen.name))
    return 0


def run_inspect(chosen: Namespace) -> int:
    """``gleak inspect FILE [--image N] [--output PNG]``."""
    from gleak.artifacts.inspect import describe_file, save_image

    if chosen.image is not None:
        output = chosen.output or Path(f"{chosen.file.stem}-{chosen.image}.png")
        print(save_image(chosen.file, chosen.image, output))
    elif chosen.output is not None:
        raise SpecError("--output names the picture of one image; say which with --image N")
    else:
        print(describe_file(chosen.file))
    return 0


def run_audit(chosen: Namespace) -> int:
    """``gleak audit FILE [--data DATASET]``."""
    from gleak.cli.audit_report import audit_file

    report = audit_file(chosen.file, chosen.data)
    print(report)
    return ALARMED if report.alarms else 0


def run_import(chosen: Namespace) -> int:
    """``gleak import NAME --dataset SPEC --model SPEC --before FILE --after FILE ...``."""
    from gleak.captures.importing import Files, import_capture
    from gleak.captures.report import captured_cell, describe_capture

    changes = {"data_dir": chosen.data_dir} if chosen.data_dir else {}
    settings = read_settings(chosen.config, changes)
    given = {field: getattr(chosen, field) for field in PROTOCOL}
    files = Files(chosen.before, chosen.after or chosen.gradients, chosen.truth)
    cell = captured_cell(
        chosen.name,
        chosen.dataset,
        chosen.model,
        victims=len(files.sent),
        sends="weights" if chosen.after else "gradient",
        **{field: value for field, value in given.items() if value is not None},
    )
    capture = import_capture(cell, files, settings.data_dir, replace=chosen.replace)
    print(describe_capture(cell, capture, settings.results_dir, changes))
    return 0


def run_validate(chosen: Namespace) -> int:
    """``gleak validate [STUDY ...]``: every fault of every file before it exits with 1.

    Data are looked for at the scale of the configuration, in its folder; without one in the
    default's.
    """
    from gleak.core.settings import Settings
    from gleak.experiments.study import load_study
    from gleak.experiments.validation import check_data, describe_every_scale, examine_study

    given = chosen.config != CONFIG or chosen.config.is_file()
    settings = read_settings(chosen.config, {}) if given else Settings(studies=[])
    files = [study_file(text) for text in chosen.studies] or sorted(STUDIES.glob("*.yaml"))
    if not files:
        raise SpecError(f"no {STUDIES}/*.yaml here; name files, or go to where the Snakefile is")
    faults = 0
    for file in files:
        try:
            study = load_study(file)
            study.check_choices()
            study = examine_study(study, settings.data_dir)
            check_data(study, settings.scale, settings.data_dir)
            checks = describe_every_scale(study, settings.data_dir)
            print("\n".join([f"{file}: ok", describe_study(study), *checks, ""]))
        except GleakError as error:
            _complain(error)
            faults += 1
    return min(faults, 1)


def describe_study(study: Study) -> str:
    """The cells of every grid at every scale, the figures, and what searches chose."""
    from gleak.cli.catalog import align

    cells = [
        {"grid": name, **{f"{scale} cells": str(len(grid.cells)) for scale, grid in grids.items()}}
        for name, grids in study.grids.items()
    ]
    lines = [
        align(cells) if cells else "no grids",
        f"figures: {', '.join(study.figures) or 'none'}",
    ]
    for name, scales in study.searches.items():
        chosen = [scale for scale, search in scales.items() if search.chosen]
        lines.append(f"search {name}: chosen at {', '.join(chosen) or 'no scale'}")
    return "\n".join(lines)


def run_adopt(chosen: Namespace) -> int:
    """``gleak adopt FILE ...``."""
    from gleak.experiments.search.adopt import adopt

    for outcome in adopt(chosen.files, STUDIES):
        place = f"{outcome.study} ({outcome.scale}), search {outcome.search}"
        print(f"{place}: {outcome.summary}")
    return 0


def run_plan(chosen: Namespace) -> int:
    """``gleak plan [STUDY ...] [--scale SCALE] [--config FILE]``."""
    from gleak.experiments.estimate import ROUGH, TOGETHER, describe_searches, plan_study, show
    from gleak.experiments.study import load_study
    from gleak.experiments.validation import describe_checks

    given = {"scale": chosen.scale, "studies": chosen.studies}
    settings = read_settings(chosen.config, {key: value for key, value in given.items() if value})
    totals = {}
    for text in settings.studies:
        study = load_study(study_file(text)).examined(settings.scale, settings.data_dir)
        checks = describe_checks(study, settings.scale, settings.data_dir)
        plans = plan_study(study, settings)
        totals[study.name] = plans[TOGETHER]
        print(f"{study.name} ({settings.scale}): {study.title}\n{show(plans)}\n")
        if checks:
            print("\n".join([*checks, ""]))
        if searches := describe_searches(study, settings):
            print(f"{searches}\n")
    if len(totals) > 1:
        together = frozenset().union(*totals.values())
        print(f"all studies ({settings.scale})\n{show({**totals, TOGETHER: together})}\n")
    print(ROUGH)
    return 0


def read_settings(path: Path, changes: dict[str, Any]) -> Settings:
    """The configuration, with some keys set anew.

    Raises:
        SpecError: no such file, not a mapping, or a key or value that is not valid.
    """
    from gleak.core.settings import Settings
    from gleak.core.yaml_input import load_mapping

    if not path.is_file():
        raise SpecError(
            f"{path}: no such file; go to where the Snakefile is, or give --config FILE"
        )
    content = load_mapping(path, "configuration", "studies, scale, ...")
    return Settings.read({**content, **changes})


def study_file(text: str) -> Path:
    """The file of a study given by its path or by its name in ``studies/``.

    Raises:
        SpecError: no study of that name.
    """
    path = Path(text)
    if path.suffix == ".yaml":
        return path
    known = {file.stem: file for file in STUDIES.glob("*.yaml")}
    if text not in known:
        raise SpecError(f"unknown study {text!r} in {STUDIES}/; {nearest(text, known)}")
    return known[text]


def _complain(error: GleakError) -> None:
    """One line, whatever a library put into its message."""
    print("gleak:", *str(error).split(), file=sys.stderr)
