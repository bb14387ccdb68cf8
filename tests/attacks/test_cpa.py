"""All attacks by the objective of the cocktail party attack, and the attack itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.attacks import cpa
from gleak.attacks.cpa import Term, UnmixingObjective
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.unmixing.independent_components import LAPLACIAN, fixed_point
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing, White, whiten
from gleak.core.registry import load, parse
from gleak.runtime.checkpointing import Journal, Part
from gleak.runtime.gpu_loop import WARM_UP
from tests.attacks.cases import Make, psnr
from tests.runtime.recorded_graph import RecordedGraphs

NAMES = sorted(n for n, cls in load("attack").items() if issubclass(cls, cpa.CocktailParty))
SHAPE, FEATURES, COUNT = (1, 5, 8), 40, 3
STREAM = torch.Generator().manual_seed(0)
BACKS = torch.randn(2, 9, COUNT, generator=STREAM)
SOURCES = torch.randn(2, COUNT, FEATURES, generator=STREAM).relu()
MIXTURE = Mixture(BACKS @ SOURCES, BACKS.sum(2))
WHITE = whiten(MIXTURE.weight, COUNT)
MATRICES = torch.randn(2, COUNT, COUNT, generator=STREAM)

each_attack = pytest.mark.parametrize("name", NAMES)


def value(text: str) -> torch.Tensor:
    return parse("attack", text).objective(WHITE, SHAPE).evaluate(MATRICES)[0].double()


@each_attack
def test_every_weight_has_its_term(name: str) -> None:
    """The objective is linear in each weight; a weight of zero leaves its term out."""
    spec = parse("attack", name)
    assert len(spec.objective(WHITE, SHAPE).terms) == len(spec.weights)
    for weight in spec.weights:
        at = [value(f"{name}+{weight}={number}") for number in (0, 1, 2)]
        assert (at[1] != at[0]).all(), weight
        torch.testing.assert_close(at[2] + at[0], 2 * at[1], rtol=1e-5, atol=1e-5)
        left = parse("attack", f"{name}+{weight}=0").objective(WHITE, SHAPE).terms
        assert len(left) == len(spec.weights) - 1


@each_attack
def test_rows_that_depend_cost_more_at_a_higher_temperature(name: str) -> None:
    assert (value(f"{name}+temperature=9") > value(f"{name}+temperature=3")).all()


@each_attack
@pytest.mark.parametrize("initial", ["identity", "fastica"])
def test_the_search_begins_where_it_is_told_to(name: str, initial: str) -> None:
    spec = parse("attack", f"{name}+initial={initial}")
    expected = {
        "identity": torch.eye(COUNT).expand(2, COUNT, COUNT),
        "fastica": fixed_point(WHITE.signals[:, :, None], LAPLACIAN),
    }
    torch.testing.assert_close(spec.first(WHITE), expected[initial])


@each_attack
def test_the_budget_is_spent(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=70+mi=0.3+temperature=3+lr=0.01")
    found = spec.unmix(MIXTURE, COUNT, SHAPE, Journal().part())
    first, _ = spec.objective(WHITE, SHAPE).evaluate(spec.first(WHITE))
    assert (found.objective < first).all()
    assert found.iterations.tolist() == [70, 70]


@each_attack
def test_rows_make_what_the_matrices_make_of_the_white_signals(name: str) -> None:
    """Without a step that pays, they are the whitening itself."""
    spec = parse("attack", f"{name}+iterations=1+lr=1e-12")
    found = spec.unmix(MIXTURE, COUNT, SHAPE, Journal().part())
    made = (found.rows @ MIXTURE.weight.double()).float()
    torch.testing.assert_close(made, WHITE.uncentred, atol=1e-4, rtol=1e-4)


@each_attack
def test_tuned_weights_are_of_the_published_setting_and_a_weight_of_zero_is_not(name: str) -> None:
    weights = parse("attack", name).weights
    settings = {f"{weight}=0": f"{name}+{weight}=0" for weight in weights}
    settings |= {f"{weight}=0.37": name for weight in (*weights, "temperature")}
    settings |= {
        "ne=0+mi=0.37": f"{name}+ne=0",
        "iterations=9+lr=0.1+tolerance=0.1+initial=fastica": name,
        "counted=spectrum": f"{name}+counted=spectrum",
    }
    for fields, setting in settings.items():
        assert str(parse("attack", f"{name}+{fields}").setting()) == setting


TUNED = "cpa+iterations=300+lr=0.01+tv=10+mi=0.1"
BLIND = parse("attack", "blind")


@pytest.mark.parametrize("size", [4, 8])
def test_photographs_come_out_better_than_blindly(size: int, make_photo_case: Make) -> None:
    spec, client = parse("attack", TUNED), f"fedsgd+batch_size={size}+victims=2"
    seen, truth = make_photo_case(spec, client)
    found = spec.reconstruct(seen)
    blind = BLIND.reconstruct(make_photo_case(BLIND, client)[0])
    reached = psnr(truth.inputs, found.inputs).mean(1)
    assert (reached > psnr(truth.inputs, blind.inputs).mean(1) + 4).all()
    assert (found.iterations == 300).all()


def test_the_total_variation_is_what_tells_photographs_apart(make_photo_case: Make) -> None:
    """CPA Table IV: without it quality falls far."""
    with_it, without = parse("attack", TUNED), parse("attack", TUNED.replace("tv=10", "tv=0"))
    seen, truth = make_photo_case(with_it)
    better, worse = (
        psnr(truth.inputs, spec.reconstruct(seen).inputs).mean() for spec in (with_it, without)
    )
    assert better > worse + 3


def test_total_variation_is_of_images_alone() -> None:
    white = White(torch.zeros(1, 2, 12), torch.zeros(1, 2, 1), torch.zeros(1, 2, 2))
    assert set(parse("attack", "cpa").priors(white, (1, 3, 4))) == {"tv"}
    assert set(parse("attack", "cpa").priors(white, (12,))) == set()


IMAGE_SHAPE = (2, 3, 4)
VICTIMS, ROWS, PIXELS = 2, 3, 24


def draw(seed: int, *shape: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.double)


SIGNALS = White(
    draw(0, VICTIMS, ROWS, PIXELS), draw(1, VICTIMS, ROWS, 1), torch.zeros(VICTIMS, ROWS, ROWS)
)


def slow_negentropy(source: np.ndarray) -> float:
    """Eq. 8 with a = 1, what is squared being the mean."""
    return -(np.mean([math.log(math.cosh(value)) for value in source]) ** 2)


def slow_distance_from_a_gaussian(source: np.ndarray) -> float:
    """Hyvarinen and Oja 2000, Eq. 25, with the Gaussian's mean by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    gaussian = weights @ np.log(np.cosh(nodes)) / math.sqrt(2 * math.pi)
    return -((np.mean([math.log(math.cosh(value)) for value in source]) - gaussian) ** 2)


def slow_variation(source: np.ndarray) -> float:
    """Eq. 3."""
    channels, height, width = IMAGE_SHAPE
    image = source.reshape(IMAGE_SHAPE)
    places = [(c, i, j) for c in range(channels) for i in range(height) for j in range(width)]
    below = [abs(image[c, i, j] - image[c, i - 1, j]) for c, i, j in places if i]
    beside = [abs(image[c, i, j] - image[c, i, j - 1]) for c, i, j in places if j]
    return float(np.mean(below) + np.mean(beside))


def slow_mixed_signs(source: np.ndarray) -> float:
    return min(np.linalg.norm(source[source > 0]), np.linalg.norm(source[source < 0]))


TERMS: dict[str, tuple[Term, Callable[[np.ndarray], float], bool]] = {
    "log cosh": (cpa.negentropy(SIGNALS), slow_negentropy, True),
    "negentropy": (cpa.negentropy(SIGNALS, cpa.GAUSSIAN), slow_distance_from_a_gaussian, True),
    "total variation": (cpa.total_variation(SIGNALS, IMAGE_SHAPE), slow_variation, True),
    "magnitude": (cpa.magnitude(SIGNALS), lambda source: np.abs(source).mean(), False),
    "mixed_signs": (cpa.mixed_signs(SIGNALS), slow_mixed_signs, False),
}
EVERY = [term for term, *_ in TERMS.values()] + [cpa.dependence(2.0)]


@pytest.mark.parametrize("name", TERMS)
def test_a_term_of_the_sources_is_its_equation(name: str) -> None:
    term, slow, centred = TERMS[name]
    rows = torch.nn.functional.normalize(draw(2, VICTIMS, ROWS, ROWS), dim=2)
    values = SIGNALS.signals if centred else SIGNALS.signals + SIGNALS.means
    expected = [
        np.mean([slow(sum(row[k] * own[k] for k in range(ROWS))) for row in matrix])
        for matrix, own in zip(rows.numpy(), values.numpy(), strict=True)
    ]
    np.testing.assert_allclose(term(rows).numpy(), expected)


def test_along_a_side_of_one_pixel_nothing_varies() -> None:
    image = draw(0, 1, 1, 15)
    variation = cpa.total_variation(White(image, 0 * image, image), (3, 1, 5))(
        torch.eye(1)[None].double()
    )
    expected = image.reshape(3, 5).diff(dim=1).abs().mean()
    assert variation.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("temperature", [0.01, 1.0, 12.4])
def test_dependence_is_its_equation_less_one(temperature: float) -> None:
    """Eq. 9: a mean over pairs of different rows."""
    rows = torch.nn.functional.normalize(draw(3, VICTIMS, ROWS, ROWS), dim=2)
    expected = [
        np.mean([math.exp(temperature * abs(a @ b)) for a, b in permutations(matrix.numpy(), 2)])
        for matrix in rows
    ]
    np.testing.assert_allclose(1 + cpa.dependence(temperature)(rows).numpy(), expected)


def test_one_row_depends_on_no_other() -> None:
    assert cpa.dependence(3.0)(torch.ones(2, 1, 1)).tolist() == [0.0, 0.0]


def test_a_high_temperature_and_large_signals_do_not_overflow() -> None:
    objective, gradient = UnmixingObjective([(1.0, cpa.dependence(200.0))]).evaluate(
        torch.eye(3)[None]
    )
    assert objective.item() == 0
    assert gradient.isfinite().all()
    large = White(1e6 * SIGNALS.signals.float(), SIGNALS.means.float(), SIGNALS.transform)
    value, gradient = UnmixingObjective([(1.0, cpa.negentropy(large))]).evaluate(
        draw(4, 2, 3, 3).float()
    )
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("term", EVERY, ids=[*TERMS, "dependence"])
def test_the_gradient_is_that_of_the_value(term: Term) -> None:
    objective, matrices = UnmixingObjective([(0.7, term)]), draw(5, VICTIMS, ROWS, ROWS)
    _, gradient = objective.evaluate(matrices)
    for place, shift in enumerate(1e-6 * torch.eye(ROWS * ROWS, dtype=torch.double)):
        above, _ = objective.evaluate(matrices + shift.view(ROWS, ROWS))
        below, _ = objective.evaluate(matrices - shift.view(ROWS, ROWS))
        slope = (above - below) / 2e-6
        torch.testing.assert_close(gradient.flatten(1)[:, place], slope, atol=1e-7, rtol=1e-5)


def test_the_lengths_of_rows_do_not_matter() -> None:
    objective, matrices = UnmixingObjective([(1.0, term) for term in EVERY]), draw(6, 2, ROWS, ROWS)
    lengths = draw(7, 2, ROWS, 1).exp()
    value, gradient = objective.evaluate(matrices)
    scaled, scaled_gradient = objective.evaluate(lengths * matrices)
    torch.testing.assert_close(scaled, value)
    torch.testing.assert_close(scaled_gradient, gradient / lengths)
    torch.testing.assert_close((gradient * matrices).sum(2), torch.zeros_like(matrices[..., 0]))


def test_a_source_of_one_sign_has_a_gradient() -> None:
    """The norm of a part that is zero is not differentiable."""
    positive = White(torch.ones(1, 2, 5), torch.zeros(1, 2, 1), torch.zeros(1, 2, 2))
    value, gradient = UnmixingObjective([(1.0, cpa.mixed_signs(positive))]).evaluate(
        torch.eye(2)[None]
    )
    assert value.item() == 0
    assert torch.equal(gradient, torch.zeros(1, 2, 2))


def part() -> Part:
    return Journal().part()


def bowl(rows: Tensor) -> Tensor:
    """Compute an objective that is least where every row is parallel to the diagonal."""
    return (1.0 + 1e-4 - rows.mean(2) * rows.shape[2] ** 0.5).sqrt().sum(1)


@dataclass(frozen=True)
class Scripted:
    """Objective with given values by evaluation; the gradient is always one."""

    values: list[Tensor]

    def evaluate(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        return self.values.pop(0).to(matrices), torch.ones_like(matrices)


def starts(victims: int) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    noise = torch.rand(victims, 3, 3, generator=stream, dtype=torch.double)
    return noise + torch.eye(3)


def zeros(victims: int) -> Tensor:
    return torch.zeros(victims, 2, 2, dtype=torch.double)


@pytest.mark.parametrize("iterations", [1, 75, 120])
def test_the_search_is_that_of_torchs_adam(iterations: int) -> None:
    objective, first = UnmixingObjective([(1.0, bowl)]), starts(1)
    matrix = first.clone().requires_grad_()
    theirs = torch.optim.Adam([matrix], lr=0.02)
    seen: dict[int, tuple[float, Tensor]] = {}
    for number in range(iterations + 1):
        theirs.zero_grad()
        value = bowl(torch.nn.functional.normalize(matrix, dim=2)).sum()
        value.backward()
        seen[number] = (value.item(), matrix.detach().clone())
        theirs.step()
    looked_at = [0, *range(cpa.CHECKED_EVERY, iterations, cpa.CHECKED_EVERY), iterations]
    least, best = min((seen[number] for number in looked_at), key=lambda pair: pair[0])
    found = cpa.descend(objective, first, Adam(lr=0.02), iterations, None, part())
    torch.testing.assert_close(found.rows, best, atol=1e-9, rtol=1e-7)
    assert found.objective.item() == pytest.approx(least)
    assert found.iterations.tolist() == [iterations]
    assert least < seen[0][0]


@pytest.mark.parametrize("text", ["cpa", "cpa_fi"])
def test_its_iterations_replayed_as_a_graph_have_the_same_result(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    objective = parse("attack", text).objective(WHITE, SHAPE)
    search = partial(cpa.descend, objective, MATRICES, Adam(lr=0.02), 70, 1e-3)
    expected = search(part())
    graphs = RecordedGraphs()
    monkeypatch.setattr(cpa, "graphs_on", lambda device: graphs)
    found = search(part())
    assert graphs.events == ["capture", *["replay"] * (70 - WARM_UP)]
    for name, value in vars(expected).items():
        assert torch.equal(getattr(found, name), value), name


def test_the_best_matrix_that_was_looked_at_is_kept() -> None:
    values = [torch.tensor([5.0])] * (2 * cpa.CHECKED_EVERY + 1)
    values[cpa.CHECKED_EVERY] = torch.tensor([3.0])
    values[cpa.CHECKED_EVERY - 1] = torch.tensor([1.0])  # nobody looks
    found = cpa.descend(
        Scripted(values), zeros(1), Adam(lr=0.1), 2 * cpa.CHECKED_EVERY, None, part()
    )
    assert found.objective.tolist() == [3.0]
    torch.testing.assert_close(found.rows, zeros(1) - 0.1 * cpa.CHECKED_EVERY)


def test_values_that_are_not_finite_are_never_kept() -> None:
    values = [torch.tensor([4.0, torch.nan])] + [torch.tensor([torch.nan, 2.0])] * 60
    found = cpa.descend(Scripted(values), starts(2), Adam(lr=0.1), 60, 1e-3, part())
    assert found.objective.tolist() == [4.0, 2.0]


def rests_at(tolerance: float | None, *values: float) -> Unmixing:
    """Search for two victims: one objective is halved at every check, the other is given."""
    looks = [torch.tensor([2.0**-number, value]) for number, value in enumerate(values)]
    script = [look for look in looks[:-1] for _ in range(cpa.CHECKED_EVERY)] + looks[-1:]
    budget = (len(values) - 1) * cpa.CHECKED_EVERY
    return cpa.descend(Scripted(script), zeros(2), Adam(lr=0.1), budget, tolerance, part())


def test_a_victim_that_rests_stops_alone() -> None:
    found = rests_at(0.01, 10.0, 9.0, 8.95, 1.0, 0.5)
    assert found.iterations.tolist() == [4 * cpa.CHECKED_EVERY, 2 * cpa.CHECKED_EVERY]
    assert found.objective.tolist() == pytest.approx([2.0**-4, 8.95])
    steps = torch.tensor([4, 2])[:, None, None] * cpa.CHECKED_EVERY
    torch.testing.assert_close(found.rows, zeros(2) - 0.1 * steps)


@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_a_victim_alone_ends_as_among_others(tolerance: float | None) -> None:
    objective, first = UnmixingObjective([(1.0, bowl)]), starts(3)
    first[1] = 1.0
    together = cpa.descend(objective, first, Adam(lr=0.01), 400, tolerance, part())
    for victim in range(3):
        alone = cpa.descend(objective, first[[victim]], Adam(lr=0.01), 400, tolerance, part())
        torch.testing.assert_close(alone.rows[0], together.rows[victim])
        assert alone.iterations[0] == together.iterations[victim]
    assert (tolerance is None) == (len(set(together.iterations.tolist())) == 1)
