from __future__ import annotations

import torch

from gleak.core.registry import parse
from gleak.membership.lira import confidences
from tests.membership.conftest import MakeVictims


def test_the_confidence_is_the_logit_of_the_probability() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 2, 2])
    probability = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(confidences(logits, labels), torch.logit(probability))
    assert confidences(1e4 * logits, labels).isfinite().all()


def test_without_training_candidates_are_like_those_of_shadows(make_victims: MakeVictims) -> None:
    """A victim that learns as much as shadows, of another dataset's samples, is one of them."""
    observation, candidates, member = make_victims(
        client="fedavg+batch_size=4+victims=3+local_steps=5+local_lr=0.5"
    )
    evidence = parse("membership", "lira+shadows=32").infer(observation, candidates)
    assert abs(evidence[~member]).mean() < 4
    assert evidence[member].mean() > evidence[~member].mean() + 1
