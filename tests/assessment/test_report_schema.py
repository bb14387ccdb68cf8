from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from gleak.assessment.deployment import TEMPLATE
from gleak.assessment.report_schema import schema_files

ROOT = Path(__file__).parents[2]


def faults(schema: str, content: Any) -> list[str]:
    validator = Draft7Validator(json.loads((ROOT / schema).read_text()))
    return [error.message for error in validator.iter_errors(content)]


def test_schemas_are_those_of_the_code() -> None:
    """If not: ``python -m gleak.assessment.report_schema``."""
    for path, text in schema_files().items():
        assert (ROOT / path).read_text() == text, path


def test_the_template_keeps_its_schema() -> None:
    content = yaml.safe_load(TEMPLATE.format(name="deployment.yaml"))
    assert faults("deployment.schema.json", content) == []


@pytest.mark.parametrize("content", [{"model": "lenet"}, {"model": "a", "data": "b", "modl": "c"}])
def test_what_is_wrong_is_found(content: dict[str, str]) -> None:
    assert len(faults("deployment.schema.json", content)) == 1
