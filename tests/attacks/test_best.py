"""The attack `best`: what it chooses, and how results are joined."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.api.attack_setting import Setting
from gleak.api.given_specs import client_of
from gleak.api.user_network import examine, prepared_copy
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import MID_GREY
from gleak.attacks.best import DEEP, VERY_DEEP, Best, completed, defence_fields, in_order, nearer
from gleak.attacks.observation import Observation
from gleak.testing.tiny_cells import TinyCells
from tests.zoo import NETWORKS

SHAPE = (3, 8, 8)


def dense(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 48), activation, nn.Linear(48, 10))


def convolutional(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    return nn.Sequential(convolution, activation, nn.Flatten(), nn.Linear(128, 10))


def deep(convolutions: int = DEEP) -> nn.Module:
    network = convolutional(nn.ReLU())
    for _ in range(convolutions - 1):
        network.insert(2, nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()))
    return network


def trained() -> nn.Module:
    network = convolutional(nn.ReLU())
    network.insert(1, nn.BatchNorm2d(8))
    network.train()(torch.rand(4, *SHAPE))
    return network.eval()


def batch(samples: int, shape: tuple[int, ...] = SHAPE) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(samples, *shape, generator=generator), torch.arange(samples)


CHOSEN = [
    (dense(nn.Sigmoid()), 1, "fedsgd", "aono"),
    (dense(nn.ReLU()), 3, "fedsgd", "spear"),
    (dense(nn.Sigmoid()), 3, "fedsgd", "cpa_edges"),
    (dense(nn.ReLU()), 3, "fedavg+local_steps=2+local_lr=0.1", "cpa_edges"),
    (convolutional(nn.Sigmoid()), 1, "fedsgd", "cpl"),
    (convolutional(nn.ReLU()), 1, "fedsgd", "invertgrad"),
    (convolutional(nn.Sigmoid()), 2, "fedsgd", "invertgrad"),
    (deep(), 2, "fedsgd", "agic"),
    (deep(VERY_DEEP), 2, "fedsgd", "agic+iterations=1+seeds=3+result=mean+lr=0.2"),
    (deep(), 2, "fedavg+local_steps=2+local_lr=0.1", "invertgrad"),
    (trained(), 1, "fedsgd", "gradinversion"),
    (trained(), 2, "fedsgd+batch_norm=training", "gradinversion"),
]


def observed(
    network: nn.Module, samples: int = 1, client: str = "fedsgd", shape: tuple[int, ...] = SHAPE
) -> Observation:
    """What a server observes of a client."""
    copied = prepared_copy(network)
    classes = examine(copied, shape)
    inputs, labels = batch(samples, shape)
    update = gleak.compute_update(network, inputs, labels % classes, client=client)
    setting = Setting(copied, shape, classes, client_of(client, samples))
    values = {name: value.numpy() for name, value in update.items()}
    return setting.observe(Best(), setting.update(values), {}, {}, 0)


@pytest.mark.parametrize(("network", "samples", "client", "expected"), CHOSEN)
def test_the_first_attack_suits_the_network_and_the_client(
    network: nn.Module, samples: int, client: str, expected: str
) -> None:
    first = next(Best(budget=2).candidates(observed(network, samples, client)))
    assert str(first.attack).startswith(expected)


@pytest.mark.parametrize(
    ("side", "expected"), [(96, "rog"), (97, "invertgrad"), (88, "invertgrad")]
)
def test_large_images_are_sought_at_half_their_side(side: int, expected: str) -> None:
    pooled = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    network = nn.Sequential(pooled, nn.Flatten(), nn.Linear(64, 10))
    (candidate,) = Best().candidates(observed(network, shape=(3, side, side)))
    assert candidate.attack.name == expected


def best_on(
    network: nn.Module, samples: int, attack: str = "best"
) -> tuple[Tensor, gleak.AttackResult]:
    """Attack a batch; return its inputs and the result."""
    inputs, labels = batch(samples)
    update = gleak.compute_update(network, inputs, labels)
    return inputs, gleak.attack(attack, network, update, SHAPE, batch_size=samples)


def observed_cell(
    cells: TinyCells, model: str, client: str = "fedsgd+victims=2", defense: str = "none"
) -> Observation:
    folder = cells.simulate("image", model=model, client=client, defense=defense)
    return cells.observe(folder, Best())


@pytest.mark.parametrize(("activation", "samples"), [(nn.Sigmoid(), 1), (nn.ReLU(), 4)])
def test_samples_behind_a_dense_layer_are_exact(activation: nn.Module, samples: int) -> None:
    inputs, found = best_on(dense(activation), samples)
    assert torch.cdist(inputs.flatten(1), found.inputs.flatten(1), torch.inf).amin(1).max() < 1e-3


SENT = [
    ("mlp", "topk+keep=0.5", ["matrix_completion", "invertgrad"]),
    ("mlp", "random_mask+keep=0.01", ["invertgrad"]),
    ("lenet+width=4", "topk+keep=0.5", ["invertgrad"]),
]


@pytest.mark.parametrize(("model", "defense", "expected"), SENT)
def test_values_that_were_not_sent_are_completed_where_they_can_be(
    model: str, defense: str, expected: list[str], cells: TinyCells
) -> None:
    candidates = Best().candidates(observed_cell(cells, model, defense=defense))
    assert [str(candidate.attack).partition("+tv")[0] for candidate in candidates] == expected


@pytest.mark.parametrize(("defense", "last"), [("dp", "cpa_noisy"), ("dp+sigma=1e-6", "cpa_edges")])
def test_noise_is_modelled_where_it_is_seen(defense: str, last: str, cells: TinyCells) -> None:
    seen = observed_cell(cells, "mlp+hidden=32", "fedsgd+batch_size=3+victims=2", defense)
    assert [candidate.attack.name for candidate in Best().candidates(seen)] == [last, "invertgrad"]


RELU = "+activation=relu"
SEARCHED = {"draws": "searched", "distance": "likelihood"}
SEEN = [
    ("", "none", {}),
    ("", "soteria", {"compared": "nonzero", "distance": "likelihood", "tv": "0.0001"}),
    (RELU, "soteria", {"compared": "nonzero", "tv": "0.1"}),
    ("", "quantize", {"distance": "likelihood"}),
    ("", "qsgd", {"distance": "likelihood", "tv": "0.3"}),
    (RELU, "qsgd", {"tv": "0.3"}),
    (RELU, "signsgd", {"distance": "likelihood"}),
    ("+precode=5", "none", {**SEARCHED, "tv": "0.0001"}),
    (f"{RELU}+precode=5", "none", {**SEARCHED, "tv": "0.1"}),
]


@pytest.mark.parametrize(("model", "defense", "expected"), SEEN)
def test_gradient_matching_suits_the_defence(
    model: str, defense: str, expected: dict[str, str], cells: TinyCells
) -> None:
    seen = observed_cell(cells, f"lenet+width=4{model}", defense=defense)
    assert {name: str(value) for name, value in defence_fields(seen).items()} == expected


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


@pytest.mark.parametrize(
    "order", list(permutations(["body", "middle", "head", "factor"])), ids="-".join
)
def test_the_order_in_which_layers_are_registered_does_not_matter(order: tuple[str, ...]) -> None:
    inputs, found = best_on(InOrder(order), 4, "best+budget=1")
    assert found.converged
    assert torch.cdist(inputs.flatten(1), found.inputs.flatten(1), torch.inf).amin(1).max() < 1e-3


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


UNUSUAL = {
    "used twice": (lambda: Uneven(used=True), ["invertgrad"]),
    "never used": (lambda: Uneven(used=False), ["cpl", "invertgrad"]),
    "inputs by name": (ByName, ["aono", "invertgrad"]),
    "attention": (NETWORKS["attention"], ["cpl", "invertgrad"]),
    "transformer layer": (NETWORKS["transformer layer"], ["invertgrad"]),
    "LSTM": (NETWORKS["LSTM"], ["cpl", "invertgrad"]),
    "recurrent cell": (NETWORKS["recurrent cell"], ["cpl", "invertgrad"]),
    "learned positions": (NETWORKS["learned positions"], ["aono", "invertgrad"]),
    "tied weights": (NETWORKS["tied weights"], ["aono", "invertgrad"]),
    "orthogonal weight": (NETWORKS["orthogonal weight"], ["cpl", "invertgrad"]),
    "batch statistics": (NETWORKS["batch statistics, functional"], ["cpl", "invertgrad"]),
}


@pytest.mark.parametrize(("build", "expected"), UNUSUAL.values(), ids=UNUSUAL)
def test_attacks_are_chosen_for_unusual_networks(
    build: type[nn.Module], expected: list[str]
) -> None:
    torch.manual_seed(0)
    candidates = Best().candidates(observed(build()))
    assert [candidate.attack.name for candidate in candidates] == expected


def test_a_victim_comes_out_as_alone_whatever_the_others_send(cells: TinyCells) -> None:
    attack = Best(budget=2)
    seen = observed_cell(cells, "mlp+hidden=32", "fedsgd+batch_size=3+victims=3")
    weight = next(name for name in seen.update if name.endswith("weight"))
    noisy = seen.update[weight].clone()
    noisy[1:] += noisy[1:].square().mean().sqrt() * torch.randn(noisy[1:].shape)
    every = replace(seen, update={**seen.update, weight: noisy})
    together = attack.reconstruct(every)
    for row in range(3):
        alone = attack.reconstruct(every.of_victim(row))
        np.testing.assert_array_equal(alone.inputs[0], together.inputs[row])
        np.testing.assert_array_equal(alone.labels[0], together.labels[row])
    names = [[c.attack.name for c in attack.candidates(every.of_victim(row))] for row in range(3)]
    assert names == [["cpa_edges", "invertgrad"], *[["cpa_noisy", "invertgrad"]] * 2]


@pytest.mark.parametrize("network", [dense(nn.ReLU()), convolutional(nn.Sigmoid())])
def test_of_an_update_of_zeros_no_search_converges(network: nn.Module) -> None:
    inputs, labels = batch(1)
    update = gleak.compute_update(network, inputs, labels)
    silent = {name: torch.zeros_like(value) for name, value in update.items()}
    assert not gleak.attack("best+budget=1", network, silent, SHAPE).converged


def test_of_one_sample_twice_it_is_found_but_the_victim_has_not_converged() -> None:
    """`spear` finds three samples; `cpa_edges` and a search look for a fourth."""
    inputs, _ = batch(3)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 300), nn.ReLU(), nn.Linear(300, 5))
    update = gleak.compute_update(network, inputs[[0, 0, 1, 2]], [0, 0, 2, 3])
    found = gleak.attack("best+budget=1", network, update, SHAPE, batch_size=4)
    assert not found.converged
    nearest = torch.cdist(inputs.flatten(1), found.inputs.flatten(1)).min(1).values
    assert nearest.max() < 1e-2


@pytest.mark.parametrize("scale", [1, 0.02])
def test_of_two_results_of_one_sample_that_with_the_nearer_gradient_is_kept(scale: float) -> None:
    """A client that clips its gradient sends a shorter one, and no image has exactly that."""
    network, (inputs, labels) = convolutional(nn.Tanh()), batch(2)
    updates = [gleak.compute_update(network, inputs[[i]], labels[[i]]) for i in range(2)]
    observation = Observation(
        update={
            name: scale * torch.stack([u[name] for u in updates])[:, None] for name in updates[0]
        },
        sent={},
        model=network.requires_grad_(False),
        modality="image",
        input_shape=SHAPE,
        classes=10,
        protocol=Protocol(),
        granted={},
        victim_ids=np.arange(2),
        seed=0,
    )
    far = (scale * inputs + 0.2 * torch.rand(inputs.shape)).clamp(0, 1)
    near = inputs + 1e-3
    results = [
        Reconstruction(
            inputs=torch.stack(samples)[:, None].numpy(),
            labels=labels[:, None].numpy(),
            converged=np.zeros(2, bool),
        )
        for samples in ((near[0], far[1]), (far[0], near[1]))
    ]
    kept = nearer(*results, np.arange(2), observation)
    np.testing.assert_array_equal(kept.inputs[:, 0], near.numpy())


def reconstruction(*victims: list[list[float]], converged: list[int]) -> Reconstruction:
    inputs = np.array(victims, np.float32)[..., None]
    labels = np.zeros(inputs.shape[:2], int)
    return Reconstruction(inputs=inputs, labels=labels, converged=np.array(converged, bool))


def test_samples_that_were_found_are_kept_and_the_others_are_taken_from_the_later_attack() -> None:
    missing = [MID_GREY] * 2
    first = reconstruction([[0, 0], [1, 1]], [[0.1, 0.9], missing], converged=[True, False])
    later = reconstruction([[0.2, 0.2], [0.1, 0.8]], converged=[True])
    found = completed(first, later, np.array([1]))
    assert np.array_equal(found.inputs[0], first.inputs[0])
    assert np.allclose(found.inputs[1, ..., 0], [[0.1, 0.9], [0.2, 0.2]])
    assert found.converged.tolist() == [True, False]


def test_a_victim_whose_samples_are_those_of_two_attacks_has_not_converged() -> None:
    """One of which nothing was found is replaced, and one whose search did not converge."""
    missing = [MID_GREY] * 2
    first = reconstruction([[0.1, 0.9], missing], [missing] * 2, [[0.3] * 2] * 2, converged=[0] * 3)
    later = reconstruction(
        [[0.2, 0.2], [0.1, 0.8]], [[0.3, 0.3]] * 2, [[0.7] * 2] * 2, converged=[1, 1, 0]
    )
    found = completed(first, later, np.arange(3))
    assert found.converged.tolist() == [False, True, False]
    assert np.allclose(found.inputs[2], 0.7)


def test_groups_are_joined_in_the_order_of_their_victims() -> None:
    one = reconstruction([[0.1, 0.1]], [[0.3, 0.3]], converged=[True, False])
    other = reconstruction([[0.2, 0.2]], converged=[True])
    found = in_order([one, other], [np.array([0, 2]), np.array([1])])
    assert np.allclose(found.inputs[:, 0, 0, 0], [0.1, 0.2, 0.3])
    assert found.converged.tolist() == [True, True, False]
    assert in_order([one], [np.arange(2)]) is one
