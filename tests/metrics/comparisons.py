from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from gleak.metrics.base import Comparison


def changed(comparison: Comparison, **values: Any) -> Comparison:
    """A comparison with other fields, its own or those of the truth."""
    own = {field.name for field in fields(Comparison)}
    of_truth = {key: values.pop(key) for key in [*values] if key not in own}
    return replace(comparison, private=replace(comparison.private, **of_truth), **values)
