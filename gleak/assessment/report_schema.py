"""JSON Schemas of deployment files and of ``report.json``.

``python -m gleak.assessment.report_schema`` writes them: ``deployment.schema.json`` and
``report.schema.json``.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from gleak.assessment.deployment import Deployment
from gleak.assessment.findings import Report
from gleak.studies.json_schema import DRAFT, text_of


def schema_files() -> dict[str, str]:
    """Return the content of every schema's file, by its path in the repository."""
    return {
        "deployment.schema.json": _text(Deployment),
        "report.schema.json": _text(Report),
    }


def _text(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs", {})
    return text_of({"$schema": DRAFT, **schema, "definitions": definitions})


if __name__ == "__main__":
    for path, text in schema_files().items():
        Path(path).write_text(text, encoding="utf-8")
