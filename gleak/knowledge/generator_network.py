"""The network of a generator: codes and classes to images."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.knowledge.generator import Plan
from gleak.knowledge.layers import Enlarge, conv, enlarge, silenced


class Decoder(nn.Module):
    """Images from codes and classes; see `gleak.knowledge.generative.ImageGenerator`.

    The first numbers of a code and the picture of the class together are the logits of a coarse
    image, which is scaled up; to this the layers add, nothing at first. Before any training classes
    look alike.

    Args:
        plan: its sizes.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, self.code_size, self.classes = plan, plan.size, plan.classes
        self.pictures = nn.Embedding(plan.classes, math.prod(plan.picture))
        nn.init.zeros_(self.pictures.weight)
        self.first = nn.Linear(plan.size + plan.classes, math.prod(plan.features))
        self.rest = nn.Sequential(
            *_up(plan), nn.SiLU(), silenced(conv(plan.widths[0], plan.channels))
        )

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        """See `gleak.knowledge.generative.ImageGenerator.generate`."""
        features = self.first(with_class(codes, labels, self.classes))
        pictures: Tensor = self.pictures(labels)
        coarse = (pictures + codes[:, : pictures.shape[1]]).unflatten(1, self.plan.picture)
        large = enlarge(coarse, self.plan.sides[0])
        images: Tensor = (self.rest(features.unflatten(1, self.plan.features)) + large).sigmoid()
        return images


def with_class(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Flat values and one-hot labels beside them; Shape (M, d + classes)."""
    return torch.cat([values, functional.one_hot(labels, classes).to(values.dtype)], 1)


def _up(plan: Plan) -> list[nn.Module]:
    levels = reversed(list(zip(plan.sides, pairwise(plan.widths), strict=False)))
    found = [[nn.SiLU(), Enlarge(side), conv(wide, thin)] for side, (thin, wide) in levels]
    return [layer for layers in found for layer in layers]
