"""Training of a postprocessor: a generator against a discriminator."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.degradation import degrade
from gleak.knowledge.postprocessor import Postprocessor
from gleak.knowledge.postprocessor_network import UNet, patch_discriminator
from gleak.knowledge.trainer import Losses, Trainer, descend


class PostprocessorTrainer(Trainer):
    """Mean absolute error plus an adversarial loss, one Adam for each of the two networks.

    Args:
        network: the generator.
        spec: weights, learning rate and degradations.
        shape: of an image.

    ROG Appendix A; the adversarial loss is the non-saturating one of Goodfellow et al. (2014).
    """

    network: UNet

    def __init__(self, network: UNet, spec: Postprocessor, shape: tuple[int, ...]) -> None:
        super().__init__(network)
        self.spec = spec
        self.discriminator = patch_discriminator(spec.plan(shape))
        self.optimizers["generator"] = Adam(network.parameters(), spec.lr)
        self.optimizers["discriminator"] = Adam(self.discriminator.parameters(), spec.lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        """The degradations are random, and no label is asked for."""
        spec = self.spec
        coarse = degrade(images, generator, scale=spec.scale, noise=spec.noise, blur=spec.blur)
        enhanced = self.network.enhance(coarse)
        told_apart = self._tell_apart(images, enhanced.detach())
        error = functional.l1_loss(enhanced, images)
        deceived = _missing(self.discriminator(enhanced), real=True)
        descend(self.optimizers["generator"], error + spec.adversarial * deceived)
        return {
            "l1": error.detach(),
            "adversarial": deceived.detach(),
            "discriminator": told_apart.detach(),
        }

    def _tell_apart(self, images: Tensor, enhanced: Tensor) -> Tensor:
        """One step of the discriminator; its loss."""
        real = _missing(self.discriminator(images), real=True)
        fake = _missing(self.discriminator(enhanced), real=False)
        loss = (real + fake) / 2
        descend(self.optimizers["discriminator"], loss)
        return loss


def _missing(logits: Tensor, *, real: bool) -> Tensor:
    """Cross-entropy of patches that are all real, or none."""
    wanted = torch.full_like(logits, float(real))
    return functional.binary_cross_entropy_with_logits(logits, wanted)
