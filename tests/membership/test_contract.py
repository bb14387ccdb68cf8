"""Contract of all membership inference, on tiny victims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.core.registry import load, parse
from tests.membership.conftest import MakeVictims

NAMES = sorted(load("membership"))
OF_ONE = sorted({*NAMES} - {"fedmia"})
"""Those that do not compare a victim with the others."""
CLIENTS = {
    "one step": "fedsgd+batch_size=4+victims=3",
    "local steps": "fedavg+batch_size=4+victims=3+local_steps=4+local_lr=0.1+mini_batch=2",
    "weights": "fedavg+batch_size=4+victims=3+local_lr=0.1+sends=weights",
    "Adam": "fedavg+batch_size=4+victims=3+local_lr=0.1+optimizer=adam",
    "rounds": "epochs+batch_size=4+victims=3+epochs=2",
}
DEFENCES = ("none", "topk+keep=0.3", "signsgd", "gaussian+std=0.1", "quantize")

each = pytest.mark.parametrize("name", NAMES)


@each
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_every_client_has_finite_and_repeatable_evidence(
    name: str, client: str, make_victims: MakeVictims
) -> None:
    observation, candidates, member = make_victims(client=client)
    found = [parse("membership", name).infer(observation, candidates) for _ in range(2)]
    assert found[0].shape == member.shape
    assert np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)


@each
@pytest.mark.parametrize("defense", DEFENCES)
def test_every_encoding_has_finite_evidence(
    name: str, defense: str, make_victims: MakeVictims
) -> None:
    observation, candidates, _ = make_victims(defense=defense)
    assert np.isfinite(parse("membership", name).infer(observation, candidates)).all()


@each
def test_tables_are_taken(name: str, make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims(modality="tabular")
    assert np.isfinite(parse("membership", name).infer(observation, candidates)).all()


@each
def test_an_update_of_zeros_is_survived(name: str, make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims()
    zeros = {key: torch.zeros_like(value) for key, value in observation.update.items()}
    evidence = parse("membership", name).infer(replace(observation, update=zeros), candidates)
    assert np.isfinite(evidence).all()


@pytest.mark.parametrize("name", OF_ONE)
def test_a_victim_comes_out_as_alone(name: str, make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims()
    spec = parse("membership", name)
    together = spec.infer(observation, candidates)
    alone = spec.infer(observation.of_victim(1), candidates.of_victim(1))
    np.testing.assert_allclose(together[1:2], alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", sorted({*OF_ONE} - {"loss_difference"}))
def test_the_only_sample_of_a_client_is_found(name: str, make_victims: MakeVictims) -> None:
    observation, candidates, member = make_victims(client="fedsgd+batch_size=1+victims=3")
    evidence = parse("membership", name).infer(observation, candidates)
    assert (evidence.argmax(1) == member.argmax(1)).mean() >= 2 / 3


@each
def test_nothing_is_changed_that_an_attack_is_given(name: str, make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims()
    update = {key: value.clone() for key, value in observation.update.items()}
    weights = [value.clone() for value in observation.model.parameters()]
    pool = candidates.inputs.clone()
    parse("membership", name).infer(observation, candidates)
    assert all(torch.equal(value, update[key]) for key, value in observation.update.items())
    assert all(map(torch.equal, observation.model.parameters(), weights))
    assert torch.equal(candidates.inputs, pool)
