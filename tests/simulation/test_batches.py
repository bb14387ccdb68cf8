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


@given(rules, st.integers(1, 12), st.integers(1, 5), seeds)
def test_no_sample_is_held_twice_while_the_split_lasts(
    rule: str, victims: int, size: int, seed: int
) -> None:
    """60 samples, 12 of each class."""
    indices = draw_batches(client(rule, victims, size), LABELS, seed)
    assert indices.shape == (victims, size)
    assert len(np.unique(indices)) == victims * size
    assert 0 <= indices.min() <= indices.max() < len(LABELS)


@given(rules, st.integers(13, 80), st.integers(2, 5), seeds)
def test_a_batch_never_holds_a_sample_twice(rule: str, victims: int, size: int, seed: int) -> None:
    indices = draw_batches(client(rule, victims, size), LABELS, seed)
    assert all(len(set(batch)) == size for batch in indices.tolist())


@given(st.integers(1, 80), st.integers(1, 5), seeds)
def test_unique_labels_are_unique(victims: int, size: int, seed: int) -> None:
    labels = LABELS[draw_batches(client("unique", victims, size), LABELS, seed)]
    assert all(len(set(batch)) == size for batch in labels.tolist())


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
    drawn = [
        {
            victim // spec.repeats: batch.tolist()
            for victim, batch in enumerate(draw_batches(spec, LABELS, seed))
        }
        for spec in clients
    ]
    common = drawn[0].keys() & drawn[1].keys()
    same = all(drawn[0][number] == drawn[1][number] for number in common)
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


def test_every_victim_has_classes_of_its_own_and_uses_them_all() -> None:
    spec = parse("client", "fedsgd+victims=40+batch_size=12+classes=2")
    labels = LABELS[draw_batches(spec, LABELS, 0)]
    pairs = {tuple(sorted(set(batch))) for batch in labels.tolist()}
    assert {len(pair) for pair in pairs} == {2}
    assert len(pairs) == 10


@given(st.integers(1, 5), st.integers(0, 4), seeds)
def test_unique_labels_are_random_classes_as_they_are(size: int, spare: int, seed: int) -> None:
    plain = client("unique", 4, size)
    some = parse("client", f"{plain}+classes={min(5, size + spare)}")
    assert np.array_equal(draw_batches(some, LABELS, seed), draw_batches(plain, LABELS, seed))


def test_classes_with_too_few_samples_are_refused() -> None:
    spec = parse("client", "fedsgd+victims=3+batch_size=25+classes=2")
    with pytest.raises(
        IncompatibleError, match=r"victim 0 .* have 24 samples in the test .*=25; choose"
    ):
        draw_batches(spec, LABELS, 0)


def test_fewer_classes_than_unique_labels_are_refused() -> None:
    parse("client", "fedsgd+batch_size=3+labels=unique+classes=3")
    with pytest.raises(SpecError, match=r"4 samples with unique labels .* not classes=3"):
        parse("client", "fedsgd+batch_size=4+labels=unique+classes=3")


@pytest.mark.parametrize(("victims", "repeats"), [(8, 3), (2, 4)])
def test_every_batch_is_repeated_equally_often(victims: int, repeats: int) -> None:
    with pytest.raises(SpecError, match=f"victims={victims} is no multiple of repeats={repeats}"):
        parse("client", f"fedsgd+victims={victims}+repeats={repeats}")


def test_other_seeds_draw_other_batches() -> None:
    for rule in ("random", "unique"):
        first, second = (draw_batches(client(rule, 5, 4), LABELS, seed) for seed in (0, 1))
        assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("fedsgd+batch_size=61", "batch_size=61 is more than the 60 samples in the test split"),
        ("fedsgd+batch_size=6+labels=unique", "6 samples with unique labels .* has 5"),
        ("fedsgd+classes=6", "classes=6 is more than the 5 of tiny"),
    ],
)
def test_batches_that_cannot_be_supplied_are_refused(spec: str, fault: str) -> None:
    with pytest.raises(IncompatibleError, match=fault):
        check_batch(parse("client", spec), 60, 5, "tiny")


def test_what_is_not_known_yet_is_not_refused() -> None:
    for spec in ("fedsgd+batch_size=61+labels=unique", "fedsgd+classes=9"):
        check_batch(parse("client", spec), None, None, "tiny")


def test_a_dataset_is_asked_for_the_split_in_use() -> None:
    digits = parse("dataset", "digits")
    parse("client", "fedsgd+batch_size=451+split=train").check(digits)
    with pytest.raises(IncompatibleError, match="450 samples in the test split of digits"):
        parse("client", "fedsgd+batch_size=451").check(digits)
