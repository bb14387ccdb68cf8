"""Exact embeddings of a batch by their zeros, then feature inversion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import AttackSummary
from gleak.attacks.unmixed_inversion import UnmixedInversion
from gleak.core.registry import register

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.observation import Observation
    from gleak.runtime.checkpointing import Part
    from gleak.unmixing.mixtures import Mixture, Unmixing


PARTS = ("weight", "bias")


@register("sparse_fi")
class SparseFI(UnmixedInversion):
    """Unmixing of embeddings by their exact zeros, then feature inversion.

    Embeddings behind a ReLU have no negative values and many exact zeros, which mixtures of several
    have not. Where enough are zero, the embeddings are found exactly, without weights to tune (see
    `gleak.unmixing.nonnegative_sources`), and those that are not are approximate; the label of each
    image is the one whose loss has the derivatives at the layer that the gradient contains. A
    victim has converged if all are exact. For several local steps, whose embeddings differ, and in
    noise none is.
    """

    source = "ours, after CPA section IV; Spielman, Wang and Wright 2012"

    @override
    def traits(self) -> AttackSummary:
        unmixing = AttackSummary(
            losses=("sparsity of embeddings",),
            optimizers=("reweighted least squares",),
            labels="one each, by derivatives",
        )
        inversion = replace(super().traits(), labels=unmixing.labels)
        return unmixing.then(inversion)

    @override
    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        from gleak.unmixing.nonnegative_sources import unmix_nonnegative

        return unmix_nonnegative(mixture, count)

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        sources = self.unmix_embeddings(observation)
        found = self.invert(observation, sources.values)
        exact = (sources.objective == 0).cpu().numpy()
        labels = labels_by_derivatives(observation, self.mixture(observation), sources.values)
        return replace(found, labels=labels.cpu().numpy(), converged=found.converged & exact)


def labels_by_derivatives(observation: Observation, mixture: Mixture, embeddings: Tensor) -> Tensor:
    """Infer the label of each embedding from the loss's derivatives at the first dense layer.

    Args:
        observation: of the victims.
        mixture: gradients of that layer.
        embeddings: its inputs; Shape (V, N, E).

    Returns:
        The label whose derivatives have the largest cosine to those in the gradient; Shape (V, N).
    """
    import torch
    from torch.nn import functional

    from gleak.attacks.first_layer import slopes_at
    from gleak.attacks.inversion_attack import embedding_layer

    name = embedding_layer(observation.model, observation.input_shape)
    weight, bias = (observation.model.get_parameter(f"{name}.{part}") for part in PARTS)
    observed = torch.linalg.pinv(embeddings.double()).mT @ mixture.weight.double().mT
    outputs = functional.linear(embeddings.to(weight), weight, bias).flatten(0, 1)
    cosines = []
    for label in range(observation.classes):
        labels = torch.full((len(outputs),), label, device=outputs.device)
        slopes = slopes_at(observation, name, outputs, labels)
        cosines.append(functional.cosine_similarity(slopes, observed.flatten(0, 1).to(slopes)))
    return torch.stack(cosines).argmax(0).view(embeddings.shape[:2])
