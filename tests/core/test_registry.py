from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gleak.core import registry
from gleak.core.errors import SpecError
from gleak.core.registry import PACKAGES, find, load, nested, parse, register
from gleak.core.spec import Spec, format_spec, parameter

PATH_KINDS = [kind for kind in PACKAGES if kind != "figure"]
WORDS = st.from_regex(r"[A-Za-z0-9_.\-]{1,8}", fullmatch=True).filter(lambda word: word != "none")


def bounds(limits: tuple[Any, ...]) -> dict[str, Any]:
    names = ("ge", "gt", "le", "lt", "multiple_of")
    return {n: getattr(m, n) for m in limits for n in names if getattr(m, n, None) is not None}


def integers(limits: tuple[Any, ...]) -> st.SearchStrategy[int]:
    given = bounds(limits)
    low = given.get("ge", given.get("gt", -(10**6) - 1) + 1)
    high = given.get("le", given.get("lt", low + 10**6 + 1) - 1)
    step = given.get("multiple_of", 1)
    return st.integers(-(-low // step), high // step).map(lambda count: count * step)


def floats(limits: tuple[Any, ...]) -> st.SearchStrategy[float]:
    given = bounds(limits)
    return st.floats(
        given.get("ge", given.get("gt")),
        given.get("le", given.get("lt")),
        exclude_min="gt" in given,
        exclude_max="lt" in given,
        allow_nan=False,
        allow_infinity=False,
    )


def values(annotation: Any, limits: tuple[Any, ...], depth: int) -> st.SearchStrategy[Any]:
    """Every value a field of this type can take."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Annotated:
        inner = [m.metadata if isinstance(m, FieldInfo) else [m] for m in arguments[1:]]
        return values(arguments[0], (*limits, *(m for part in inner for m in part)), depth)
    if origin in (Union, UnionType):
        return st.one_of(*(values(option, limits, depth) for option in arguments))
    if issubclass(annotation, Spec):
        kinds = [note.kind for note in (annotation, *limits) if hasattr(note, "kind")]
        return nested_specs(annotation, kinds[0], depth + 1)
    simple = {bool: st.booleans(), str: WORDS, NoneType: st.none()}
    simple |= {int: integers(limits), float: floats(limits)}
    return simple[annotation]


def nested_specs(base: type[Spec], kind: str, depth: int) -> st.SearchStrategy[Spec]:
    classes = [cls for cls in load(kind).values() if issubclass(cls, base)]
    if depth > 1:
        return st.sampled_from([cls() for cls in classes])
    return st.sampled_from(classes).flatmap(lambda cls: specs(cls, depth))


@st.composite
def specs(draw: st.DrawFn, cls: type[Spec], depth: int = 0) -> Spec:
    """Specs of a class with some of its fields changed."""
    changed = {
        name: draw(values(field.annotation, tuple(field.metadata), depth))
        for name, field in cls.model_fields.items()
        if draw(st.booleans())
    }
    try:
        return cls(**changed)
    except ValidationError:
        reject()


REGISTERED = [cls for kind in PATH_KINDS for cls in load(kind).values()]


@pytest.mark.parametrize("cls", REGISTERED, ids=lambda cls: f"{cls.kind}-{cls.name}")
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_every_spec_reads_back_from_its_canonical_string(
    cls: type[Spec], data: st.DataObject
) -> None:
    spec = data.draw(specs(cls))
    text = format_spec(spec)
    again = parse(cls.kind, text)
    assert again == spec
    assert format_spec(again) == text


@pytest.mark.parametrize("cls", REGISTERED, ids=lambda cls: f"{cls.kind}-{cls.name}")
def test_every_spec_has_defaults_and_describes_its_fields(cls: type[Spec]) -> None:
    assert str(cls()) == cls.name
    assert find(cls.kind, cls.name) is cls
    assert cls.__doc__
    assert all(field.description for field in cls.model_fields.values())


class Start(Spec):
    kind: ClassVar[str] = "toy_start"


class Attack(Spec):
    kind: ClassVar[str] = "toy_attack"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of their own: attacks ``plain`` and ``fancy``, starts ``dark`` and ``tiled``."""
    for kind in (Start.kind, Attack.kind):
        monkeypatch.setitem(registry.PACKAGES, kind, "json")
        monkeypatch.setitem(registry._REGISTERED, kind, {})

    @register("dark")
    class Dark(Start):
        pass

    @register("tiled")
    class Tiled(Start):
        tiles: int = parameter(2, "tiles a side", ge=1)

    @register("plain")
    class Plain(Attack):
        pass

    @register("fancy")
    class Fancy(Attack):
        rate: float = parameter(0.1, "a rate", gt=0)
        start: Annotated[Start, nested("toy_start")] | None = parameter(Dark(), "a start")
        second: Annotated[Tiled, nested("toy_start")] | None = parameter(None, "another, if any")


@pytest.mark.usefixtures("toys")
def test_a_nested_spec_is_read_with_its_fields() -> None:
    spec = parse("toy_attack", "fancy+rate=1e-3+start=tiled~tiles=4")
    assert (spec.rate, spec.start.name, spec.start.tiles) == (1e-3, "tiled", 4)
    assert parse("toy_attack", "fancy+start=none").start is None
    assert str(parse("toy_attack", "fancy+start=dark")) == "fancy"
    assert str(parse("toy_attack", "fancy+start=tiled~tiles=2")) == "fancy+start=tiled"
    spec = parse("toy_attack", "fancy+second=tiled~tiles=4")
    assert spec.components() == [spec, spec.start, spec.second]
    left_out = parse("toy_attack", "fancy+second=none")
    assert left_out.second is left_out.resolved()["second"] is None
    assert str(left_out) == "fancy"


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fency", "unknown toy_attack 'fency'; did you mean 'fancy'? valid: fancy, plain"),
        ("fancy+rat=1", "unknown field 'rat'; did you mean 'rate'? valid: rate, second, start"),
        ("fancy+start=dork", "unknown toy_start 'dork'; did you mean 'dark'?"),
        ("fancy+start=tiled~tile=3", "toy_start 'tiled': unknown field 'tile'; did you mean"),
        ("fancy+start=tiled~tiles=0", "field 'tiles' = '0'"),
        ("fancy+second=dork", "unknown toy_start 'dork'; did you mean 'dark'?"),
        ("fancy+second=dark", "instance of Tiled"),
        ("fancy+rate=0", "field 'rate' = '0': Input should be greater than 0"),
    ],
)
def test_errors_name_the_place_and_the_nearest_valid_name(text: str, fault: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse("toy_attack", text)
    assert fault in str(caught.value)


@pytest.mark.usefixtures("toys")
def test_a_name_belongs_to_one_class() -> None:
    class Other(Attack):
        pass

    with pytest.raises(SpecError, match=r"'plain' is registered twice: by .*Plain and .*Other"):
        register("plain")(Other)
    assert register("other")(Other) is Other
    assert find("toy_attack", "other") is Other
    assert list(load("toy_attack")) == ["fancy", "other", "plain"]


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="unknown kind 'atack'; did you mean 'attack'"):
        load("atack")
