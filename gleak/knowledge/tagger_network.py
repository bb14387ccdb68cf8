"""Network and trainer of the tagger (see `gleak.knowledge.tagger`)."""

from __future__ import annotations

from itertools import pairwise

from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.layer_shapes import conv3x3
from gleak.knowledge.tagger import Plan
from gleak.knowledge.train_knowledge import Losses, Trainer, descend


class TagClassifier(nn.Module):
    """Image classifier; the classes with the highest scores are the tags.

    Features are normalised over each image, so that images do not interact.

    Args:
        plan: layer sizes.
        number: number of tags.
    """

    def __init__(self, plan: Plan, number: int) -> None:
        super().__init__()
        self.number = number
        down = [_block(thin, wide) for thin, wide in pairwise(plan.widths)]
        self.features = nn.Sequential(conv3x3(plan.channels, plan.widths[0]), *down, nn.SiLU())
        self.last = nn.Linear(plan.widths[-1], plan.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits; Shape (M, C, H, W) in [0, 1] to (M, classes)."""
        logits: Tensor = self.last(self.features(images).mean((2, 3)))
        return logits

    def tags(self, images: Tensor) -> Tensor:
        """Return class indices of the tags, most likely first; Shape (M, number)."""
        return self(images).topk(self.number).indices


def _block(thin: int, wide: int) -> nn.Sequential:
    """Build layers that halve the resolution."""
    return nn.Sequential(
        nn.SiLU(), conv3x3(thin, wide, stride=2), nn.GroupNorm(1, wide, affine=False)
    )


class ClassifierTrainer(Trainer):
    """Trainer by Adam on the cross-entropy.

    Args:
        network: the classifier.
        lr: learning rate.
    """

    def __init__(self, network: TagClassifier, lr: float) -> None:
        super().__init__(network)
        self.optimizers["adam"] = Adam(network.parameters(), lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        loss = functional.cross_entropy(self.network(images), labels)
        descend(self.optimizers["adam"], loss)
        return {"cross_entropy": loss.detach()}
