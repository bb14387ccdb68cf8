"""Exact embeddings of a batch by their zeros, then feature inversion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import AttackSummary
from gleak.attacks.unmixed_inversion import UnmixedInversion
from gleak.core.lazy import torch
from gleak.core.registry import register

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation
    from gleak.attacks.unmixing.mixtures import Mixture, Unmixing
    from gleak.runtime.checkpointing import Part


PARTS = ("weight", "bias")
EXACT = 1e-4
"""Largest share of the gradient that exact embeddings leave unexplained."""


@register("sparse_fi")
class SparseFI(UnmixedInversion):
    """Unmixing of embeddings by their exact zeros, then feature inversion.

    Embeddings behind a ReLU have no negative values and many exact zeros, which mixtures of several
    have not. Where enough are zero, the embeddings are found exactly, without weights to tune (see
    `gleak.attacks.unmixing.nonnegative_sources`), and those that are not are approximate; the
    label of each image is the one whose loss has the derivatives at the layer that the gradient
    contains. A victim has converged if all are exact: if a client with these embeddings and labels
    sends the observed gradient of that layer, up to a factor. For several local steps, whose
    embeddings differ, in noise, and where values were not sent it does not.
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
        from gleak.attacks.unmixing.nonnegative_sources import unmix_nonnegative

        return unmix_nonnegative(mixture, count)

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:

        sources = self.unmix_embeddings(observation)
        found = self.invert(observation, sources.values)
        mixture = self.mixture(observation)
        samples = torch.from_numpy(found.inputs)
        labels = labels_by_derivatives(observation, mixture, sources.values, samples)
        unexplained = unexplained_share(observation, mixture, sources.values, samples, labels)
        exact = (sources.objective == 0) & (unexplained <= EXACT)
        return replace(
            found,
            labels=labels.cpu().numpy(),
            converged=found.converged & exact.cpu().numpy(),
        )


def labels_by_derivatives(
    observation: Observation, mixture: Mixture, embeddings: torch.Tensor, samples: torch.Tensor
) -> torch.Tensor:
    """Infer the label of each embedding from the loss's derivatives at the first dense layer.

    Args:
        observation: of the victims.
        mixture: gradients of that layer.
        embeddings: its inputs; Shape (V, N, E).
        samples: with these embeddings, for what bypasses the layer; Shape (V, N, *shape).

    Returns:
        The label whose derivatives have the largest cosine to those in the gradient; Shape (V, N).
    """

    observed = torch.linalg.pinv(embeddings.double()).mT @ mixture.weight.double().mT
    cosines = []
    for label in range(observation.classes):
        labels = torch.full(embeddings.shape[:2], label, device=embeddings.device)
        slopes = embedding_slopes(observation, embeddings, samples, labels)
        cosines.append(torch.nn.functional.cosine_similarity(slopes, observed.to(slopes), dim=2))
    return torch.stack(cosines).argmax(0)


def unexplained_share(
    observation: Observation,
    mixture: Mixture,
    embeddings: torch.Tensor,
    samples: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Compute the share of a dense layer's gradient that its found inputs do not explain.

    Clients may have scaled their gradient: it is compared up to a factor.

    Args:
        observation: of the victims.
        mixture: gradients of that layer.
        embeddings: its inputs; Shape (V, N, E).
        samples: with these embeddings, for what bypasses the layer; Shape (V, N, *shape).
        labels: Shape (V, N).

    Returns:
        Relative error of the gradient of a client with these inputs and labels; Shape (V).
    """

    slopes = embedding_slopes(observation, embeddings, samples, labels).double()
    features = torch.cat([embeddings, torch.ones_like(embeddings[..., :1])], 2).double()
    expected = (slopes.mT @ features).flatten(1)
    observed = torch.cat([mixture.weight, mixture.bias[..., None]], 2).double().flatten(1)
    factor = (observed * expected).sum(1) / expected.square().sum(1)
    return (observed - factor[:, None] * expected).norm(dim=1) / observed.norm(dim=1)


def embedding_slopes(
    observation: Observation, embeddings: torch.Tensor, samples: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Compute the loss's derivatives at the outputs of the first dense layer.

    Args:
        observation: gives the model and the loss.
        embeddings: inputs of the layer; Shape (V, N, E).
        samples: with these embeddings, for what bypasses the layer; Shape (V, N, *shape).
        labels: Shape (V, N).

    Returns:
        Shape (V, N, neurons).
    """

    from gleak.attacks.first_layer import output_slopes
    from gleak.attacks.inversion_attack import embedding_layer

    name = embedding_layer(observation.model, observation.input_shape)
    weight, bias = (observation.model.get_parameter(f"{name}.{part}") for part in PARTS)
    outputs = torch.nn.functional.linear(embeddings.to(weight), weight, bias)
    victims = zip(samples, labels, outputs, strict=True)
    return torch.stack([output_slopes(observation, name, *each) for each in victims])
