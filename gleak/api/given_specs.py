"""Specs as users give them: a text, a class or an object; and their registered names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, SupportsFloat, SupportsIndex, TypeVar, overload

from gleak.api.tensors import checked_count, real_number
from gleak.artifacts.protocol import Protocol
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import FedAvg
from gleak.core.errors import IncompatibleError, SpecError, error_context
from gleak.core.registry import PACKAGES, find, load, parse
from gleak.core.spec import Spec, build_spec, changed, split_spec

ClientLike = str | ClientSpec | Protocol
"""Spec of a client, such as ``"fedavg+local_steps=5+local_lr=0.1"``, or what a server knows."""
OF_CLIENT = ("local_steps", "local_lr", "mini_batch", "loss", "sends", "batch_norm")
"""Fields of a client's spec that functions once took by themselves."""
MANY = 10**6
"""Samples of a client by which these fields are checked."""
OF_PROTOCOL = (
    "batch_size",
    "local_steps",
    "local_lr",
    "loss",
    "label_smoothing",
    "autocast",
    "optimizer",
    "schedule",
    "clip_norm",
    "clip_value",
    "proximal",
)
"""Fields of a client's spec that a protocol has with the same values."""
P = ParamSpec("P")
R = TypeVar("R")


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
        >>> "honest" in gleak.list_specs()["crafting"]
        True
    """
    if kind is not None:
        return list(load(kind))
    return {each: list(load(each)) for each in PACKAGES}


def as_spec(kind: str, spec: Any) -> Any:
    """Return a spec from its text, its class or itself."""
    if isinstance(spec, type) and issubclass(spec, Spec):
        spec = spec()
    if isinstance(spec, str):
        return parse(kind, spec)
    if not isinstance(spec, Spec) or spec.kind != kind:
        example = next(iter(load(kind)))
        raise SpecError(f"expected the spec of kind {kind}, such as {example!r}, not {spec!r}")
    return spec


def client_of(
    client: ClientLike,
    batch_size: SupportsIndex | None = None,
    *,
    samples: int = 1,
    weights: bool = False,
) -> ClientSpec:
    """Return the spec of one client.

    Args:
        client: its spec, or what the server knows of it.
        batch_size: number of its samples; None: that of the client, if it is given there.
        samples: number of samples if it is given nowhere.
        weights: let the client send weights, whatever its spec says.
    """
    size = None if batch_size is None else checked_count("batch_size", batch_size)
    number = samples if size is None else size
    spec: Any
    if isinstance(client, str):
        name, texts = split_spec(client)
        stated = "batch_size" in texts
        spec = build_spec(find("client", name), {"batch_size": number, **texts})
    else:
        spec = _of_protocol(client) if isinstance(client, Protocol) else as_spec("client", client)
        stated = "batch_size" in spec.model_fields_set
    if stated and size not in (None, spec.batch_size):
        raise SpecError(
            f"batch_size = {size}, but client {spec} has {spec.batch_size} samples; leave one out"
        )
    if spec.rounds > 1:
        raise IncompatibleError(
            f"client {spec} sends the updates of {spec.rounds} rounds, and this function takes "
            "one; use client fedavg"
        )
    fields: dict[str, Any] = {"victims": 1, "repeats": 1}
    if not stated:
        fields["batch_size"] = number
    if weights or getattr(spec, "sends", "gradient") == "weights":
        if "local_lr" not in spec.model_fields_set:
            raise SpecError(
                f"client {spec}: local_lr is missing, by which a difference of weights is scaled; "
                "give the client's learning rate, client='fedavg+local_lr=0.1'"
            )
        fields["sends"] = "weights"
    one: ClientSpec = changed(spec, fields)
    return one


def _of_protocol(protocol: Protocol) -> ClientSpec:
    if protocol.epochs > 1:
        raise IncompatibleError(
            f"a client of {protocol.epochs} epochs sends several updates, and this function takes "
            "one; give the protocol of one round"
        )
    fields = {name: getattr(protocol, name) for name in OF_PROTOCOL}
    whole = protocol.mini_batch == protocol.batch_size
    fields |= {
        "mini_batch": None if whole else protocol.mini_batch,
        "sends": "gradient" if protocol.content == "gradient" else "weights",
        "batch_norm": protocol.batch_norm or "evaluation",
        "drop_last": bool(protocol.drop_last),
        "order": protocol.order or "fixed",
        "state": protocol.state or "zero",
    }
    spec = build_spec(FedAvg, fields)
    assert isinstance(spec, ClientSpec)
    return spec


def averaging_client(
    batch_size: SupportsIndex | None, local_lr: SupportsFloat | None, local_steps: SupportsIndex
) -> ClientSpec:
    """Return a client of federated averaging that sends weights, from its three usual numbers."""
    if batch_size is None or local_lr is None:
        raise SpecError(
            f"{'batch_size' if batch_size is None else 'local_lr'} is missing: give the number of "
            "samples and the learning rate of the client, or both in its spec, "
            "client='fedavg+batch_size=4+local_lr=0.1'"
        )
    numbers = {
        "batch_size": checked_count("batch_size", batch_size),
        "local_lr": real_number("local_lr", local_lr),
        "local_steps": checked_count("local_steps", local_steps),
    }
    spec = build_spec(FedAvg, {"victims": 1, "sends": "weights", **numbers})
    assert isinstance(spec, ClientSpec)
    return spec


def with_client(*kept: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function that takes a ``client``, with no other fields than these.

    An error says what to give instead of keywords of `OF_CLIENT`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **keywords: P.kwargs) -> R:
            gone = [name for name in OF_CLIENT if name in keywords and name not in kept]
            if gone:
                fields = "+".join(f"{name}={keywords[name]}" for name in gone)
                text = f"{', '.join(gone)}: now part of the client's spec"
                with error_context(text):
                    parse("client", f"fedavg+batch_size={MANY}+{fields}")
                raise SpecError(
                    f"{text}; give client='fedavg+{fields}', or add it to the client that you give"
                )
            return function(*args, **keywords)

        return checked

    return decorate
