"""Specs that keys of a deployment file stand for, and errors that name the key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import FedAvg
from gleak.core.errors import GleakError, SpecError
from gleak.core.registry import find, parse
from gleak.core.spec import build_spec

LOCAL = frozenset(FedAvg.model_fields) - frozenset(ClientSpec.model_fields)
"""Fields that only clients with local steps have."""
SIZES = frozenset({"victims", "repeats"})
"""Fields of clients that say how many there are."""


@contextmanager
def at_key(key: str) -> Iterator[None]:
    """Prefix all errors that are raised in the block with a key of the file."""
    try:
        yield
    except GleakError as error:
        raise SpecError(f"{key}: {error}") from None


def model_of(written: str) -> Any:
    """Return a model; a name with a dot is a user's function."""
    name = written.partition("+")[0]
    own = "." in name and "=" not in name
    return parse("model", f"custom+factory={written}" if own else written)


def client_of(written: Mapping[str, Any], varied: Collection[str] = ()) -> Any:
    """Return the client with these fields.

    Args:
        written: its fields; ``name`` is fedsgd unless a field has to do with local steps.
        varied: other fields that the client must have.
    """
    check_fields(written)
    fields = dict(written)
    name = fields.pop("name", "fedavg" if LOCAL & {*fields, *varied} else "fedsgd")
    return build_spec(find("client", str(name)), fields)


def check_fields(names: Iterable[str]) -> None:
    """Raise an error if a field of a client says how many clients there are.

    Raises:
        SpecError: names it.
    """
    for key in names:
        if key in SIZES:
            raise SpecError(f"field {key!r} is not for the client; use the key victims beside it")
