"""The keys of ``config.yaml``, from the model that checks them."""

from __future__ import annotations

from docs.extensions.markdown import code, plain, table
from gleak.core.settings import Settings
from gleak.core.spec import allowed_values, format_value


def describe_settings() -> str:
    """Return a table of keys, defaults and allowed values."""
    rows = [
        [
            code(key),
            "required"
            if field.is_required()
            else code(format_value(field.get_default(call_default_factory=True))),
            allowed_values(field),
            plain(field.description or ""),
        ]
        for key, field in Settings.model_fields.items()
    ]
    return table(("key", "default", "allowed", "meaning"), rows)
