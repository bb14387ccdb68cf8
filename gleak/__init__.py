"""gleak measures what a federated-learning update reveals about the data behind it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gleak import testing as testing
    from gleak.api.attack_result import AttackResult as AttackResult
    from gleak.api.attacking import attack as attack
    from gleak.api.listing import list_specs as list_specs
    from gleak.api.scoring import Scores as Scores
    from gleak.api.scoring import score as score
    from gleak.core.errors import GleakError as GleakError

__version__ = "0.1.0"

_PLACES = {
    "AttackResult": "gleak.api.attack_result",
    "GleakError": "gleak.core.errors",
    "Scores": "gleak.api.scoring",
    "attack": "gleak.api.attacking",
    "list_specs": "gleak.api.listing",
    "score": "gleak.api.scoring",
}
"""Module of each exported name; it is imported when the name is first used."""

__all__ = ["__version__", "testing", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("gleak.testing")
    if name not in _PLACES:
        raise AttributeError(f"module 'gleak' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
