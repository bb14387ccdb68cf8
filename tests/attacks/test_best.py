"""The attack `best`: what it runs, what it chooses, and how results are joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.api.attack_setting import Setting
from gleak.api.given_specs import client_of
from gleak.api.user_network import examine, prepared_copy
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import AttackSpec
from gleak.attacks.best import OF_SIGNS, SELECTED, Best, best_after, in_order
from gleak.attacks.candidates import (
    EXPLAINING,
    FINISHED,
    NOT_RUN,
    POLISHED,
    RESCALED,
    Candidates,
)
from gleak.attacks.observation import Observation
from gleak.attacks.observed_direction import of_signs
from gleak.core import registry
from gleak.core.errors import GleakError, IncompatibleError, StoppedError
from gleak.core.registry import load
from gleak.core.spec import parameter
from gleak.testing.tiny_cells import TinyCells
from tests.attacks.cases import natural_images
from tests.zoo import NETWORKS

SHAPE = (3, 8, 8)
Find = Callable[[Observation, int], Reconstruction]
Ensemble = Callable[..., None]


def dense(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 48), activation, nn.Linear(48, 10))


def convolutional(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    return nn.Sequential(convolution, activation, nn.Flatten(), nn.Linear(128, 10))


def batch(samples: int) -> tuple[Tensor, Tensor]:
    return natural_images(samples, SHAPE), torch.arange(samples) + 3


def observed(
    network: nn.Module, samples: int = 1, client: str = "fedsgd", **sent: Tensor
) -> Observation:
    """What a server observes of a client; ``sent`` has masks."""
    copied = prepared_copy(network)
    classes = examine(copied, SHAPE)
    inputs, labels = batch(samples)
    update = gleak.compute_update(network, inputs, labels % classes, client=client)
    values = {k.replace(".", "__"): v for k, v in update.items()}
    values = {k.replace("__", "."): (v * sent.get(k, 1)).numpy() for k, v in values.items()}
    masks = {k.replace("__", "."): v.numpy() for k, v in sent.items()}
    setting = Setting(copied, SHAPE, classes, client_of(client, samples))
    return setting.observe(Best(), setting.update(values, masks), {}, {}, 0)


def result_of(seen: Observation, inputs: Tensor, labels: Tensor) -> Reconstruction:
    """Return these samples for every victim."""
    victims = seen.victims
    return Reconstruction(
        inputs=inputs[None].expand(victims, *inputs.shape).numpy(),
        labels=labels[None].expand(victims, -1).numpy(),
        converged=np.ones(victims, bool),
    )


def proposing(name: str, find: Find, *, searches: bool = False) -> type[AttackSpec]:
    """Return an attack that finds what a function of the observation and the budget says."""

    class Proposing(AttackSpec):
        """Finds what the test says.

        In more than one line.
        """

        name: ClassVar[str]

        budget: int = parameter(0, "evaluations")

        def cost(self) -> SearchCost:
            return SearchCost(evaluations=(self.budget or 1) * searches)

        def proposals(self, observation: Observation, evaluations: int) -> list[AttackSpec]:
            self.check_observation(observation)
            return [self.model_copy(update={"budget": evaluations if searches else 0})]

        def reconstruct(self, observation: Observation) -> Reconstruction:
            return find(observation, self.budget)

    Proposing.name = name
    return Proposing


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    """Let `best` have these members alone, which are registered while the test runs."""
    known = load("attack")

    def make(*members: type[AttackSpec] | str) -> None:
        classes = [known[one] if isinstance(one, str) else one for one in members]
        named = {cls.name: cls for cls in [*classes, Best]}
        monkeypatch.setitem(registry._REGISTERED, "attack", named)

    return make


def away(distance: float) -> Find:
    """Find the true samples with an error of this size, and the true labels."""

    def find(seen: Observation, budget: int) -> Reconstruction:
        inputs, labels = batch(seen.batch_size)
        return result_of(seen, (inputs + distance * torch.ones(8).cumsum(0).cos()), labels)

    return find


def failing(error: Exception) -> Find:
    def find(seen: Observation, budget: int) -> Reconstruction:
        raise error

    return find


def listed(found: Reconstruction) -> list[tuple[str, str, bool]]:
    return [(one.attack, one.reason, one.chosen) for one in found.candidates(0)]


def chosen(found: Reconstruction) -> str:
    (one,) = [one for one in found.candidates(0) if one.chosen]
    return one.attack


SMOOTH = convolutional(nn.Sigmoid())
ONE_STEP = Best(budget=1)


def test_an_attack_of_a_plug_in_is_a_member_and_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = proposing("own", away(0))
    monkeypatch.setitem(registry._REGISTERED["attack"], "own", own)
    assert own() in Best().members
    found = ONE_STEP.reconstruct(observed(SMOOTH))
    assert chosen(found) == "own"
    np.testing.assert_allclose(found.inputs[0], batch(1)[0], atol=1e-6)
    assert ("own", "Finds what the test says", True) in listed(found)


def test_the_candidate_of_least_criterion_is_chosen_whatever_the_order(ensemble: Ensemble) -> None:
    ensemble(*(proposing(name, away(far)) for name, far in [("a", 0.2), ("b", 0.02), ("c", 0.1)]))
    found = ONE_STEP.reconstruct(observed(SMOOTH, 2))
    first = found.candidates(0)[:3]
    assert [one.attack for one in first] == ["a", "b", "c"]
    assert first[1].criterion < first[2].criterion < first[0].criterion
    assert chosen(found) == "b"
    assert found.objective is not None
    assert found.objective[0] == min(one.criterion for one in found.candidates(0))


@pytest.mark.parametrize("keeps", [True, False])
def test_samples_of_an_attack_that_keeps_them_are_not_polished(
    keeps: bool, ensemble: Ensemble
) -> None:
    own = proposing("own", away(0.1))
    own.keeps_samples = lambda self, observation: keeps
    ensemble(own)
    found = Best(budget=50).reconstruct(observed(SMOOTH))
    first = found.candidates(0)[0]
    assert (first.attack, first.chosen) == ("own", keeps)
    assert np.array_equal(found.inputs[0], first.inputs) is keeps


def test_members_that_do_not_suit_are_listed_with_the_reason() -> None:
    reasons = {one.attack.name: one.reason for one in Best().proposed(observed(SMOOTH), 8)}
    assert reasons["spear"].startswith("a dense layer with a bias is needed")
    assert reasons["melis"] == "needs auxiliary_inputs, auxiliary_labels"
    assert reasons["mkor"] == "needs parameters crafted by mkor"
    assert reasons["blind"] == "needs mean_input"
    assert reasons["cpl"] == load("attack")["cpl"].superseded
    assert reasons["invertgrad"] == "map finds more in networks without kinks"
    assert reasons.keys() == load("attack").keys() - {"best"}


def test_members_that_suit_need_no_grant_no_knowledge_and_no_crafting() -> None:
    """So the choice cannot depend on the truth, of which the observation has nothing."""
    for network in (SMOOTH, dense(nn.ReLU())):
        for one in Best().proposed(observed(network, 2), 8):
            assert not one.suits or not (
                one.attack.grants or one.attack.knowledge or one.attack.crafting
            )


def test_no_attack_separates_more_samples_than_the_first_dense_layer_has_neurons() -> None:
    network = dense(nn.ReLU())
    neurons = len(network[1].bias)
    for count in (neurons, neurons + 1):
        reasons = {one.attack.name: one for one in Best().proposed(observed(network, count), 8)}
        assert reasons["cpa_edges"].suits == (count == neurons)
    assert f"{neurons + 1} and {neurons}" in reasons["cpa_edges"].reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IncompatibleError("not this one"), "not this one"),
        (ValueError("a\nfault"), "ValueError: a fault"),
        (KeyError("weight"), "KeyError: 'weight'"),
    ],
)
def test_an_attack_that_fails_leaves_its_error_and_the_others_go_on(
    error: Exception, said: str, ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    ensemble(proposing("bad", failing(error)), proposing("good", away(0.1)))
    found = ONE_STEP.reconstruct(observed(SMOOTH))
    assert listed(found)[0] == ("bad", f"failed: {said}", False)
    assert chosen(found) == "good"
    assert f"bad failed and is left out: {said}" in caplog.text


def test_an_attack_whose_result_has_another_shape_is_left_out(ensemble: Ensemble) -> None:
    inputs, labels = batch(2)
    large = proposing("large", lambda seen, _: result_of(seen, inputs, labels))
    ensemble(large, proposing("good", away(0.1)))
    found = ONE_STEP.reconstruct(observed(SMOOTH))
    reasons = {attack: reason for attack, reason, _ in listed(found)}
    assert reasons["large"].startswith("failed: found samples of shape (2, 3, 8, 8)")
    assert chosen(found) == "good"


def test_if_all_fail_the_error_names_them(ensemble: Ensemble) -> None:
    ensemble("blind", proposing("bad", failing(ValueError("a fault"))))
    with pytest.raises(GleakError, match=r"of victim 0 \(.*; bad: failed: ValueError: a"):
        ONE_STEP.reconstruct(observed(SMOOTH))


def test_a_request_to_stop_is_no_failure(ensemble: Ensemble) -> None:
    ensemble(proposing("stopped", failing(StoppedError("SIGTERM"))), proposing("good", away(0.1)))
    with pytest.raises(StoppedError):
        ONE_STEP.reconstruct(observed(SMOOTH))


@pytest.mark.parametrize("samples", [1, 2])
def test_samples_without_a_criterion_lose(samples: int, ensemble: Ensemble) -> None:
    def find(seen: Observation, budget: int) -> Reconstruction:
        inputs, labels = batch(samples)
        return result_of(seen, torch.full_like(inputs, torch.nan), labels)

    ensemble(proposing("empty", find), proposing("good", away(0.1)))
    assert chosen(ONE_STEP.reconstruct(observed(SMOOTH, samples))) == "good"


def test_a_candidate_that_explains_the_update_ends_the_search(ensemble: Ensemble) -> None:
    asked = []

    def find(seen: Observation, budget: int) -> Reconstruction:
        asked.append(seen)
        return away(0.1)(seen, budget)

    ensemble(proposing("exact", away(0)), "map", proposing("other", find, searches=True))
    found = ONE_STEP.reconstruct(observed(SMOOTH))
    reasons = {attack.partition("+")[0]: reason for attack, reason, _ in listed(found)}
    assert reasons == {"exact": "Finds what the test says", "map": NOT_RUN, "other": NOT_RUN}
    assert not asked
    assert found.converged.all()


def test_where_fewer_values_were_sent_than_samples_have_the_search_goes_on(
    ensemble: Ensemble,
) -> None:
    ensemble(proposing("exact", away(0)), proposing("other", away(0.1)))
    sent = {"0__weight": torch.zeros(8, 3, 3, 3), "3__weight": torch.zeros(10, 128)}
    found = ONE_STEP.reconstruct(observed(SMOOTH, **{k: v.bool() for k, v in sent.items()}))
    assert NOT_RUN not in {reason for _, reason, _ in listed(found)}


def test_several_searches_share_the_budget_and_the_best_has_all_of_it(ensemble: Ensemble) -> None:
    budgets: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    def searching(name: str, far: float) -> type[AttackSpec]:
        def find(seen: Observation, budget: int) -> Reconstruction:
            budgets[name].append(budget)
            return away(far)(seen, budget)

        return proposing(name, find, searches=True)

    ensemble(searching("a", 0.2), searching("b", 0.1), searching("c", 0.15))
    found = Best(budget=10).reconstruct(observed(SMOOTH))
    assert budgets == {"a": [3], "b": [3, 10], "c": [3]}
    assert ("b+budget=10", SELECTED) in [one[:2] for one in listed(found)]


@pytest.mark.parametrize(
    ("defense", "distance", "is_start"),
    [("quantize", 0.1, True), ("quantize", 0.25, False), ("none", 0.1, False)],
)
def test_of_codes_what_is_better_than_the_most_probable_samples_is_searched_from(
    defense: str,
    distance: float,
    is_start: bool,
    ensemble: Ensemble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the exact samples of another attack are better still."""
    ensemble(proposing("closed", away(0.3)), proposing("searching", away(distance), searches=True))
    starts = list[str]()

    def polish(
        self: Candidates, rows: np.ndarray, count: int, reason: str, places: np.ndarray, **_: Any
    ) -> np.ndarray:
        if reason == POLISHED:
            starts.extend(self.listed[row][places[at]].attack for at, row in enumerate(rows))
        probable = np.array([len(self.listed[row]) for row in rows], dtype=int)
        for nearer in (0.2, 0.05) if len(rows) else ():
            seen = self.posterior.observation.of_victims(rows)
            self.consider(["closed"] * len(rows), reason, rows, away(nearer)(seen, 0))
        return probable

    monkeypatch.setattr(Candidates, "polish", polish)
    inputs, labels = batch(1)
    update = gleak.compute_update(SMOOTH, inputs, labels, defense=defense)
    gleak.attack(ONE_STEP, SMOOTH, update, SHAPE, defense=defense)
    names = [start.partition("+")[0] for start in starts]
    assert names == (["closed", "searching"] if is_start else ["closed"])


def test_the_best_of_later_candidates_is_found_whatever_was_before(ensemble: Ensemble) -> None:
    ensemble(*(proposing(f"a{place}", away(0.1)) for place in range(3)))
    candidates = Best()._candidates(observed(SMOOTH))
    for distance in (0.05, 0.3, 0.2):
        seen = candidates.posterior.observation
        candidates.consider(["a"], "run", np.array([0]), away(distance)(seen, 0))
    assert candidates.chosen.tolist() == [0]
    assert [int(best_after(candidates, [count])[0]) for count in range(4)] == [0, 2, 2, -1]


def test_one_search_alone_has_the_whole_budget_at_once(ensemble: Ensemble) -> None:
    budgets = []

    def find(seen: Observation, budget: int) -> Reconstruction:
        budgets.append(budget)
        return away(0.1)(seen, budget)

    ensemble(proposing("alone", find, searches=True))
    Best(budget=10).reconstruct(observed(SMOOTH))
    assert budgets == [10]


def in_noise(seen: Observation) -> Observation:
    """The same update with noise of three times its size."""
    draw = torch.Generator().manual_seed(0)
    size = {name: 3 * value.square().mean().sqrt() for name, value in seen.update.items()}
    noise = {k: size[k] * torch.randn(v.shape, generator=draw) for k, v in seen.update.items()}
    return replace(seen, update={k: v + noise[k] for k, v in seen.update.items()})


def of_its_signs(seen: Observation) -> Observation:
    return replace(of_signs(seen), sent={})


@pytest.mark.parametrize(
    ("network", "change", "is_searched"),
    [
        (convolutional, in_noise, True),
        (dense, in_noise, False),
        (convolutional, of_its_signs, False),
    ],
    ids=["convolutions", "closed form", "signs sent"],
)
def test_signs_are_a_start_where_no_closed_form_suits_and_much_is_left(
    network: Callable[[nn.Module], nn.Module],
    change: Callable[[Observation], Observation],
    is_searched: bool,
) -> None:
    found = Best(budget=10).reconstruct(change(observed(network(nn.Tanh()))))
    reasons = [reason for _, reason, _ in listed(found)]
    assert (OF_SIGNS in reasons) == is_searched
    if is_searched:
        assert reasons[reasons.index(OF_SIGNS) + 1 :] == [POLISHED, FINISHED]


@pytest.mark.parametrize("noisy", [False, True])
def test_without_noise_exact_samples_are_searched_before_probable_ones(noisy: bool) -> None:
    seen = observed(convolutional(nn.Tanh()))
    found = Best(budget=100).reconstruct(in_noise(seen) if noisy else seen)
    reasons = [reason for _, reason, _ in listed(found)]
    assert (EXPLAINING in reasons, POLISHED in reasons) == (not noisy, noisy)
    if not noisy:
        assert np.abs(found.inputs - batch(1)[0].numpy()).max() <= 1e-2


@pytest.mark.parametrize(
    ("samples", "clipping", "norm", "scaled"),
    [
        (1, "update", None, True),
        (2, "update", None, False),
        (1, "parameter", None, False),
        (1, "parameter", 9.0, True),
    ],
)
def test_one_sample_of_clipped_gradients_is_scaled_last(
    samples: int, clipping: Any, norm: float | None, scaled: bool
) -> None:
    seen = in_noise(observed(dense(nn.ReLU()), samples))
    seen = replace(seen, protocol=replace(seen.protocol, clipping=clipping, norm_if_clipped=norm))
    reasons = [reason for _, reason, chosen in listed(Best(budget=10).reconstruct(seen)) if chosen]
    assert (reasons == [RESCALED]) == scaled


def test_searches_come_in_one_order_whatever_the_budget() -> None:
    network = convolutional(nn.ReLU())
    for _ in range(15):
        network.insert(2, nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()))
    seen = observed(network, 2)
    orders = [
        [one.attack.name for one in Best().proposed(seen, budget) if one.shares_budget]
        for budget in (4800, 1600, 7)
    ]
    assert len(orders[0]) > 1
    assert all(one == other for one, other in pairwise(orders))


def best_on(
    network: nn.Module, samples: int, attack: str = "best"
) -> tuple[Tensor, gleak.AttackResult]:
    """Attack a batch; return its inputs and the result."""
    inputs, labels = batch(samples)
    update = gleak.compute_update(network, inputs, labels)
    return inputs, gleak.attack(attack, network, update, SHAPE, batch_size=samples)


def largest_error(inputs: Tensor, found: Tensor) -> float:
    """Compute the largest error of a value of the sample nearest to each true one."""
    distances = torch.cdist(inputs.flatten(1), found.flatten(1), torch.inf)
    return float(distances.amin(1).max())


@pytest.mark.parametrize(("activation", "samples"), [(nn.Sigmoid(), 1), (nn.ReLU(), 4)])
def test_samples_behind_a_dense_layer_are_exact(activation: nn.Module, samples: int) -> None:
    inputs, found = best_on(dense(activation), samples)
    assert largest_error(inputs, found.inputs) < 1e-3


class InOrder(nn.Module):
    """The same perceptron, whose layers and factor are registered in some order."""

    def __init__(self, order: tuple[str, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = {
            "body": nn.Linear(192, 48),
            "middle": nn.Linear(48, 24),
            "head": nn.Linear(24, 10),
            "factor": nn.Parameter(torch.ones(1)),
        }
        for name in order:
            setattr(self, name, parts[name])

    def forward(self, inputs: Tensor) -> Tensor:
        embeddings = self.middle(self.body(inputs.flatten(1)).relu()).relu()
        return self.head(self.factor * embeddings)


ORDERS = [
    ("body", "middle", "head", "factor"),
    ("factor", "head", "middle", "body"),
    ("middle", "factor", "body", "head"),
    ("head", "body", "factor", "middle"),
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_the_order_in_which_layers_are_registered_does_not_matter(
    order: tuple[str, ...], ensemble: Ensemble
) -> None:
    ensemble("aono", "spear", "map")
    inputs, found = best_on(InOrder(order), 4, "best+budget=1")
    assert found.converged
    assert largest_error(inputs, found.inputs) < 1e-3


class Uneven(nn.Module):
    """Its first convolution is used twice, or never."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.used, self.first = used, nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Linear(192, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.used:
            inputs = self.first(self.first(inputs).relu())
        return self.head((2 * inputs).square().flatten(1))


class ByName(nn.Module):
    """Its layers are given their inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(192, 6), nn.Linear(6, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(input=self.first(input=inputs.flatten(1)).sigmoid())


FIRST_LAYER = {"aono", "cpa_edges", "cpa_noisy", "singular_vectors"}
UNUSUAL = {
    "used twice": (lambda: Uneven(used=True), {"invertgrad", "sparse_fi"}),
    "never used": (lambda: Uneven(used=False), set()),
    "inputs by name": (ByName, FIRST_LAYER),
    "attention": (NETWORKS["attention"], set()),
    "transformer layer": (NETWORKS["transformer layer"], {"invertgrad"}),
    "LSTM": (NETWORKS["LSTM"], set()),
    "recurrent cell": (NETWORKS["recurrent cell"], set()),
    "learned positions": (NETWORKS["learned positions"], FIRST_LAYER),
    "tied weights": (NETWORKS["tied weights"], FIRST_LAYER),
    "orthogonal weight": (NETWORKS["orthogonal weight"], set()),
    "batch statistics": (NETWORKS["batch statistics, functional"], set()),
}


@pytest.mark.parametrize(("build", "expected"), UNUSUAL.values(), ids=UNUSUAL)
def test_attacks_are_proposed_for_unusual_networks(
    build: type[nn.Module], expected: set[str]
) -> None:
    torch.manual_seed(0)
    proposed = Best().proposed(observed(build()), 8)
    assert {one.attack.name for one in proposed if one.suits} == expected | {"map"}


def test_a_victim_comes_out_as_alone_whatever_the_others_send(
    cells: TinyCells, ensemble: Ensemble
) -> None:
    ensemble("cpa_edges", "singular_vectors")
    attack = Best(budget=2)
    clients = {"model": "mlp+hidden=32", "client": "fedsgd+batch_size=3+victims=3"}
    seen = cells.observe(cells.simulate("image", **clients), attack)
    weight = next(name for name in seen.update if name.endswith("weight"))
    noisy = seen.update[weight].clone()
    noise = torch.randn(noisy[1:].shape, generator=torch.Generator().manual_seed(1))
    noisy[1:] += noisy[1:].square().mean().sqrt() * noise
    every = replace(seen, update={**seen.update, weight: noisy})
    together = attack.reconstruct(every)
    for row in range(3):
        alone = attack.reconstruct(every.of_victim(row))
        np.testing.assert_allclose(alone.inputs[0], together.inputs[row], atol=1e-2)
        np.testing.assert_array_equal(alone.labels[0], together.labels[row])
        names = [
            [one.attack for one in found.candidates(victim)]
            for found, victim in ((alone, 0), (together, row))
        ]
        assert names[0] == names[1]


@pytest.mark.parametrize("network", [dense(nn.ReLU()), SMOOTH])
def test_of_an_update_of_zeros_no_search_converges(network: nn.Module) -> None:
    inputs, labels = batch(1)
    update = gleak.compute_update(network, inputs, labels)
    silent = {name: torch.zeros_like(value) for name, value in update.items()}
    assert not gleak.attack("best+budget=1", network, silent, SHAPE).converged


def test_of_one_sample_twice_it_is_found(ensemble: Ensemble) -> None:
    ensemble("aono", "cpa_edges", "singular_vectors", "spear")
    inputs, _ = batch(3)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 300), nn.ReLU(), nn.Linear(300, 5))
    update = gleak.compute_update(network, inputs[[0, 0, 1, 2]], [0, 0, 2, 3])
    found = gleak.attack("best+budget=1", network, update, SHAPE, batch_size=4)
    nearest = torch.cdist(inputs.flatten(1), found.inputs.flatten(1)).min(1).values
    assert nearest.max() < 1e-2


def random_mask(share: float) -> dict[str, Tensor]:
    stream = torch.Generator().manual_seed(2)
    shapes = {"0__weight": (8, 3, 3, 3), "0__bias": (8,), "3__weight": (10, 128), "3__bias": (10,)}
    return {
        name: torch.rand(shape, generator=stream) < (0 if name == "3__bias" else share)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("share", [1, 0.3])
def test_the_label_of_one_sample_is_right_where_the_classifiers_bias_is_masked(
    share: float, ensemble: Ensemble
) -> None:
    ensemble("map")
    found = Best(budget=8).reconstruct(observed(SMOOTH, **random_mask(share)))
    assert found.labels.tolist() == [[3]]


@pytest.mark.parametrize("defense", ["topk+keep=0.1", "random_mask+keep=0.1"])
def test_labels_are_right_where_a_tenth_of_the_values_was_sent(
    defense: str, cells: TinyCells, ensemble: Ensemble
) -> None:
    ensemble("map")
    folder = cells.simulate("image", client="fedsgd+victims=2", defense=defense)
    seen = cells.observe(folder, Best())
    assert seen.sent
    found = Best(budget=8).reconstruct(seen)
    np.testing.assert_array_equal(found.labels, Private.read(folder / "private.h5").labels)


def reconstruction(*victims: list[list[float]], converged: list[int]) -> Reconstruction:
    inputs = np.array(victims, np.float32)[..., None]
    labels = np.zeros(inputs.shape[:2], int)
    return Reconstruction(inputs=inputs, labels=labels, converged=np.array(converged, bool))


def test_groups_are_joined_in_the_order_of_their_victims() -> None:
    one = reconstruction([[0.1, 0.1]], [[0.3, 0.3]], converged=[True, False])
    other = reconstruction([[0.2, 0.2]], converged=[True])
    found = in_order([one, other], [np.array([0, 2]), np.array([1])])
    assert np.allclose(found.inputs[:, 0, 0, 0], [0.1, 0.2, 0.3])
    assert found.converged.tolist() == [True, True, False]
    assert in_order([one], [np.arange(2)]) is one
