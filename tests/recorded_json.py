"""JSON documents compared with recorded ones, but for what their schema says differs between runs.

Numbers of type ``number`` are left out, whole numbers are not. ``RECORD=1 pytest ...`` records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gleak.assessment.findings import VARIES

Schema = Mapping[str, Any]
LEFT_OUT = "..."


@dataclass(frozen=True)
class RecordedJson:
    """Recorded documents of a schema.

    Args:
        schema: of all documents, with its definitions.
    """

    schema: Schema

    def check(self, document: Any, file: Path) -> None:
        """Compare a document with the recorded one, or record it."""
        found = self.stable(document, self.schema)
        if os.environ.get("RECORD"):
            file.write_text(json.dumps(found, indent=1) + "\n")
        assert found == json.loads(file.read_text()), f"if this is meant: RECORD=1 pytest, {file}"

    def stable(self, value: Any, schema: Schema) -> Any:
        """Leave out of a value what its schema allows to differ.

        The order of a list with numbers may depend on these, so it is sorted.
        """
        schema = self._resolved(schema)
        if schema.get(VARIES) or (isinstance(value, float) and _is_number(schema)):
            return LEFT_OUT
        if isinstance(value, dict):
            return {key: self.stable(each, _of_key(schema, key)) for key, each in value.items()}
        if isinstance(value, list):
            kept = [self.stable(each, schema.get("items", {})) for each in value]
            return kept if kept == value else sorted(kept, key=json.dumps)
        return value

    def _resolved(self, schema: Schema) -> Schema:
        reference = schema.get("$ref", "").rpartition("/")[2]
        return {**schema, **self.schema["definitions"][reference]} if reference else schema


def _of_key(schema: Schema, key: str) -> Schema:
    others = schema.get("additionalProperties")
    found = schema.get("properties", {}).get(key, others)
    return found if isinstance(found, Mapping) else {}


def _is_number(schema: Schema) -> bool:
    allowed = [schema, *schema.get("anyOf", [])]
    return any(each.get("type") == "number" for each in allowed)
