"""The keys of files that users write, from the models that check them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from docs.extensions.markdown import code, plain, table
from gleak.assessment.deployment import Deployment
from gleak.core.settings import Settings
from gleak.core.spec import allowed_values, format_value


def describe_settings() -> str:
    """Return a table of the keys of ``config.yaml``."""
    return describe_keys(Settings)


def describe_deployment() -> str:
    """Return a table of the keys of ``deployment.yaml``."""
    return describe_keys(Deployment)


def describe_keys(model: type[BaseModel]) -> str:
    """Return a table of keys, defaults and allowed values; of a nested model, of its keys."""
    return table(("key", "default", "allowed", "meaning"), list(_rows(model, "")))


def _rows(model: type[BaseModel], prefix: str) -> Iterator[list[str]]:
    for key, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _rows(kind, f"{key}.")
            continue
        default = field.get_default(call_default_factory=True)
        yield [
            code(f"{prefix}{key}"),
            "required" if field.is_required() else code(format_value(default)),
            allowed_values(field),
            plain(field.description or ""),
        ]
