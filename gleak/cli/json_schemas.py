"""JSON Schemas of the files that users write, and of ``report.json``, for editors and programs.

``make schemas`` writes them beside the files: VS Code reads their path in a file's first line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gleak.assessment.deployment import Deployment
from gleak.assessment.findings import Report
from gleak.core.registry import load
from gleak.core.settings import Settings
from gleak.core.spec import FILE_NAME
from gleak.studies.cell import LEVELS
from gleak.studies.claims import QUALITY, SORTS, WORSENS
from gleak.studies.search.declaration import SearchFile
from gleak.studies.study_file import GridFile, StudyFile

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"


def study_schema() -> Schema:
    """Return the JSON Schema of a study file."""
    definitions: Schema = {}
    schema = _part(StudyFile, definitions)
    fields = schema["properties"]
    entries: dict[str, type[BaseModel]] = {"grids": GridFile, "searches": SearchFile}
    for key, model in entries.items():
        fields[key]["patternProperties"] = {FILE_NAME: _completed(_part(model, definitions))}
    of_figures: Schema = {}
    figures = []
    for kind, cls in load("figure").items():
        figure = _part(cls, of_figures)
        figure["properties"]["kind"] = {"const": kind}
        figures.append({**figure, "required": ["kind", *figure.get("required", [])]})
    fields["figures"]["patternProperties"] = {FILE_NAME: {"anyOf": _one_or_several(figures)}}
    definitions.update(_one_or_several(of_figures))
    fields["expect"]["items"] = {
        "anyOf": [_claim(cls, definitions) for cls in dict.fromkeys(SORTS.values())]
    }
    for key in ("grids", "searches", "figures"):
        fields[key]["additionalProperties"] = False
    for key in ("base", "variants"):
        fields[key]["propertyNames"] = {"enum": list(LEVELS)}
    _completed(definitions["Axes"])
    return {"$schema": DRAFT, **schema, "definitions": definitions}


def model_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a file with the fields of a model."""
    definitions: Schema = {}
    schema = _part(model, definitions)
    return {"$schema": DRAFT, **schema, "definitions": definitions}


def _part(model: type[BaseModel], definitions: Schema) -> Schema:
    """Return the schema of a model, and add its nested models to the definitions."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions.update(schema.pop("$defs", {}))
    return schema


def _completed(schema: Schema) -> Schema:
    """Add the registered names to the levels of axes, in place; other texts stay valid."""
    for level in LEVELS:
        names = {"enum": list(load(level))}
        schema["properties"][level]["anyOf"].insert(0, names)
    return schema


def _one_or_several(node: Any) -> Any:
    """Return a schema that accepts a single item in place of a list, as figures do."""
    if isinstance(node, list):
        return [_one_or_several(part) for part in node]
    if not isinstance(node, dict):
        return node
    schema = {key: _one_or_several(part) for key, part in node.items()}
    if schema.get("type") == "array" and "items" in schema:
        return {"anyOf": [schema["items"], schema]}
    return schema


def _claim(cls: type[BaseModel], definitions: Schema) -> Schema:
    """Return the schema of a claim, which may name several metrics and be on quality."""
    schema = _part(cls, definitions)
    keys = schema["properties"]
    metric, margins = keys["metric"], {"type": "object", "additionalProperties": {"type": "number"}}
    keys["metric"] = {"anyOf": [metric, {"type": "array", "items": metric}, margins]}
    keys["headline"] = {"anyOf": [keys["headline"], metric, {"type": "array", "items": metric}]}
    texts = keys["where"]["additionalProperties"]
    keys["where"]["additionalProperties"] = {"anyOf": [texts["items"], texts]}
    keys |= {key: keys[same] for key, same in QUALITY["higher"].items() if same in keys}
    if "trend" in keys:
        keys["trend"]["enum"].append(WORSENS)
    if "order" in keys:
        schema["required"].remove("order")
        schema["anyOf"] = [{"required": ["order"]}, {"required": ["ranking"]}]
    return schema


def schema_files() -> dict[str, str]:
    """Return the content of every schema's file, by its path in the repository."""
    schemas = {
        "studies/study.schema.json": study_schema(),
        "config.schema.json": model_schema(Settings),
        "deployment.schema.json": model_schema(Deployment),
        "report.schema.json": model_schema(Report),
    }
    return {
        path: json.dumps(schema, indent=1, sort_keys=True) + "\n"
        for path, schema in schemas.items()
    }


if __name__ == "__main__":
    for path, text in schema_files().items():
        Path(path).write_text(text, encoding="utf-8")
