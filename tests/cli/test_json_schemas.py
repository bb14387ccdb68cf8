from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from gleak.assessment.deployment import TEMPLATE
from gleak.cli.json_schemas import schema_files

ROOT = Path(__file__).parents[2]
STUDY, CONFIG = "studies/study.schema.json", "config.schema.json"
DEPLOYMENT = "deployment.schema.json"
SCHEMAS = {path: Draft7Validator(json.loads(text)) for path, text in schema_files().items()}
FILES = [(path.relative_to(ROOT).as_posix(), STUDY) for path in (ROOT / "studies").glob("*.yaml")]


@pytest.mark.parametrize(("file", "schema"), [*FILES, ("config.yaml", CONFIG)])
def test_files_name_their_schema_and_keep_it(file: str, schema: str) -> None:
    text = (ROOT / file).read_text()
    assert text.startswith(f"# yaml-language-server: $schema={Path(schema).name}\n")
    assert faults(schema, yaml.safe_load(text)) == []


def test_the_template_of_deployments_keeps_its_schema() -> None:
    assert faults(DEPLOYMENT, yaml.safe_load(TEMPLATE.format(name="deployment.yaml"))) == []


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (CONFIG, {"studies": ["cpl"], "scael": "quick"}),
        (CONFIG, {"studies": ["cpl"], "scale": "huge"}),
        (STUDY, {"title": "t", "paper": "p", "grids": {}}),
        (STUDY, {"title": "t", "paper": "p", "figures": {}, "grids": {"a": {"attak": "cpl"}}}),
        (STUDY, {"title": "t", "paper": "p", "grids": {}, "figures": {"f": {"kind": "lin"}}}),
        (STUDY, {"title": "t", "paper": "p", "grids": {}, "figures": {}, "base": {"data": "x"}}),
        (DEPLOYMENT, {"model": "lenet"}),
        (DEPLOYMENT, {"model": "a", "data": "b", "modl": "c"}),
    ],
)
def test_what_is_wrong_is_found(schema: str, content: dict[str, Any]) -> None:
    assert len(faults(schema, content)) == 1


def faults(schema: str, content: Any) -> list[str]:
    return [error.message for error in SCHEMAS[schema].iter_errors(content)]
