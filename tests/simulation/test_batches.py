from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.clients.base import check_batch
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.core.spec import Spec
from gleak.simulation.simulate import draw_batches

LABELS = np.arange(60) % 5
seeds = st.integers(0, 2**32)
rules = st.sampled_from(["random", "unique"])


def client(rule: str, victims: int, size: int) -> Spec:
    return parse("client", f"fedsgd+victims={victims}+batch_size={size}+labels={rule}")


@given(rules, st.integers(1, 15), st.integers(1, 15), st.integers(1, 5), seeds)
def test_a_victims_batch_does_not_depend_on_their_number(
    rule: str, few: int, more: int, size: int, seed: int
) -> None:
    some = draw_batches(client(rule, few, size), LABELS, seed)
    all_of_them = draw_batches(client(rule, few + more, size), LABELS, seed)
    assert np.array_equal(some, all_of_them[:few])


@given(rules, st.integers(0, 9), st.integers(1, 9), st.integers(1, 5), seeds)
def test_later_victims_have_the_batches_that_are_left_to_them(
    rule: str, first: int, victims: int, size: int, seed: int
) -> None:
    every = draw_batches(client(rule, first + victims, size), LABELS, seed)
    later = parse("client", f"{client(rule, victims, size)}+first={first}")
    assert np.array_equal(draw_batches(later, LABELS, seed), every[first:])


@given(rules, st.integers(1, 12), st.integers(1, 5), seeds)
def test_no_sample_is_held_twice_while_the_split_lasts(
    rule: str, victims: int, size: int, seed: int
) -> None:
    """60 samples, 12 of each class."""
    indices = draw_batches(client(rule, victims, size), LABELS, seed)
    assert indices.shape == (victims, size)
    assert len(np.unique(indices)) == victims * size


@given(rules, st.integers(1, 80), st.integers(1, 5), seeds)
def test_a_batch_never_holds_a_sample_twice_nor_a_unique_label(
    rule: str, victims: int, size: int, seed: int
) -> None:
    """Also where the split is used up; another seed draws others."""
    indices = draw_batches(client(rule, victims, size), LABELS, seed)
    values = LABELS[indices] if rule == "unique" else indices
    assert all(len(set(batch)) == size for batch in values.tolist())
    others = draw_batches(client(rule, victims, size), LABELS, seed + 1)
    assert victims < 10 or not np.array_equal(indices, others)


@given(rules, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), seeds)
def test_victims_in_a_row_hold_the_same_samples(
    rule: str, different: int, repeats: int, size: int, seed: int
) -> None:
    """And the batches are those that as many victims draw without repeats."""
    once = client(rule, different, size)
    often = parse("client", f"{client(rule, different * repeats, size)}+repeats={repeats}")
    expected = [batch for batch in draw_batches(once, LABELS, seed) for _ in range(repeats)]
    assert np.array_equal(draw_batches(often, LABELS, seed), np.stack(expected))


DRAWS = [
    "fedsgd+victims=6",
    "fedsgd+victims=12+repeats=3+loss=nll_raw",
    "fedavg+victims=4+local_steps=3",
    "fedsgd+victims=5+batch_size=2",
    "epochs+victims=4+batch_size=2+epochs=2",
    "fedsgd+victims=4+batch_size=2+labels=unique",
    "fedsgd+victims=4+batch_size=2+classes=3",
    "fedsgd+victims=4+labels=unique",
]


@given(st.sampled_from(DRAWS), st.sampled_from(DRAWS), seeds)
def test_clients_with_equal_draws_have_the_same_batches(first: str, second: str, seed: int) -> None:
    """And others do not; victims are numbered by batch."""
    clients = [parse("client", text) for text in (first, second)]
    drawn = [draw_batches(spec, LABELS, seed)[:: spec.repeats].tolist() for spec in clients]
    same = all(one == other for one, other in zip(*drawn, strict=False))
    assert same == (clients[0].draw == clients[1].draw)


@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 8), st.integers(1, 8), seeds)
def test_batches_of_fewer_classes_hold_those_alone(
    classes: int, size: int, few: int, more: int, seed: int
) -> None:
    """60 samples, 12 of each class; a victim's do not depend on how many there are."""
    spec = parse("client", f"fedsgd+victims={few + more}+batch_size={size}+classes={classes}")
    indices = draw_batches(spec, LABELS, seed)
    assert all(len(set(batch)) == size for batch in indices.tolist())
    assert all(len(set(batch)) <= classes for batch in LABELS[indices].tolist())
    some = parse("client", f"fedsgd+victims={few}+batch_size={size}+classes={classes}")
    assert np.array_equal(draw_batches(some, LABELS, seed), indices[:few])


@given(st.integers(1, 5), st.integers(0, 4), seeds)
def test_unique_labels_are_random_classes_as_they_are(size: int, spare: int, seed: int) -> None:
    plain = client("unique", 4, size)
    some = parse("client", f"{plain}+classes={min(5, size + spare)}")
    assert np.array_equal(draw_batches(some, LABELS, seed), draw_batches(plain, LABELS, seed))


def test_victims_draw_classes_of_their_own() -> None:
    spec = parse("client", "fedsgd+victims=40+batch_size=12+classes=2")
    labels = LABELS[draw_batches(spec, LABELS, 0)]
    assert len({tuple(sorted(set(batch))) for batch in labels.tolist()}) == 10


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("victims=8+repeats=3", "victims=8 is no multiple of repeats=3"),
        ("victims=2+repeats=4", "victims=2 is no multiple of repeats=4"),
        ("batch_size=4+labels=unique+classes=3", "4 samples with unique labels .* not classes=3"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        parse("client", f"fedsgd+{fields}")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("fedsgd+batch_size=61", "batch_size=61 is more than the 60 samples in the test split"),
        ("fedsgd+batch_size=6+labels=unique", "6 samples with unique labels .* has 5"),
        ("fedsgd+classes=6", "classes=6 is more than the 5 of tiny"),
    ],
)
def test_batches_that_cannot_be_supplied_are_refused(spec: str, fault: str) -> None:
    check_batch(parse("client", spec), None, None, "not known yet")
    with pytest.raises(IncompatibleError, match=fault):
        check_batch(parse("client", spec), 60, 5, "tiny")
    parse("client", "fedsgd+batch_size=451+split=train").check(parse("dataset", "digits"))
    with pytest.raises(IncompatibleError, match="450 samples in the test split of digits"):
        parse("client", "fedsgd+batch_size=451").check(parse("dataset", "digits"))
