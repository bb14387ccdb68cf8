"""Specs: a name and the fields that differ from their defaults, as one readable string.

``cpl+restarts=2+start=patterned~tiles=4`` is the spec of the attack ``cpl`` with two fields
changed, one of which is itself a spec (its own fields after ``~``). `format_spec` writes the
canonical string, `gleak.core.registry.parse` reads any valid one. Specs are imported to build the
workflow's graph, so their modules never import torch at the top level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from numbers import Integral
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from gleak.core.errors import SpecError, nearest

FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$"
LONGEST_NAME = 100
VALUE = re.compile(r"[A-Za-z0-9_.\-]+")
CHARACTERS = "letters, digits, '_', '.' and '-'"
LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "multiple_of": "multiple of"}
FieldText = dict[str, str]


def checked_name(kind: str, name: object) -> str:
    """Return the name of a ``kind`` of thing, which becomes part of the name of a file.

    Raises:
        SpecError: it is neither text nor a whole number, is empty or too long, has other
            characters, or begins with "." or "-".
    """
    given = isinstance(name, str | Integral) and not isinstance(name, bool)
    text = str(name) if given else ""
    if not re.fullmatch(FILE_NAME, text) or len(text) > LONGEST_NAME:
        raise SpecError(
            f"{kind} {text[: 2 * LONGEST_NAME] or name!r}: give a name of at most {LONGEST_NAME} "
            f"characters, {CHARACTERS}, that does not begin with '.' or '-'"
        )
    return text


def parameter(
    default: Any, description: str, *, unit: str = "", source: str = "", **limits: Any
) -> Any:
    """Declare a field of a spec with its default, description, unit and source.

    Args:
        default: value that is omitted from the canonical string.
        description: one line, shown by ``gleak describe``.
        unit: "" for a pure number or a name.
        source: paper and place of the default.
        **limits: pydantic limits such as ``ge=0``.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={"unit": unit, "source": source},
        **limits,
    )


class Spec(BaseModel):
    """Base of all classes that can be named in a path or a study."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", allow_inf_nan=False)

    kind: ClassVar[str]
    name: ClassVar[str]
    source: ClassVar[str] = ""
    budget_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that set how much is computed or measured, not what: they do not change the setting
    to which a paper's number belongs."""

    def __str__(self) -> str:
        return _canonical(self)

    @property
    def tuned_fields(self) -> frozenset[str]:
        """Names of the fields that are tuned for each setting, so that they are no part of it."""
        return frozenset()

    def setting(self) -> Spec:
        """Return this spec with its budget and tuned fields at their defaults, nested specs too."""
        return _with_defaults(self, self.budget_fields | self.tuned_fields)

    def without_budget(self) -> Spec:
        """Return this spec with its budget fields at their defaults, and nested specs' settings."""
        return _with_defaults(self, self.budget_fields)

    def components(self) -> list[Spec]:
        """Return this spec and the specs nested in its fields, on which a job depends."""
        nested = [value for _, value in self if isinstance(value, Spec)]
        return [self, *(part for spec in nested for part in spec.components())]

    @property
    def modules(self) -> frozenset[str]:
        """Names of the modules whose code this spec runs; its jobs are rerun when they change."""
        return frozenset({type(self).__module__})

    def resolved(self) -> dict[str, Any]:
        """Return every field with its value, defaults included; this identifies a job."""
        fields = {
            key: value.resolved() if isinstance(value, Spec) else value for key, value in self
        }
        return {"name": self.name, **fields}


def format_value(value: Any) -> str:
    """Return the shortest text that reads back as the same value."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    value += 0.0  # -0.0 equals 0.0 and must read the same
    plain = repr(value).removesuffix(".0")
    mantissa, _, exponent = next(
        text for digits in range(18) if float(text := f"{value:.{digits}e}") == value
    ).partition("e")
    return min(plain, f"{mantissa}e{int(exponent)}", key=len).replace("e+", "e")


def format_spec(spec: Spec, separator: str = "+") -> str:
    """Return the canonical string: the name, then changed fields in order of declaration."""
    fields = type(spec).model_fields
    defaults = {key: fields[key].get_default(call_default_factory=True) for key in fields}
    changes = [(key, value) for key, value in spec if value != defaults[key]]
    parts = [f"{key}={_format_field(value, separator, key)}" for key, value in changes]
    return separator.join([spec.name, *parts])


@cache
def _canonical(spec: Spec) -> str:
    """Return `format_spec`, computed once for equal specs: a graph has thousands of paths."""
    return format_spec(spec)


@cache
def _with_defaults(spec: Spec, keys: frozenset[str]) -> Spec:
    """Return a spec with some fields at their defaults; computed once for equal specs."""
    nested = {key: value.setting() for key, value in spec if isinstance(value, Spec)}
    defaults = {key: type(spec).model_fields[key].default for key in keys}
    return spec.model_copy(update={**nested, **defaults})


def field_text(spec: Spec, key: str) -> str:
    """Return the text of a field in a spec string, even if it has its default."""
    return _format_field(getattr(spec, key), "+", key)


def _format_field(value: Any, separator: str, key: str) -> str:
    if isinstance(value, Spec):
        text = format_spec(value, "~")
        if separator == "~" and "~" in text:
            raise SpecError(f"field {key!r}: {text!r} is nested too deep to be written in a path")
        return text
    text = format_value(value)
    if not VALUE.fullmatch(text):
        raise SpecError(f"field {key!r} = {text!r} may contain only {CHARACTERS}")
    return text


def split_spec(text: str, separator: str = "+") -> tuple[str, FieldText]:
    """Split a spec string without checking its name or fields.

    Raises:
        SpecError: a field without ``=``, given twice, or with a character invalid in paths.
    """
    name, *assignments = text.split(separator)
    fields: FieldText = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key or not value:
            raise SpecError(f"{text!r}: {assignment!r} is not of the form field=value")
        if key in fields:
            raise SpecError(f"{text!r}: field {key!r} is given twice")
        fields[key] = value
    for piece in [name, *fields, *(part for v in fields.values() for part in re.split("[~=]", v))]:
        if not VALUE.fullmatch(piece):
            raise SpecError(f"{text!r}: {piece!r} may contain only {CHARACTERS}")
    return name, fields


def build_spec(cls: type[Spec], fields: dict[str, Any]) -> Spec:
    """Build a spec from field values; all faults are reported in one error.

    Raises:
        SpecError: an unknown field (with the nearest valid name) or a value out of range.
    """
    constants, values = _constants_of(cls), dict(fields)
    for key, value in fields.items():
        # Pydantic reads all texts but those of constants: none, a numeric choice.
        denoted = [known for known in constants.get(key, ()) if format_value(known) == value]
        values[key] = denoted[0] if denoted else value
    try:
        return cls(**values)
    except ValidationError as error:
        faults = "; ".join(_describe_fault(cls, fault) for fault in error.errors())
        raise SpecError(f"{cls.kind} {cls.name!r}: {faults}") from None


def changed(spec: Spec, fields: Mapping[str, Any]) -> Any:
    """Return a spec with new values in some of its fields.

    Raises:
        SpecError: an unknown field or a value out of range.
    """
    return build_spec(type(spec), {**dict(spec), **fields})


@cache
def _constants_of(cls: type[Spec]) -> dict[str, list[Any]]:
    """Return the constants that each field of a class accepts."""
    return {key: _constants(field.annotation) for key, field in cls.model_fields.items()}


def _constants(annotation: Any) -> list[Any]:
    if annotation in (None, NoneType):
        return [None]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    inside = get_args(annotation) if get_origin(annotation) in (Union, UnionType, Annotated) else ()
    return [constant for option in inside for constant in _constants(option)]


def _describe_fault(cls: type[Spec], fault: Any) -> str:
    key = str(fault["loc"][0]) if fault["loc"] else cls.name
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return f"unknown field {key!r}; {nearest(key, cls.model_fields)}"
    if fault["type"] == "value_error":
        return f"{key}: {fault['ctx']['error']}"
    return f"field {key!r} = {fault['input']!r}: {fault['msg']}"


def allowed_values(field: FieldInfo) -> str:
    """Describe the values a field accepts: its choices, or its type and limits."""
    limits = [
        f"{sign} {format_value(getattr(limit, name))}"
        for limit in field.metadata
        for name, sign in LIMITS.items()
        if hasattr(limit, name)
    ]
    return " ".join([_describe_type(field.annotation), *limits])


def _describe_type(annotation: Any) -> str:
    if annotation in (None, NoneType):
        return "none"
    if get_origin(annotation) is Literal:
        return " | ".join(map(format_value, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_describe_type, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        described, *notes = get_args(annotation)
        kinds = [note.kind for note in notes if hasattr(note, "kind")]
        return f"any {kinds[0]}" if described is Spec and kinds else _describe_type(described)
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return getattr(annotation, "name", f"any {annotation.kind}")
    return getattr(annotation, "__name__", str(annotation))
