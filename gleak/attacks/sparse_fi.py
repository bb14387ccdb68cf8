"""Exact embeddings of a batch by their zeros, then feature inversion.

Of N samples with embeddings x_i the gradients of a dense layer's weight and bias are G = A X and
b = A 1, where A has the loss's derivatives at the layer's outputs. The rows of [X 1] are in the row
space of [G b], of dimension N: if V is an orthonormal basis of it, every [x_i 1] is V q_i times a
factor. A ReLU leaves embeddings without negative values and with many exact zeros; mixtures of
several embeddings have fewer zeros or negative values. The vectors q_i are therefore found by
iteratively reweighted least squares, as sparse directions of a subspace (Spielman, Wang and Wright
2012 treat sources of two signs), and a direction without negative values is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, AttackSummary
from gleak.attacks.first_layer import output_slopes
from gleak.attacks.inversion_attack import EmbeddingUnmixing, InversionSearch, embedding_layer
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.independent_components import (
    LAPLACIAN,
    fixed_point,
    maximise_likelihood,
)
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing
from gleak.attacks.unmixing.relu_sparsity import ROUNDING, SILENT, independent, solve
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.runtime.checkpointing import Part

EXACT = 1e-4
"""Largest share of the gradient that exact embeddings leave unexplained."""
NONNEGATIVE = 1e-3
"""Largest length of the negative values of an accepted source, relative to the source's."""
NEGATIVE = 1000.0
"""Weight of a negative value in the least squares, relative to a positive one of equal size."""
WIDTHS = (0.3, 1e-5)
"""Values below which a source's count as zeros, relative to its largest; first and last step."""
STEPS = 40
STARTS = 128
"""Directions that are searched at once."""
ROUNDS = 8
"""Largest number of searches for the sources of one victim."""


@register("sparse_fi")
class SparseFI(InversionSearch, EmbeddingUnmixing):
    """Unmixing of embeddings by their exact zeros, then feature inversion.

    Embeddings behind a ReLU have no negative values and many exact zeros, which mixtures of several
    have not. Where enough are zero, the embeddings are found exactly, without weights to tune, and
    those that are not are approximate; the label of each image is the one whose loss has the
    derivatives at the layer that the gradient contains. A victim has converged if all are exact: if
    a client with these embeddings and labels sends the observed gradient of that layer, up to a
    factor. For several local steps, whose embeddings differ, in noise, and where values were not
    sent it does not.
    """

    source = "ours, after CPA section IV; Spielman, Wang and Wright 2012"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"inversion_iterations"})

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[AttackSpec]:
        self.check_observation(observation)
        return [self.model_copy(update={"inversion_iterations": evaluations})]

    def summary(self) -> AttackSummary:
        unmixing = AttackSummary(
            losses=("sparsity of embeddings",),
            optimizers=("reweighted least squares",),
            labels="one each, by derivatives",
        )
        return unmixing.then(replace(super().summary(), labels=unmixing.labels))

    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        return unmix_nonnegative(mixture, count)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        sources = self.unmix_embeddings(observation)
        images = self.invert(observation, sources.values)
        samples = torch.from_numpy(images.inputs)
        labels, error = explain(observation, self.mixture(observation), sources.values, samples)
        exact = (sources.objective == 0) & (error <= EXACT)
        return replace(
            images,
            labels=labels.cpu().numpy(),
            converged=images.converged & exact.cpu().numpy(),
        )


def explain(
    observation: Observation, mixture: Mixture, embeddings: torch.Tensor, samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Explain the gradient of the first dense layer by embeddings with labels.

    Clients may have scaled their gradient: it is compared up to a factor.

    Args:
        observation: of the victims.
        mixture: gradients of that layer.
        embeddings: its inputs; Shape (V, N, E).
        samples: with these embeddings, for what bypasses the layer; Shape (V, N, *shape).

    Returns:
        Labels whose derivatives have the largest cosine to those in the gradient, Shape (V, N), and
        the relative error of the gradient of a client with these embeddings and labels, Shape (V).
    """
    derivatives = torch.linalg.pinv(embeddings.double()).mT @ mixture.weight.double().mT
    cosines = []
    for label in range(observation.classes):
        labels = torch.full(embeddings.shape[:2], label, device=embeddings.device)
        slopes = embedding_slopes(observation, embeddings, samples, labels)
        cosines.append(torch.nn.functional.cosine_similarity(slopes, derivatives.to(slopes), dim=2))
    labels = torch.stack(cosines).argmax(0)
    slopes = embedding_slopes(observation, embeddings, samples, labels).double()
    features = torch.cat([embeddings, torch.ones_like(embeddings[..., :1])], 2).double()
    expected = (slopes.mT @ features).flatten(1)
    observed = torch.cat([mixture.weight, mixture.bias[..., None]], 2).double().flatten(1)
    factor = (observed * expected).sum(1) / expected.square().sum(1)
    error = (observed - factor[:, None] * expected).norm(dim=1) / observed.norm(dim=1)
    return labels, error


def embedding_slopes(
    observation: Observation, embeddings: torch.Tensor, samples: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Compute the loss's derivatives at the outputs of the first dense layer; (V, N, neurons)."""
    name = embedding_layer(observation.model, observation.input_shape)
    weight, bias = (
        observation.model.get_parameter(f"{name}.{part}") for part in ("weight", "bias")
    )
    outputs = torch.nn.functional.linear(embeddings.to(weight), weight, bias)
    victims = zip(samples, labels, outputs, strict=True)
    return torch.stack([output_slopes(observation, name, *victim) for victim in victims])


def unmix_nonnegative(mixture: Mixture, count: int) -> Unmixing:
    """Find the rows that unmix sparse nonnegative sources, in double precision.

    Returns:
        ``iterations`` are least squares, and ``objective`` is the number of sources that are not
        accepted and therefore approximate. Rows are not finite where directions hardly differ.
    """
    joined = torch.cat([mixture.weight, mixture.bias[..., None]], 2).double()
    victims = [_unmix_victim(gradients, count) for gradients in joined]
    rows, searches, objective = zip(*victims, strict=True)
    return Unmixing(torch.stack(rows), STEPS * torch.tensor(searches), torch.stack(objective))


def _unmix_victim(gradients: torch.Tensor, count: int) -> tuple[torch.Tensor, int, torch.Tensor]:
    """Return the rows of one victim, and the numbers of searches and of sources not accepted.

    Searches start from independent components, then from features, those first in which the
    accepted sources are small: where a single embedding is not zero, a row of the basis is a
    multiple of its direction, if embeddings are uncorrelated. Directions that are still missing are
    independent components.
    """
    values, directions = torch.linalg.eigh(gradients @ gradients.T)
    transform = (directions[:, -count:] / values[-count:].sqrt()).T
    basis = (transform @ gradients).T
    basis = basis[basis.norm(dim=1) > SILENT]
    white = (basis.T * len(basis) ** 0.5)[None, :, None].float()
    unmixing = maximise_likelihood(white, fixed_point(white, LAPLACIAN), LAPLACIAN)
    components = torch.nn.functional.normalize(unmixing.rows[0].double())
    columns, features = basis.new_empty(0, count), basis
    starts, searches = components, 0
    while len(columns) < count and len(starts) and searches < ROUNDS:
        candidates = torch.cat([columns, _sparsest(basis, starts)])
        candidates = candidates[accepted(candidates @ basis.T, count)]
        columns = candidates[independent(candidates)]
        shares = (features @ columns.T).square().sum(1) / features.square().sum(1)
        features = features[shares.argsort()]
        starts, features = torch.nn.functional.normalize(features[:STARTS]), features[STARTS:]
        searches += 1
    directions = torch.cat([columns, components])
    directions = directions[independent(directions)]
    rows = transform.new_full(transform.shape, torch.nan)
    rows[: len(directions)] = directions @ transform
    return rows, searches, torch.tensor(count - len(columns))


def _sparsest(basis: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Move directions to nearby ones whose sources are sparse and have no negative values.

    They converge to a local minimum of the sum of the logarithms of the sources' sizes, negative
    values weighted by `NEGATIVE`, by one step of inverse iteration at a time.
    """
    columns = starts
    first, last = WIDTHS
    for step in range(STEPS):
        sources = _positive(columns @ basis.T)
        relative = sources / sources.amax(1, keepdim=True)
        weights = 1 / (relative.square() + first**2 * (last / first) ** (2 * step / STEPS))
        weights = torch.where(relative < 0, NEGATIVE * weights, weights)
        matrices = torch.stack([basis.T @ (own[:, None] * basis) for own in weights])
        columns = torch.nn.functional.normalize(solve(matrices, columns[..., None])[..., 0])
    return columns


def accepted(sources: torch.Tensor, count: int) -> torch.Tensor:
    """Mark sources without negative values and with more zeros than the n - 1 that can be chosen.

    Shape (T, E) to (T); the count n is the dimension of their space.
    """
    sizes = sources.abs() / sources.square().mean(1, keepdim=True).sqrt()
    zeros = (sizes < ROUNDING).sum(1)
    return (negative_share(sources) <= NONNEGATIVE) & (zeros >= 2 * (count - 1))


def negative_share(sources: torch.Tensor) -> torch.Tensor:
    """Compute the length of the sources' negative values relative to the sources'; (T, E) to (T).

    The sign of a source is the one with the larger sum.
    """
    return _positive(sources).clamp(max=0).norm(dim=1) / sources.norm(dim=1)


def _positive(sources: torch.Tensor) -> torch.Tensor:
    return sources * sources.sum(1, keepdim=True).sign()
