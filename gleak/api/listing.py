"""Names of registered specs."""

from __future__ import annotations

from typing import overload

from gleak.core.registry import PACKAGES, load


@overload
def list_specs(kind: str) -> list[str]: ...
@overload
def list_specs(kind: None = None) -> dict[str, list[str]]: ...
def list_specs(kind: str | None = None) -> list[str] | dict[str, list[str]]:
    """Return the registered names of a kind, or of all kinds.

    Args:
        kind: "attack", "defense", "crafting", "metric", ...; None: all.

    Returns:
        The names; without a kind, by kind. ``gleak describe NAME`` describes a name.

    Raises:
        SpecError: there is no such kind.

    Example:
        >>> import gleak
        >>> "cpl" in gleak.list_specs("attack")
        True
        >>> gleak.list_specs()["crafting"]
        ['fishing', 'honest', 'mkor']
    """
    if kind is not None:
        return list(load(kind))
    return {each: list(load(each)) for each in PACKAGES}
