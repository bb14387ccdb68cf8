from __future__ import annotations

import torch
from torch.nn import functional

from gleak.models.losses import sample_losses


def test_cross_entropy_is_torchs_on_hard_and_soft_labels() -> None:
    stream = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=stream)
    soft = torch.rand(6, 5, generator=stream).softmax(1)
    hard = functional.one_hot(torch.arange(6) % 5, 5).float()
    for targets in (soft, hard):
        expected = functional.cross_entropy(logits, targets, reduction="none")
        torch.testing.assert_close(sample_losses("cross_entropy", logits, targets), expected)


def test_nll_raw_is_minus_the_labels_logit() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 4, 2, 2])
    losses = sample_losses("nll_raw", logits, functional.one_hot(labels, 5).float())
    assert torch.equal(losses, -logits[torch.arange(4), labels])
