"""Command ``gleak assess``: a report of what a deployment's updates leak."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from gleak.assessment.deployment import write_template
from gleak.cli.common import EXIT_FINDING, EXIT_INCONCLUSIVE, complain, settings_here, warn
from gleak.core.errors import GleakError, SpecError, needs_extra
from gleak.runtime.workflow import find_snakefile

DEPLOYMENT = Path("deployment.yaml")
EXIT_BAD_FILE = 2


def add_assess(command: ArgumentParser) -> None:
    text = "description of the deployment; default deployment.yaml"
    command.add_argument(
        "file", nargs="?", type=Path, default=DEPLOYMENT, metavar="FILE", help=text
    )
    text = "words of Snakemake's command line, after --"
    command.add_argument("options", nargs="*", metavar="OPTION", help=text)
    text = "write a description with comments, to be edited"
    command.add_argument("--init", action="store_true", help=text)
    text = "check the description, and say what would be run"
    command.add_argument("--plan", action="store_true", help=text)
    text = "folder of the report; default <name of FILE>-report"
    command.add_argument("--output", type=Path, metavar="DIR", help=text)
    text = "exit with 3 if a client is above it, whatever the verdict; may be repeated"
    command.add_argument(
        "--fail-above", action="append", default=[], metavar="METRIC=VALUE", help=text
    )
    text = "Snakefile of gleak; default that of the clone that gleak is installed from"
    command.add_argument("--snakefile", type=Path, metavar="FILE", help=text)


def run_assess(arguments: Namespace) -> int:
    with needs_extra("workflow"):
        from gleak.assessment.assess import PAGE, prepare

    file, options = arguments.file, arguments.options
    if str(file).startswith("-"):  # argparse takes the first of Snakemake's words for the file
        file, options = DEPLOYMENT, [str(file), *options]
    try:
        if arguments.init:
            write_template(file)
            print(file)
            return 0
        snakefile = find_snakefile(arguments.snakefile)
        thresholds = read_thresholds(arguments.fail_above)
        assessment = prepare(file, arguments.output, settings_here(), thresholds)
    except GleakError as error:
        complain(SpecError(f"{file}: {str(error).removeprefix(f'{file}: ')}"))
        return EXIT_BAD_FILE
    print(assessment.summary(), flush=True)
    for text in assessment.warnings():
        warn(text)
    if arguments.plan:
        return 0
    assessment.write()
    sized = assessment.at_measured_speed(snakefile, options)
    if sized.generated.effort != assessment.generated.effort:
        print(f"at the measured speed: {sized.size()}", flush=True)
    assessment = sized
    assessment.write()
    print(assessment.study_file, flush=True)
    report = assessment.run(snakefile, options)
    if report is None:
        print(assessment.log.read_text(encoding="utf-8"), "nothing was run, so no report", sep="\n")
        return 0
    print(f"{report.headline}: {report.meaning}")
    for line in report.lines:
        print(f"  {line}")
    print(assessment.folder / PAGE)
    if report.verdict == "not measured":
        raise GleakError(f"{file}: nothing was measured; see {assessment.folder / PAGE}")
    if report.exposed:
        return EXIT_FINDING
    return EXIT_INCONCLUSIVE if report.verdict == "inconclusive" else 0


def read_thresholds(texts: Sequence[str]) -> dict[str, float]:
    thresholds = {}
    for text in texts:
        metric, _, value = text.rpartition("=")
        try:
            thresholds[metric] = float(value if metric else "none")
        except ValueError:
            raise SpecError(f"--fail-above {text}: write METRIC=VALUE, such as ssim=0.5") from None
    return thresholds
