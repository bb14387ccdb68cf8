"""The pages of recorded runs, written from their committed scores before pages are read."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from gleak.cli.main import main
from gleak.figures.recorded import CONDITIONS

ROOT = Path(__file__).parents[2]


def write_records(app: Sphinx) -> None:
    """Write ``results/<study>/<scale>.md`` for each record, as ``builder-inited`` expects."""
    folder = Path(app.srcdir, "results")
    studies = {path.parts[-3] for path in folder.glob(f"*/*/{CONDITIONS}")}
    for study in sorted(studies):
        file = ROOT / "studies" / f"{study}.yaml"
        if main(["results", str(file), "--folder", str(folder)]):
            raise RuntimeError(f"gleak results {file}: failed")


def describe_record(study: str) -> str:
    """Return a link to the page of a study's record, which the repository does not have."""
    return f"On this site: [all verdicts, tables and pictures]({study}/small.md)."
