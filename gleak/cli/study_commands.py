"""Commands for studies: ``validate``, ``adopt`` and ``plan``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from gleak.cli.catalog import align
from gleak.cli.common import (
    WIDTH,
    add_config_option,
    add_scale_option,
    complain,
    read_settings,
    settings_here,
)
from gleak.cli.completion import offer, studies
from gleak.core.errors import GleakError, SpecError, nearest
from gleak.core.numbers import DASH
from gleak.core.settings import Scale, Settings
from gleak.studies import estimate, validation
from gleak.studies.estimate import TOGETHER, Plan, show
from gleak.studies.machine import Machine, measure_speed, speed_file, write_speed
from gleak.studies.search.adopt import adopt
from gleak.studies.study import Study, load_study

STUDIES = Path("studies")
OUTCOMES = "results/studies/*/*/searches/*/chosen.yaml"


def add_validate(command: ArgumentParser) -> None:
    add_studies(command, "files or names; default all of studies/")
    add_config_option(command)


def add_studies(
    command: ArgumentParser, text: str = "files or names; default as configured"
) -> None:
    offer(command.add_argument("studies", nargs="*", metavar="STUDY", help=text), studies)


def run_validate(arguments: Namespace) -> int:
    """Report the errors of all files before exiting with 1; data are searched as configured."""
    settings = settings_here(arguments.config)
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
            study = validation.examine_study(study, settings.data_dir)
            validation.check_data(study, settings)
            checks = validation.describe_every_scale(study, settings.data_dir)
            print("\n".join([f"{file}: ok", describe_study(study), *checks, ""]))
        except GleakError as error:
            complain(error)
            faults += 1
    return min(faults, 1)


def describe_study(study: Study) -> str:
    """Describe the cells of all grids at all scales, the figures and the finished searches."""
    cells = [
        {"grid": name, **{f"{scale} cells": _count(study, name, scale) for scale in study.scales}}
        for name in study.grids
    ]
    lines = [
        align(cells) if cells else "no grids",
        f"figures: {', '.join(study.figures) or 'none'}",
    ]
    for name, scales in study.searches.items():
        chosen = [scale for scale, search in scales.items() if search.chosen]
        lines.append(f"search {name}: chosen at {', '.join(chosen) or 'no scale'}")
    return "\n".join(lines)


def _count(study: Study, grid: str, scale: Scale) -> str:
    """Return the number of cells of a grid, a dash if the scale does not have it."""
    return str(len(study.grids[grid][scale].cells)) if grid in study.at(scale).grids else DASH


def add_adopt(command: ArgumentParser) -> None:
    text = f"{OUTCOMES} of snakemake searches"
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help=text)


def run_adopt(arguments: Namespace) -> int:
    for outcome in adopt(arguments.files, STUDIES):
        place = f"{outcome.study} ({outcome.scale}), search {outcome.search}"
        print(f"{place}: {outcome.summary}")
    return 0


def add_plan(command: ArgumentParser) -> None:
    add_studies(command)
    add_scale_option(command)
    command.add_argument("--grids", action="store_true", help="also each grid, data and refusals")
    text = "measure the speed of this machine before, for this and later estimates"
    command.add_argument("--measure", action="store_true", help=text)
    add_config_option(command)


def run_plan(arguments: Namespace) -> int:
    settings, planned = read_studies(arguments)
    if arguments.measure:
        write_speed(measure_speed(), speed_file())
    machine = Machine.configured(settings)
    plans = {study.name: estimate.plan_study(study, settings) for study in planned}
    totals = {name: plan[TOGETHER] for name, plan in plans.items()}
    if len(totals) > 1:
        totals[TOGETHER] = frozenset().union(*totals.values())
    print(f"{show(totals, settings.scale, machine)}\n")
    for study in planned:
        if arguments.grids:
            print(f"{describe_grids(study, plans[study.name], settings, machine)}\n")
        if searches := estimate.describe_searches(study, settings, machine):
            print(f"{study.name}: {searches}\n")
        for line in study.substitutes(settings.scale):
            print(f"{study.name}: {line}")
    print(fill(estimate.describe_assumptions(machine), WIDTH))
    return 0


def read_studies(arguments: Namespace) -> tuple[Settings, list[Study]]:
    """Return the configuration with the options of a command, and its studies at that scale."""
    given = {"scale": arguments.scale, "studies": arguments.studies}
    settings = read_settings(
        arguments.config, {key: value for key, value in given.items() if value}
    )
    files = [study_file(text) for text in settings.studies]
    if not files:
        raise SpecError(f"{arguments.config} names no studies; name some, as files or names")
    studies = [
        load_study(file).at(settings.scale).examined(settings.scale, settings.data_dir)
        for file in files
    ]
    return settings, studies


def describe_grids(
    study: Study, plans: Mapping[str, Plan], settings: Settings, machine: Machine
) -> str:
    """Describe the plan of each grid of a study, its data and its refused cells."""
    checks = validation.describe_checks(study, settings.scale, settings.data_dir)
    jobs = fill(estimate.describe_jobs(plans[TOGETHER]), WIDTH)
    title = f"{study.name} ({settings.scale}): {study.title}"
    return "\n".join([title, show(plans, "grid", machine), jobs, *checks])


def study_file(text: str) -> Path:
    """Return the file of a study, given by its path or by its name in ``studies/``."""
    path = Path(text)
    if path.suffix == ".yaml":
        return path
    known = {file.stem: file for file in STUDIES.glob("*.yaml")}
    if text not in known:
        raise SpecError(f"unknown study {text!r} in {STUDIES}/; {nearest(text, known)}")
    return known[text]
