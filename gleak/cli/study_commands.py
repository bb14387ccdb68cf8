"""Commands for studies: ``validate``, ``adopt``, ``plan`` and ``rehearse``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from gleak.cli.common import CONFIG, WIDTH, Add, add_config_option, complain, read_settings
from gleak.cli.completion import offer, studies
from gleak.core.errors import GleakError, SpecError, nearest

if TYPE_CHECKING:
    from gleak.core.settings import Settings
    from gleak.studies.estimate import Plan
    from gleak.studies.machine import Machine
    from gleak.studies.study import Study

STUDIES = Path("studies")
CONFIGURED = "files or names; default as configured"
OUTCOMES = "results/studies/*/*/searches/*/chosen.yaml"


def add_study_commands(add: Add) -> None:
    """Add the commands for studies.

    Args:
        add: adds a command by its name, function and help.
    """
    command = add("validate", run_validate, "check studies at every scale without running them")
    several: dict[str, Any] = {"nargs": "*", "metavar": "STUDY"}
    text = "files or names; default all of studies/"
    offer(command.add_argument("studies", **several, help=text), studies)
    add_config_option(command)
    command = add("adopt", run_adopt, "use the hyperparameters selected by searches in studies")
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help=f"{OUTCOMES} of snakemake searches"
    )
    command = add("rehearse", run_rehearse, "run all stages without data on a virtual GPU")
    offer(command.add_argument("studies", **several, help=CONFIGURED), studies)
    add_scale_option(command)
    command.add_argument("--grid", action="append", metavar="GRID", dest="grids", help="only this")
    text = "memory of the GPU in gigabytes; default 80"
    command.add_argument("--memory", type=float, default=80.0, metavar="GB", help=text)
    add_config_option(command)
    command = add("plan", run_plan, "estimate cells, jobs, hours and gigabytes of studies")
    offer(command.add_argument("studies", **several, help=CONFIGURED), studies)
    add_scale_option(command)
    command.add_argument("--grids", action="store_true", help="also each grid, data and refusals")
    text = "measure the speed of this machine before, for this and later estimates"
    command.add_argument("--measure", action="store_true", help=text)
    add_config_option(command)


def add_scale_option(command: ArgumentParser) -> None:
    """Add the option for another scale than the configured one."""
    command.add_argument("--scale", metavar="SCALE", help="quick, small or paper")


def run_validate(arguments: Namespace) -> int:
    """Run ``gleak validate [STUDY ...]``; report the errors of all files before exiting with 1.

    Data are searched at the configured scale and in the configured folder, or with the default
    configuration if there is no file.
    """
    from gleak.core.settings import Settings
    from gleak.studies.study import load_study
    from gleak.studies.validation import check_data, describe_every_scale, examine_study

    given = arguments.config != CONFIG or arguments.config.is_file()
    settings = read_settings(arguments.config, {}) if given else Settings(studies=[])
    files = [study_file(text) for text in arguments.studies] or sorted(STUDIES.glob("*.yaml"))
    if not files:
        raise SpecError(
            f"no {STUDIES}/*.yaml here; name files, or change to the folder of the Snakefile"
        )
    faults = 0
    for file in files:
        try:
            study = load_study(file)
            study.check_choices()
            study = examine_study(study, settings.data_dir)
            check_data(study, settings)
            checks = describe_every_scale(study, settings.data_dir)
            print("\n".join([f"{file}: ok", describe_study(study), *checks, ""]))
        except GleakError as error:
            complain(error)
            faults += 1
    return min(faults, 1)


def describe_study(study: Study) -> str:
    """Describe the cells of all grids at all scales, the figures and the finished searches."""
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


def run_adopt(arguments: Namespace) -> int:
    """Run ``gleak adopt FILE ...``."""
    from gleak.studies.search.adopt import adopt

    for outcome in adopt(arguments.files, STUDIES):
        place = f"{outcome.study} ({outcome.scale}), search {outcome.search}"
        print(f"{place}: {outcome.summary}")
    return 0


def run_plan(arguments: Namespace) -> int:
    """Run ``gleak plan [STUDY ...] [--scale SCALE] [--grids] [--measure] [--config FILE]``."""
    from gleak.studies.estimate import (
        TOGETHER,
        describe_assumptions,
        describe_searches,
        plan_study,
        show,
    )
    from gleak.studies.machine import Machine, measure_speed, speed_file, write_speed

    settings, studies = read_studies(arguments)
    if arguments.measure:
        write_speed(measure_speed(), speed_file())
    machine = Machine.configured(settings)
    plans = {study.name: plan_study(study, settings) for study in studies}
    totals = {name: found[TOGETHER] for name, found in plans.items()}
    if len(totals) > 1:
        totals[TOGETHER] = frozenset().union(*totals.values())
    print(f"{show(totals, settings.scale, machine)}\n")
    for study in studies:
        if arguments.grids:
            print(f"{describe_grids(study, plans[study.name], settings, machine)}\n")
        if searches := describe_searches(study, settings, machine):
            print(f"{study.name}: {searches}\n")
        for line in study.substitutes(settings.scale):
            print(f"{study.name}: {line}")
    print(fill(describe_assumptions(machine), WIDTH))
    return 0


def run_rehearse(arguments: Namespace) -> int:
    """Run ``gleak rehearse [STUDY ...] [--scale SCALE] [--grid GRID] [--memory GB]``."""
    from gleak.cli.rehearsal_report import rehearse_studies

    settings, studies = read_studies(arguments)
    return rehearse_studies(studies, settings, arguments.grids or [], arguments.memory)


def read_studies(arguments: Namespace) -> tuple[Settings, list[Study]]:
    """Return the configuration with the options of a command, and its studies at that scale."""
    from gleak.studies.study import load_study

    given = {"scale": arguments.scale, "studies": arguments.studies}
    settings = read_settings(
        arguments.config, {key: value for key, value in given.items() if value}
    )
    files = [study_file(text) for text in settings.studies]
    studies = [load_study(file).examined(settings.scale, settings.data_dir) for file in files]
    return settings, studies


def describe_grids(
    study: Study, plans: Mapping[str, Plan], settings: Settings, machine: Machine
) -> str:
    """Describe the plan of each grid of a study, its data and its refused cells."""
    from gleak.studies.estimate import TOGETHER, describe_jobs, show
    from gleak.studies.validation import describe_checks

    checks = describe_checks(study, settings.scale, settings.data_dir)
    jobs = fill(describe_jobs(plans[TOGETHER]), WIDTH)
    title = f"{study.name} ({settings.scale}): {study.title}"
    return "\n".join([title, show(plans, "grid", machine), jobs, *checks])


def study_file(text: str) -> Path:
    """Return the file of a study, given by its path or by its name in ``studies/``.

    Raises:
        SpecError: there is no study of that name.
    """
    path = Path(text)
    if path.suffix == ".yaml":
        return path
    known = {file.stem: file for file in STUDIES.glob("*.yaml")}
    if text not in known:
        raise SpecError(f"unknown study {text!r} in {STUDIES}/; {nearest(text, known)}")
    return known[text]
