from __future__ import annotations

import pytest
import torch

from gleak.core.registry import parse
from tests.membership.conftest import MakeVictims


@pytest.mark.parametrize("defense", ["none", "topk+keep=0.3"])
def test_it_is_the_cosine_of_torch_over_the_values_sent(
    defense: str, make_victims: MakeVictims
) -> None:
    observation, candidates, _ = make_victims(defense=defense)
    found = parse("membership", "gradient_cosine").infer(observation, candidates)
    network = observation.model.requires_grad_()
    for victim, place in ((0, 3), (2, 0)):
        position = candidates.positions[victim, place]
        logits = network(candidates.inputs[position][None])
        loss = torch.nn.functional.cross_entropy(logits, candidates.labels[position][None])
        gradients = dict(
            zip(observation.update, torch.autograd.grad(loss, [*network.parameters()]), strict=True)
        )
        sent = {name: mask[victim, 0] for name, mask in observation.sent.items()}
        ours, theirs = (
            torch.cat([(values[name] * sent.get(name, 1)).flatten() for name in observation.update])
            for values in (gradients, {k: v[victim, 0] for k, v in observation.update.items()})
        )
        expected = torch.nn.functional.cosine_similarity(ours, theirs, dim=0)
        assert found[victim, place] == pytest.approx(float(expected), abs=1e-5)
