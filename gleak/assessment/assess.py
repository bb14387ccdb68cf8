"""An assessment: from a deployment file to the report."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gleak.artifacts.atomic import atomic
from gleak.assessment.assembling import assemble
from gleak.assessment.attack_choice import Choice, choose
from gleak.assessment.deployment import read_deployment
from gleak.assessment.effort import choose_effort
from gleak.assessment.findings import Report
from gleak.assessment.generated_study import Effort, study_text
from gleak.assessment.measured import Measured
from gleak.assessment.report_page import render
from gleak.assessment.resolved import Resolved, resolve
from gleak.assessment.workflow_run import WorkflowRun
from gleak.core.errors import SpecError
from gleak.core.settings import Settings
from gleak.core.spec import FILE_NAME
from gleak.studies.study import load_study

PAGE, NUMBERS, COPY, CONFIG, LOG = (
    "report.html",
    "report.json",
    "deployment.yaml",
    "config.yaml",
    "run.log",
)
MANY_MINUTES = 99


@dataclass(frozen=True)
class Assessment:
    """A checked deployment, and all that is decided before anything is computed.

    Args:
        name: of the deployment.
        text: of its file.
        source: folder of its file.
        folder: of the report.
        resolved: its specs.
        choice: the attacks.
        effort: size of the cells.
        minutes: estimated time on one core.
        study: text of the generated study.
    """

    name: str
    text: str
    source: Path
    folder: Path
    resolved: Resolved
    choice: Choice
    effort: Effort
    minutes: float
    study: str

    @property
    def study_file(self) -> Path:
        """Path of the generated study."""
        return self.folder / f"assessment-{self.name}.yaml"

    @property
    def log(self) -> Path:
        """Path of all that Snakemake prints."""
        return self.folder / LOG

    def summary(self) -> str:
        """Describe what will be run."""
        attacks = ", ".join(str(each.attack) for each in self.choice.chosen)
        return (
            f"{self.name}: {self.effort}; attacks: {attacks}; about {duration(self.minutes)} on "
            f"one core\n{self.study_file}"
        )

    def write(self) -> None:
        """Write the study, its configuration and a copy of the deployment."""
        settings = self.resolved.settings.model_copy(update={"studies": [str(self.study_file)]})
        config = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        files = {COPY: self.text, CONFIG: config, self.study_file.name: self.study}
        for name, content in files.items():
            with atomic(self.folder / name) as temporary:
                temporary.write_text(content, encoding="utf-8")

    def run(self, snakefile: Path, options: Sequence[str]) -> Report | None:
        """Run the workflow, and write the report.

        Args:
            snakefile: of the workflow.
            options: further words of Snakemake's command line.

        Returns:
            The report; None if the options kept Snakemake from running, as ``--dry-run`` does.

        Raises:
            GleakError: the run failed or was interrupted.
        """
        settings = self.resolved.settings
        study = load_study(self.study_file, [settings.scale])
        study = study.examined(settings.scale, settings.data_dir)
        unscored = self.resolved.unscored(each.attack for each in self.choice.honest)
        measured = Measured(study, settings.scale, settings.results_dir, unscored)
        workflow = WorkflowRun(snakefile, self.folder / CONFIG, self.log, self.source, options)
        if not workflow.make(measured.targets):
            return None
        report = assemble(self.name, self.resolved, self.choice, self.effort, measured)
        pages = {
            NUMBERS: report.model_dump_json(indent=1) + "\n",
            PAGE: render(report, measured),
        }
        for name, content in pages.items():
            with atomic(self.folder / name, private=name == PAGE) as temporary:
                temporary.write_text(content, encoding="utf-8")
        return report


def duration(minutes: float) -> str:
    """Return a duration with its unit, to two digits."""
    if minutes < MANY_MINUTES:
        return f"{minutes:.2g} minutes"
    return f"{float(f'{minutes / 60:.2g}'):g} hours"


def prepare(
    file: Path, output: Path | None, settings: Settings, fail_above: Mapping[str, float]
) -> Assessment:
    """Read and check a deployment, and decide what to run.

    Modules of the user's networks are searched in the folder of the file.

    Args:
        file: the deployment.
        output: folder of the report; None: ``<name>-report``.
        settings: configuration.
        fail_above: thresholds in place of those of the deployment, if there are any.

    Raises:
        SpecError: the file is not valid, what it describes cannot be assessed, or the folder of the
            report belongs to another deployment.
    """
    if not re.fullmatch(FILE_NAME, file.stem):
        raise SpecError(
            f"{file}: the name is part of the report's; use letters, digits, '_', '-' and '.'"
        )
    deployment = read_deployment(file)
    if fail_above:
        deployment = deployment.model_copy(update={"thresholds": dict(fail_above)})
    folder, text = output or Path(f"{file.stem}-report"), file.read_text(encoding="utf-8")
    check_folder(folder, text)
    source = file.resolve().parent
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    settings = settings.model_copy(update={"seed": deployment.seed, "scale": "quick"})
    resolved = resolve(deployment, source, settings)
    return _decide(file.stem, text, source, folder, resolved)


def _decide(name: str, text: str, source: Path, folder: Path, resolved: Resolved) -> Assessment:
    def written(effort: Effort) -> str:
        return study_text(name, resolved, choose(resolved, effort.iterations), effort)

    effort, minutes = choose_effort(resolved, written)
    choice = choose(resolved, effort.iterations)
    return Assessment(
        name, text, source, folder, resolved, choice, effort, minutes, written(effort)
    )


def check_folder(folder: Path, text: str) -> None:
    """Raise an error if the folder of a report is not empty and of another deployment.

    Args:
        folder: may be missing.
        text: content of the deployment file.

    Raises:
        SpecError: names the folder.
    """
    copy = folder / COPY
    if copy.is_file() and copy.read_text(encoding="utf-8") == text:
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(
            f"{folder} exists, and is not the report of this deployment as it is now; give another "
            "folder with --output, or delete it"
        )
