"""`gleak.attack`: equal to the workflow's attack, on a user's own network and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gleak
from gleak.api.attacking import AttackResult
from gleak.artifacts.model import Model
from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.artifacts.update import Granted, Update
from gleak.attacks.run_attack import attack as run_attack
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network

Simulate = Callable[..., Path]
SHAPE, CLASSES = (3, 8, 8), 4


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Sigmoid(), nn.Linear(16, CLASSES))


def batch(size: int = 1) -> tuple[Tensor, Tensor]:
    inputs = torch.rand(size, *SHAPE, generator=torch.Generator().manual_seed(1))
    return inputs, torch.arange(size) % CLASSES


def gradients(model: nn.Module, size: int = 1) -> tuple[Tensor, ...]:
    inputs, labels = batch(size)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    return torch.autograd.grad(loss, list(model.parameters()))


def by_name(model: nn.Module, values: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return dict(zip(dict(model.named_parameters()), values, strict=True))


SHORT = "invertgrad+iterations=2"
STEPS = "fedavg+batch_size=2+local_steps=2+local_lr=0.1"


@pytest.mark.parametrize(
    ("spec", "client"),
    [
        ("cpl+iterations=3", "fedsgd"),
        ("blind", "fedsgd+batch_size=2"),
        ("invertgrad+iterations=3+labels=known", "fedsgd+batch_size=2"),
        ("invertgrad+iterations=3+client_model=unrolled", f"{STEPS}+sends=weights"),
        ("gm+iterations=3", f"{STEPS}+mini_batch=1+loss=nll_raw"),
        ("melis", "fedsgd+batch_size=2"),
    ],
)
def test_the_result_is_that_of_the_workflow(
    spec: str, client: str, simulate: Simulate, tmp_path: Path
) -> None:
    """Every array, and each bit of it, whether a client is described by its spec or its update."""
    folder = simulate(client=f"{client}+victims=1")
    grants = {name: folder / f"granted/{name}.h5" for name in parse("attack", spec).grants}
    files = (folder / "update.h5", folder / "model.h5", grants, tmp_path / "r.h5")
    run_attack(parse("attack", spec), *files, seed=3, device="cpu")
    expected = Reconstruction.read(tmp_path / "r.h5")

    model = load_network(Model.read(folder / "model.h5"), "model.h5")
    update = Update.read(folder / "update.h5")
    values = {name: torch.from_numpy(each.decode()[0, 0]) for name, each in update.update.items()}
    granted = {name: Granted.read(path).values[0] for name, path in grants.items()}
    for known in (client, parse("client", client), update.protocol):
        found = gleak.attack(
            spec, model, values, SHAPE, client=known, grants=granted, seed=3, device="cpu"
        ).reconstruction
        for name, value in vars(expected).items():
            if name != "spec":
                assert np.array_equal(getattr(found, name), value), name


def test_a_users_own_network_and_autograd_gradients_serve() -> None:
    model, (inputs, labels) = network(), batch()
    found = gleak.attack("aono", model, gradients(model), SHAPE)
    assert found.inputs.shape == (1, *SHAPE)
    assert found.labels.tolist() == labels.tolist()
    assert found.converged
    assert found.iterations is None
    torch.testing.assert_close(found.inputs, inputs, atol=1e-3, rtol=0)


class OfOneLogit(nn.Module):
    """Two logits of a network trained by binary cross-entropy, as in docs/guide/networks.md."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        logit = self.network(inputs)
        return torch.cat([torch.zeros_like(logit), logit], 1)


def test_best_finds_a_sample_by_an_update_of_binary_cross_entropy() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 1))
    inputs, labels = batch()
    loss = nn.functional.binary_cross_entropy_with_logits(one(inputs)[:, 0], labels.float())
    values = torch.autograd.grad(loss, list(one.parameters()))
    found = gleak.attack("best+budget=50", OfOneLogit(one), values, SHAPE)
    assert gleak.score(found, inputs)["psnr"] > 40


def test_frozen_parameters_are_left_out_or_none() -> None:
    model = network()
    model[1].requires_grad_(False)
    inputs, labels = batch()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters()}
    every, trained = [*named.values()], [value for value in named.values() if value is not None]
    first, *others = (gleak.attack(SHORT, model, v, SHAPE).inputs for v in (every, named, trained))
    assert all(torch.equal(first, other) for other in others)


def test_none_stands_for_the_gradient_of_an_unused_parameter() -> None:
    model = network()
    values = by_name(model, gradients(model))
    zeros = torch.zeros_like(values["1.bias"])
    found, expected = (
        gleak.attack(SHORT, model, {**values, "1.bias": unused}, SHAPE) for unused in (None, zeros)
    )
    assert torch.equal(found.inputs, expected.inputs)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_caller_keeps_network_modes_and_random_numbers(mode: Callable[[], Any]) -> None:
    model = nn.Sequential(network(), nn.ReLU(inplace=True)).train()
    values = [value.clone() for value in gradients(model)]
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with mode():
        found = gleak.attack("cpl+iterations=2", model, values, SHAPE)
        assert torch.is_grad_enabled() is False
    assert model.training
    assert model[1].inplace
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found.inputs, gleak.attack("cpl+iterations=2", model, values, SHAPE).inputs)


def test_labels_that_are_known_are_granted_in_any_order() -> None:
    model = network()
    values = gradients(model, 3)
    found = [
        gleak.attack(SHORT, model, values, SHAPE, labels=labels)
        for labels in ([0, 1, 2], torch.tensor([2, 0, 1]))
    ]
    assert found[0].spec == "invertgrad+iterations=2+labels=known"
    assert found[0].labels.tolist() == [0, 1, 2]
    assert torch.equal(found[0].inputs, found[1].inputs)


def test_fields_may_come_in_any_order_and_as_a_spec_object() -> None:
    model = network()
    texts = "invertgrad+tv=0.1+iterations=2", parse("attack", "invertgrad+iterations=2+tv=0.1")
    one, other = (gleak.attack(text, model, gradients(model), SHAPE) for text in texts)
    assert one.spec == other.spec
    assert torch.equal(one.inputs, other.inputs)


def test_rows_of_a_table_are_attacked_and_are_no_picture(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    row = torch.linspace(0, 1, 6)[None]
    loss = nn.functional.cross_entropy(model(row), torch.tensor([1]))
    values = torch.autograd.grad(loss, list(model.parameters()))
    found = gleak.attack("aono", model, values, shape=(6,))
    torch.testing.assert_close(found.inputs, row, atol=1e-3, rtol=0)
    with pytest.raises(ArtifactError, match=r"samples of shape \(6,\) are not images"):
        found.save(tmp_path / "found.png")


def test_a_result_lists_the_candidates_of_an_ensemble_and_scores_compare_them() -> None:
    truth, labels = batch()
    near, far = ((truth + shift).clip(0, 1).numpy() for shift in (0.01, 0.1))
    listed = [
        Candidate(attack="cpl", reason="r", criterion=2, inputs=far, labels=labels, chosen=True),
        Candidate(attack="aono+x=1", reason="s", criterion=3, inputs=near, labels=labels),
        Candidate(attack="spear", reason="no ReLU"),
    ]
    chosen = Reconstruction(
        inputs=far[None], labels=labels[None].numpy(), converged=np.array([False])
    )
    found = AttackResult.of("best", chosen.with_candidates([listed]), {}, 1)
    shown = [(each.attack, each.reason, each.chosen) for each in found.candidates]
    assert shown == [("cpl", "r", True), ("aono+x=1", "s", False), ("spear", "no ReLU", False)]
    scores = gleak.score(found, truth)
    cost = scores["psnr_hindsight"] - scores["psnr"]
    assert scores["psnr_hindsight"] == gleak.score(near, truth)["psnr"]
    assert scores["choice_cost"] == pytest.approx(cost) and cost > 10
    assert (scores["chosen+attack=cpl"], scores["chosen+attack=aono"]) == (1, 0)
    assert AttackResult.of("cpl", chosen, {}, 1).candidates == ()


def test_a_result_says_what_was_found_and_saves_its_images(tmp_path: Path) -> None:
    from PIL import Image

    model, (inputs, labels) = network(), batch(3)
    found = gleak.attack(SHORT, model, gradients(model, 3), SHAPE, labels=labels)
    facts = f"'{SHORT}+labels=known', inputs=(3, 3, 8, 8), labels=[0, 1, 2]"
    assert repr(found).startswith(f"AttackResult({facts}")
    with Image.open(found.save(tmp_path / "found.png", truth=inputs)) as image:
        shown = np.asarray(image)
    assert (tmp_path / "found.png").stat().st_mode & 0o777 == 0o600
    assert shown.shape == (2 * 128 + 4, 3 * 132 - 4, 3)
    for column in range(3):
        for row, images in enumerate((inputs, found.inputs)):
            corner = shown[132 * row, 132 * column]
            assert np.array_equal(corner, (images[column, :, 0, 0] * 255).round().byte().numpy())


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("mkor", r"attack mkor needs parameters crafted for it, but these are honest"),
        ("agic_epochs", r"agic_epochs"),
        ("fi", r"feature inversion needs|attack fi needs grants"),
        ("rog+postprocessor=postprocessor", r"needs the network postprocessor, .*\(given: none\)"),
    ],
)
def test_attacks_that_cannot_serve_say_why(spec: str, text: str) -> None:
    model = network()
    with pytest.raises(gleak.GleakError, match=text):
        gleak.attack(spec, model, gradients(model), SHAPE)


def test_the_error_of_an_attack_that_cannot_serve_lists_those_that_can() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, CLASSES))
    values = gradients(model)
    message = r"dense layer.*attacks that can be run here: "
    with pytest.raises(IncompatibleError, match=message) as refused:
        gleak.attack("cpa", model, values, SHAPE)
    names = {*str(refused.value).rpartition(": ")[2].split(", ")}
    assert {"cpl", "invertgrad"} <= names
    assert not {"cpa", "blind", "mkor", "agic_epochs"} & names


def test_values_that_were_not_sent_are_told_from_zeros() -> None:
    model = network()
    inputs, labels = batch()
    whole = gleak.compute_update(model, inputs, labels)
    update = gleak.defend("random_mask+keep=0.5", whole)
    sent = {name: value != 0 for name, value in update.items()}
    found = gleak.attack("matrix_completion", model, update, SHAPE, sent=sent)
    assert torch.allclose(found.inputs, inputs, atol=1e-3)
    zeros = gleak.attack("aono", model, update, SHAPE)
    assert not torch.allclose(zeros.inputs, inputs, atol=0.1)


PROFILE, LIKELIHOOD = "map+iterations=5", "invertgrad+iterations=5+distance=likelihood"
USED = {
    "dp": PROFILE,
    "fedcdp": PROFILE,
    "qsgd": LIKELIHOOD,
    "quantize": LIKELIHOOD,
    "random_mask+keep=0.5": PROFILE,
    "signsgd": LIKELIHOOD,
    "soteria": "best+budget=5",
    "topk": PROFILE,
}


@pytest.mark.parametrize(("defense", "attack"), USED.items())
def test_what_the_server_knows_of_a_defense_is_known_as_in_the_workflow(
    defense: str, attack: str, simulate: Simulate, tmp_path: Path
) -> None:
    """Clipping, codes and masks: of the same values the workflow's attack finds the same."""
    folder = simulate(model="mlp+hidden=16", client="fedsgd+victims=1", defense=defense)
    spec = parse("attack", attack)
    files = (folder / "update.h5", folder / "model.h5", {}, tmp_path / "r.h5")
    run_attack(spec, *files, seed=3, device="cpu")
    expected = Reconstruction.read(tmp_path / "r.h5").inputs[0]

    model = load_network(Model.read(folder / "model.h5"), "model.h5")
    update = Update.read(folder / "update.h5")
    values = {name: torch.from_numpy(each.decode()[0, 0]) for name, each in update.update.items()}
    known = gleak.attack(spec, model, values, SHAPE, defense=defense, seed=3, device="cpu")
    assert np.allclose(known.inputs, expected, atol=1e-3)
    unknown = gleak.attack(spec, model, values, SHAPE, seed=3, device="cpu").inputs
    assert not np.allclose(unknown, expected, atol=1e-3)


def test_of_a_product_the_columns_are_known_that_its_values_tell() -> None:
    model, (inputs, labels) = network(), batch()
    values = gleak.compute_update(model, inputs, labels, defense="low_rank")
    given = ("best+budget=20", model, values, SHAPE)
    assert gleak.score(gleak.attack(*given, defense="low_rank"), inputs)["psnr"] > 50
    assert gleak.score(gleak.attack(*given), inputs)["psnr"] < 20


CLIPPED = gleak.Protocol(batch_size=2, mini_batch=2, clipping="parameter")
TWO = gleak.Protocol(batch_size=2, mini_batch=1, clients=2)


@pytest.mark.parametrize("clients", [None, 2])
def test_a_sum_of_clients_is_a_defense_and_a_number(clients: int | None) -> None:
    model, (inputs, labels) = network(), batch(2)
    defense = "secure_aggregation+clients=2"
    mean = gleak.compute_update(model, inputs, labels, defense=defense)
    first, second = (
        gleak.attack(SHORT, model, mean, SHAPE, batch_size=2, clients=number, defense=given)
        for number, given in ((clients, defense), (2, "none"))
    )
    assert torch.equal(first.inputs, second.inputs)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"defense": "quantise"}, SpecError, "quantize"),
        ({"defense": "qsgd"}, ArtifactError, "gradients: 1.weight: its values are no multiples"),
        ({"defense": "signsgd"}, ArtifactError, "values differ in magnitude"),
        ({"defense": "low_rank+rank=1"}, ArtifactError, "higher rank than 1"),
        ({"defense": "flare_exclude+pattern=fc"}, IncompatibleError, "no parameter matches fc"),
        (
            {"defense": "dp", "clients": 2},
            SpecError,
            "clients: 2 in the sum, but defense dp is that of 1",
        ),
        (
            {"client": gleak.Protocol(batch_size=2, mini_batch=2, clipping="update")},
            SpecError,
            "its protocol has clipping update, but defense none has None",
        ),
        (
            {
                "client": replace(CLIPPED, norm_if_clipped=1.0),
                "defense": "fedcdp+snr=none+sigma=1",
            },
            SpecError,
            "its protocol has norm_if_clipped 1.0, but defense fedcdp.* has 4.0",
        ),
        ({"defense": "secure_aggregation", "clients": 2}, SpecError, "is that of 4"),
        ({"client": TWO, "clients": 3}, SpecError, "clients = 3, but 2 by the protocol"),
        ({"client": replace(TWO, clipping="update")}, SpecError, "defense secure_aggregation.cli"),
    ],
)
def test_values_that_a_defense_does_not_send_are_refused(
    given: dict[str, Any], error: type[Exception], text: str
) -> None:
    model = network()
    known = {"client": "fedsgd+batch_size=2", **given}
    with pytest.raises(error, match=text):
        gleak.attack(SHORT, model, gradients(model, 2), SHAPE, **known)
