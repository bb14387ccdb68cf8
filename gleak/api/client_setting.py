"""Clients as an attacker knows them, from single hyperparameters."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat, SupportsIndex, get_args

from gleak.api.tensors import checked_count, real_number
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import FedAvg
from gleak.clients.fedsgd import FedSGD
from gleak.core.errors import SpecError, nearest
from gleak.core.registry import load, parse
from gleak.core.spec import Spec, build_spec

Sends = Literal["gradient", "weights"]
BatchNormMode = Literal["evaluation", "training"]


def client_of(
    batch_size: SupportsIndex,
    local_steps: SupportsIndex,
    local_lr: SupportsFloat | None,
    mini_batch: SupportsIndex | None,
    loss: str,
    sends: str,
    batch_norm: str = "evaluation",
) -> ClientSpec:
    """Return the client with these hyperparameters.

    Raises:
        SpecError: a value is out of range, or the learning rate is missing.
    """
    rate = None if local_lr is None else real_number("local_lr", local_lr)
    if sends not in get_args(Sends):
        raise SpecError(f"sends = {sends!r}; {nearest(sends, get_args(Sends))}")
    batch = {
        "victims": 1,
        "batch_size": checked_count("batch_size", batch_size),
        "loss": loss,
        "batch_norm": batch_norm,
    }
    count = checked_count("local_steps", local_steps)
    if count == 1 and sends == "gradient" and mini_batch is None:
        return _built(FedSGD, batch)
    if rate is None:
        raise SpecError(
            "local_lr is missing: give the learning rate of the client's local steps, by which "
            "several steps are repeated and a difference of weights is scaled"
        )
    steps = {
        "local_steps": count,
        "local_lr": rate,
        "mini_batch": None if mini_batch is None else checked_count("mini_batch", mini_batch),
    }
    return _built(FedAvg, {**batch, **steps, "sends": sends})


def _built(cls: type[ClientSpec], fields: dict[str, Any]) -> ClientSpec:
    found = build_spec(cls, fields)
    assert isinstance(found, cls)
    return found


def as_spec(kind: str, spec: Any) -> Any:
    """Return a spec from its text, its class or itself.

    Raises:
        SpecError: unknown or malformed, or of another kind.
    """
    if isinstance(spec, type) and issubclass(spec, Spec):
        spec = spec()
    if isinstance(spec, str):
        return parse(kind, spec)
    if not isinstance(spec, Spec) or spec.kind != kind:
        example = next(iter(load(kind)))
        raise SpecError(f"expected the spec of kind {kind}, such as {example!r}, not {spec!r}")
    return spec
