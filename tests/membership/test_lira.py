from __future__ import annotations

import copy

import pytest
import torch

from gleak.clients.base import ClientSpec
from gleak.core.registry import parse
from gleak.membership.lira import _shadow, confidences
from gleak.runtime.seeding import drawing_from, torch_stream
from tests.membership.conftest import MakeVictims


def test_the_confidence_is_the_logit_of_the_probability() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 2, 2])
    probability = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(confidences(logits, labels), torch.logit(probability))
    assert confidences(1e4 * logits, labels).isfinite().all()


@pytest.mark.parametrize(
    ("client", "defense"),
    [
        ("optimizer=sgd~momentum=0.9~weight_decay=0.1", "none"),
        ("schedule=linear+clip_norm=0.5+proximal=0.3", "none"),
        ("optimizer=adam", "none"),
        ("local_steps=1+optimizer=adam", "none"),
        ("mini_batch=2", "secure_aggregation+clients=2"),
        ("mini_batch=4", "secure_aggregation+clients=2"),
    ],
)
def test_shadows_train_as_clients_do(client: str, defense: str, make_victims: MakeVictims) -> None:
    text = f"fedavg+batch_size=8+victims=3+local_lr=0.1+sends=weights+{client}"
    text += "" if "local_steps" in client else "+local_steps=4"
    observation, candidates, _ = make_victims(client=text, defense=defense)
    spec: ClientSpec = parse("client", text)
    network = copy.deepcopy(observation.model).requires_grad_()
    with drawing_from(torch_stream(observation.seed, "shadow", 2)):
        chosen = torch.randperm(len(candidates.reference_inputs))[:8]
    shares = chosen.split(8 // parse("defense", defense).clients_per_update)
    sent = [
        spec.compute(
            network, candidates.reference_inputs[share], candidates.reference_labels[share]
        )
        for share in shares
    ]
    for name, value in _shadow(observation, candidates, 2).items():
        change = torch.stack([one[name][0] for one in sent]).mean(0)
        expected = observation.model.get_parameter(name) + change
        torch.testing.assert_close(value, expected.detach(), atol=1e-6, rtol=1e-5)


def test_without_training_candidates_are_like_those_of_shadows(make_victims: MakeVictims) -> None:
    """A victim that learns as much as shadows, of another dataset's samples, is one of them."""
    observation, candidates, member = make_victims(
        client="fedavg+batch_size=4+victims=3+local_steps=5+local_lr=0.5"
    )
    evidence = parse("membership", "lira+shadows=32").infer(observation, candidates)
    assert abs(evidence[~member]).mean() < 4
    assert evidence[member].mean() > evidence[~member].mean() + 1
