"""Axes of an assessment: fields of the client, the model, the training, or its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from gleak.assessment.written_specs import SIZES, at_key, check_fields, model_of
from gleak.core.errors import SpecError, nearest
from gleak.core.registry import parse
from gleak.core.spec import changed, field_text
from gleak.training.base import InitialisedSpec
from gleak.training.federated import Federated
from gleak.training.untrained import Captured, Untrained

Specs = Mapping[str, Any]
MODEL, TRAINING, ROUNDS = "model", "training", "rounds"
ELSEWHERE = {
    "attack": "name others under the key attacks",
    "data": "write a deployment file for each",
    "defense": "list others under the key defenses",
}
"""Keys of a deployment that cannot be varied, and what to do instead."""


@dataclass(frozen=True)
class Value:
    """A value of what varies.

    Args:
        text: as it is shown.
        spec: of the level that varies, a client without its number of victims.
        number: the value, if it is a number.
    """

    text: str
    spec: Any
    number: float | None = None

    def sized(self, victims: int) -> Any:
        """Return the spec, a client with a number of victims."""
        return changed(self.spec, {"victims": victims}) if self.spec.kind == "client" else self.spec


@dataclass(frozen=True)
class Axis:
    """Values at which leakage is measured, that of the deployment among them.

    Args:
        field: as written in the deployment.
        level: of a cell, whose spec it changes.
        values: numbers in ascending order; names in the order of the file, the deployed first.
        deployed: the value of the deployment.
    """

    field: str
    level: str
    values: tuple[Value, ...]
    deployed: Value


def read_axes(written: Mapping[str, Sequence[Any]], specs: Specs) -> tuple[Axis, ...]:
    """Return what a deployment varies.

    Args:
        written: the key vary of the deployment.
        specs: of the deployment, by level.

    Raises:
        SpecError: a field or value is unknown or invalid, or the deployment does not allow it;
            names the key.
    """
    return tuple(_axis(field, values, specs) for field, values in written.items())


def _axis(field: str, written: Sequence[Any], specs: Specs) -> Axis:
    with at_key(f"vary.{field}"):
        if field == MODEL:
            _check_not_captured(specs)
            return _of_names(field, specs, [model_of(str(each)) for each in written])
        if field == TRAINING:
            return _of_names(field, specs, [parse(TRAINING, str(each)) for each in written])
        if field == ROUNDS:
            return _of_rounds(written, specs[TRAINING])
        return _of_client(field, written, specs["client"])


def _check_not_captured(specs: Specs) -> None:
    """Raise an error if the parameters of the clients belong to one model."""
    if isinstance(specs[TRAINING], Captured):
        raise SpecError(
            f"the captured parameters are those of model {specs[MODEL]}; assess other models in a "
            "deployment without captures"
        )


def _of_names(level: str, specs: Specs, others: Sequence[Any]) -> Axis:
    return _arranged(level, level, specs[level], others, lambda spec: Value(str(spec), spec))


def _of_rounds(written: Sequence[Any], training: Any) -> Axis:
    """Return the axis of federated rounds before that of the update; 0 is no training."""
    begun = _federated(training)
    others = [_after(each, begun) for each in written]
    return _arranged(ROUNDS, TRAINING, training, others, _value_of_rounds)


def _federated(training: Any) -> Federated:
    """Return the federated training whose rounds vary, with its initial parameters.

    Raises:
        SpecError: the deployment's training has no rounds.
    """
    if isinstance(training, Federated):
        return training
    if isinstance(training, Untrained):
        return Federated(**dict(training))
    if isinstance(training, Captured):
        remedy = "list captures of several rounds under captures (gleak import --rounds)"
    else:
        remedy = f"set training: federated, or vary {{{TRAINING}: [untrained, {training}]}}"
    raise SpecError(f"training {training} has no federated rounds; {remedy}")


def _after(rounds: Any, training: Federated) -> InitialisedSpec:
    """Return the training after some of its rounds."""
    if str(rounds) == "0":
        return Untrained(**{key: getattr(training, key) for key in Untrained.model_fields})
    return changed(training, {"rounds": rounds})


def _value_of_rounds(training: Any) -> Value:
    rounds = getattr(training, "rounds", 0)
    return Value(str(rounds), training, rounds)


def _of_client(field: str, written: Sequence[Any], client: Any) -> Axis:
    check_fields([field])
    fields = [name for name in type(client).model_fields if name not in SIZES]
    if field in ELSEWHERE:
        raise SpecError(f"{field!r} cannot be varied; {ELSEWHERE[field]}")
    if field not in fields:
        hint = nearest(field, [*fields, MODEL, TRAINING, ROUNDS])
        raise SpecError(f"{field!r} cannot be varied for client {client.name!r}; {hint}")
    others = [changed(client, {field: each}) for each in written]
    return _arranged(field, "client", client, others, lambda spec: _value_of_field(spec, field))


def _value_of_field(client: Any, field: str) -> Value:
    value = getattr(client, field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Value(field_text(client, field), client, value if number else None)


def _arranged(
    field: str, level: str, deployed: Any, others: Sequence[Any], value_of: Callable[[Any], Value]
) -> Axis:
    """Return the axis of these specs, each once and in order."""
    values = [value_of(spec) for spec in dict.fromkeys([deployed, *others])]
    if all(value.number is not None for value in values):
        values.sort(key=attrgetter("number"))
    return Axis(field, level, tuple(values), value_of(deployed))
