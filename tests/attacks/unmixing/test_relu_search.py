from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from gleak.attacks.unmixing.relu_search import (
    STARTS,
    Collection,
    draw_guess,
    draw_samples,
    pattern_columns,
    remaining_mixture,
    search,
    signal_columns,
    sparse_columns,
)
from gleak.attacks.unmixing.relu_sparsity import Factors, factorise

CLASSES, NEURONS, SHAPE = 5, 128, (1, 8, 8)


@dataclass(frozen=True)
class Case:
    """Network of two dense layers, samples, and their output gradients with a softmax."""

    weight: Tensor
    bias: Tensor
    head: Tensor
    samples: Tensor
    output_gradients: Tensor
    scores: Tensor

    @property
    def factors(self) -> Factors:
        return factorise(
            self.output_gradients @ self.samples, self.output_gradients.sum(1), len(self.samples)
        )

    @property
    def columns(self) -> Tensor:
        """The true columns of the factorisation, of length 1."""
        return normalize((self.factors.basis.T @ self.output_gradients).T)

    def found(self, columns: Tensor) -> Tensor:
        """Match each candidate to the true columns, up to its length; Shape (T, N)."""
        output_gradients = normalize(columns @ self.factors.basis.T)
        cosines = output_gradients @ normalize(self.output_gradients, dim=0)
        return cosines.abs() > 1 - 1e-6


def make_case(samples: int) -> Case:
    stream = torch.Generator().manual_seed(0)
    first = torch.nn.utils.skip_init(torch.nn.Linear, 64, NEURONS, dtype=torch.double)
    with torch.no_grad():
        for value in first.parameters():
            value.uniform_(-0.125, 0.125, generator=stream)
    head = torch.randn(CLASSES, NEURONS, generator=stream, dtype=torch.double) / 20
    inputs = draw_samples(SHAPE, stream)[:samples].flatten(1).double()
    before = inputs @ first.weight.detach().T + first.bias.detach()
    labels = torch.arange(samples) % CLASSES
    likely = (before.relu() @ head.T).softmax(1)
    slopes = (likely - torch.nn.functional.one_hot(labels, CLASSES)) / samples
    output_gradients = ((slopes @ head) * (before > 0)).T
    scores = slopes.sum(0)
    return Case(first.weight.detach(), first.bias.detach(), head, inputs, output_gradients, scores)


def test_the_sparse_search_finds_a_small_batch() -> None:
    case, stream = make_case(3), torch.Generator().manual_seed(1)
    assert case.found(sparse_columns(case.factors, stream)).any(0).all()


def test_the_signal_search_finds_more_than_the_sparse_one() -> None:
    case, stream = make_case(12), torch.Generator().manual_seed(1)
    guess = draw_guess(SHAPE, case.weight, case.bias, case.scores, True, stream)
    by_signal = case.found(signal_columns(case.factors, case.head, guess)).any(0).sum()
    by_zeros = case.found(sparse_columns(case.factors, stream)).any(0).sum()
    assert by_signal >= 9
    assert by_signal > by_zeros


def test_only_true_columns_are_collected_and_each_once() -> None:
    case = make_case(6)
    true = case.columns
    mixed = true[:1] - true[5:]
    candidates = torch.cat([mixed / mixed.norm(), true, -true[:3], torch.eye(6).double()])
    for head in (case.head, None):
        collection = Collection(case.factors, head)
        for columns in (candidates[:4], candidates):
            assert collection.unmix(case.weight, case.bias) is None
            collection.add(columns)
        found = collection.unmix(case.weight, case.bias)
        assert found is not None
        assert found.consistent.all()
        assert (torch.cdist(found.inputs, case.samples).min(0).values < 1e-6).all()


def test_the_last_layer_replaces_one_zero() -> None:
    """Any direction can have N - 1 zeros, but this one is no sample's."""
    case = make_case(6)
    least = case.factors.live().nonzero().flatten()[:5]
    arbitrary = torch.linalg.svd(case.factors.basis[least])[2][5:]
    assert (case.factors.zeros(arbitrary) & case.factors.live()).sum() >= 5
    collection = Collection(case.factors, case.head)
    collection.add(arbitrary)
    assert not len(collection.trusted(None))


def test_a_search_ends_when_all_is_found_and_gives_up_otherwise() -> None:
    case = make_case(4)
    turns: list[int] = []

    def propose(known: Tensor) -> Tensor:
        turns.append(len(known))
        return case.columns[: 2 * len(turns)]

    layers = (case.weight, case.bias, case.head)
    assert search(case.factors, *layers, [propose], rounds=1) is None
    found = search(case.factors, *layers, [propose], rounds=9)
    assert found is not None
    assert found.consistent.all()
    assert turns == [0, 0]


def test_a_search_takes_its_turn_when_the_one_before_finds_nothing_more() -> None:
    case = make_case(4)
    turns: list[str] = []

    def first(known: Tensor) -> Tensor:
        turns.append("first")
        return case.columns[:2]

    def second(known: Tensor) -> Tensor:
        turns.append("second")
        return case.columns[: len(known) + 1]

    search(case.factors, case.weight, case.bias, case.head, [first, second], rounds=9)
    assert turns == ["first", "first", "second", "second"]


def test_guesses_are_of_classes_that_seem_to_occur() -> None:
    case, stream = make_case(2), torch.Generator().manual_seed(0)
    guess = draw_guess(SHAPE, case.weight, case.bias, case.scores, False, stream)
    assert guess.slopes.shape == (STARTS, CLASSES)
    assert torch.equal(guess.slopes.sum(1), -torch.ones(STARTS).double())
    occurring = guess.slopes.argmin(1) < 2
    assert occurring.double().mean() > 0.8


def test_samples_drawn_have_the_spectrum_of_pictures() -> None:
    stream = torch.Generator().manual_seed(0)
    pictures = draw_samples((3, 16, 16), stream)
    assert pictures.shape == (STARTS, 3, 16, 16)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    beside = (pictures[..., 1:] - pictures[..., :-1]).square().mean()
    apart = (pictures[..., 8:] - pictures[..., :-8]).square().mean()
    assert beside < 0.5 * apart
    assert draw_samples((7,), stream).shape == (STARTS, 7)


SAMPLES, FEATURES, WIDTH = 6, 40, 96


@dataclass(frozen=True)
class KnownColumns:
    """ReLU layer, samples, and the true columns of the factorisation of their gradients."""

    weight: Tensor
    bias: Tensor
    samples: Tensor
    factors: Factors
    columns: Tensor

    def exact(self, candidates: Tensor) -> Tensor:
        """Mark the samples whose column is among candidates; Shape (N)."""
        return ((candidates @ self.columns.T).abs() > 1 - 1e-9).any(0)


def make_columns(seed: int = 0, silent: int = 0) -> KnownColumns:
    """Make a case in which the first neurons are inactive for all samples."""
    stream = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=stream, dtype=torch.double)

    weight, bias, samples = draw(WIDTH, FEATURES), draw(WIDTH), draw(SAMPLES, FEATURES)
    bias[:silent] = -1e3
    gradients = draw(WIDTH, SAMPLES) * (samples @ weight.T + bias > 0).T
    factors = factorise(gradients @ samples, gradients.sum(1), SAMPLES)
    columns = normalize((factors.basis.T @ gradients).T)
    return KnownColumns(weight, bias, samples, factors, columns)


def test_approximate_samples_give_exact_columns() -> None:
    case = make_columns()
    noise = torch.randn(case.samples.shape, generator=torch.Generator().manual_seed(1))
    approximate = case.samples + 0.1 * noise.double()
    assert case.exact(pattern_columns(case.factors, approximate, case.weight, case.bias)).all()


def test_neurons_that_are_inactive_for_all_samples_say_nothing() -> None:
    case = make_columns(silent=60)
    assert case.factors.live().sum() <= WIDTH - 60
    assert case.exact(pattern_columns(case.factors, case.samples, case.weight, case.bias)).all()


def test_samples_of_another_batch_give_none() -> None:
    case, other = make_columns(), make_columns(seed=1)
    candidates = pattern_columns(case.factors, other.samples, case.weight, case.bias)
    assert not case.exact(candidates).any()


def test_known_columns_leave_mixtures_of_the_other_samples() -> None:
    case = make_columns()
    rest = remaining_mixture(case.factors, case.columns[:4])
    mixed = torch.cat([rest.weight[0], rest.bias[0][:, None]], 1)
    others = torch.cat([case.samples, torch.ones(SAMPLES, 1)], 1)[4:].double()
    shares = torch.linalg.lstsq(others.T, mixed.T).solution
    assert mixed.shape == (2, FEATURES + 1)
    torch.testing.assert_close((others.T @ shares).T, mixed)


def test_of_a_known_batch_nothing_is_left() -> None:
    case = make_columns()
    rest = remaining_mixture(case.factors, case.columns)
    assert not len(pattern_columns(case.factors, rest.weight[0], case.weight, case.bias))
