"""Derivatives and activations of a dense first layer with ReLU, from the dense layer behind it.

The derivatives of a sample's loss at the first layer's outputs are W^T e at active neurons and zero
at the others, for the next layer's weight W and the derivatives e at its outputs. Few directions in
the column space of the first layer's gradient are of this form, which makes an approximate
separation of the samples exact. The next layer's own gradient is a product of e and the activations
of the first layer, so these are known, too: linear equations for pixels that the first layer's
gradient leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gleak.attacks.linear_equations import Equations, LinearProblem, NormalPrior
from gleak.attacks.noisy_first_layer import FirstLayer
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.mixtures import leading_directions
from gleak.core.lazy import torch
from gleak.models.layer_search import dense_inputs, layer_of_samples, own_parameter
from gleak.models.parameters import random_samples

PROBES = 4
"""Random samples that show whether the next layer takes the activations."""
CLEARLY_ACTIVE = 0.25
"""Derivative at a neuron that is active at first, relative to the largest of the sample."""
ENOUGH = 1.5
"""Least number of neurons, as a multiple of the unknowns that they determine."""
TURNS = 20
"""Most computations of the derivatives, each from the activity by the ones before."""
EXACT = 1e-4
"""Least singular value of exact derivatives, relative to the next one."""
DIFFERENT = 1e-3
"""Least norm of a sample's direction in the gradient's column space, and least singular value of
all samples' directions: of two equal ones it is 0."""
UNCERTAIN = 1e-4
"""Derivative that does not tell whether a neuron is active, relative to the largest."""
MOST_VALUES, MOST_PIXELS = 4096, 2**16
"""Largest size of an image whose pixels are computed, as that takes matrices of size squared, and
largest number of pixels of all samples."""


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of N samples' losses, each sample's up to a factor of its own.

    Args:
        slopes: at the first layer's outputs; Shape (neurons, N).
        behind: at the next layer's outputs; Shape (N, outputs).
        told: neurons at which the slopes are known; Shape (neurons).
    """

    slopes: torch.Tensor
    behind: torch.Tensor
    told: torch.Tensor

    def scaled(self, factors: torch.Tensor) -> Derivatives:
        """Return the derivatives times a factor of each sample, Shape (N)."""
        return Derivatives(self.slopes * factors, self.behind * factors[:, None], self.told)


@dataclass(frozen=True)
class NextLayer:
    """The dense layer that takes the activations of a dense first layer, for one victim.

    Args:
        first: the layer that takes the samples.
        weight: of the next layer; Shape (outputs, neurons).
        gradient: of this weight, zero where it was not sent; Shape (outputs, neurons).
        sent: which values of it were sent; Shape (outputs, neurons).
    """

    first: FirstLayer
    weight: torch.Tensor
    gradient: torch.Tensor
    sent: torch.Tensor

    @classmethod
    def of(cls, observation: Observation) -> Self | None:
        """Return the layer of one victim's network.

        None: there is no such layer, nothing of its gradient was sent, or the update is not one
        gradient with one factor.

        Raises:
            IncompatibleError: the network does not begin with a dense layer that has a bias.
        """
        protocol = observation.protocol
        name = weight_behind(observation.model, observation.input_shape)
        is_gradient = protocol.shows_gradient and protocol.epochs == observation.rounds == 1
        if name not in observation.update or not is_gradient or protocol.clipping == "parameter":
            return None
        gradient = observation.update[name][0, 0].double()
        mask = observation.sent.get(name)
        sent = torch.ones_like(gradient).bool() if mask is None else mask[0, 0].bool()
        if protocol.pruning == "columns":
            sent = sent & gradient.any(0)
        gradient = gradient.where(sent, 0)
        if not gradient.any():
            return None
        weight = observation.model.get_parameter(name).detach().double()
        return cls(FirstLayer.of(observation), weight, gradient, sent)

    def separated(self, gradient: torch.Tensor, slopes: torch.Tensor) -> Derivatives | None:
        """Compute the samples' derivatives from the first layer's gradient and approximate ones.

        A direction B m in the gradient's column space is that of a sample if B m = W^T e at active
        neurons and 0 at the others: (m, e) is the singular vector of the least singular value.
        Neurons are active at which B m is nearer to W^T e than to 0.

        Args:
            gradient: of rank N, with zeros at neurons that it does not tell; (neurons, F).
            slopes: at the first layer's outputs, approximate; Shape (neurons, N).

        Returns:
            None if they are not exact, or not those of N samples.
        """
        told, samples = gradient.any(1), slopes.shape[1]
        weight = self.weight[:, told].T
        if len(weight) < ENOUGH * (weight.shape[1] + samples) or gradient.shape[1] < samples:
            return None
        basis, _ = leading_directions(gradient[told], samples)
        pairs = [_of_sample(basis, weight, own) for own in slopes[told].T]
        directions, behind = (torch.stack(part) for part in zip(*pairs, strict=True))
        is_exact = bool(directions.isfinite().all())
        if not is_exact or torch.linalg.svdvals(directions)[-1] < DIFFERENT:
            return None
        found = torch.zeros_like(slopes)
        found[told] = directions.T
        return Derivatives(found, behind, told)

    def filled_in(
        self,
        samples: torch.Tensor,
        derivatives: Derivatives,
        most: torch.Tensor,
        sent: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Compute the pixels that the first layer's gradient does not determine.

        They are the most probable ones, by a prior of images, with which the samples have the
        activations and the gradient that was sent (`gleak.attacks.linear_equations`).

        Args:
            samples: of which the other pixels are exact; Shape (N, F).
            derivatives: with the factors that they have in the update.
            most: largest values of the open pixels, 0 for the others; Shape (N, F).
            sent: gradient of the first layer's weight, zero where not sent; Shape (neurons, F).
            mask: which values of it were sent; Shape (neurons, F).
        """
        shape = self.first.observation.input_shape
        if samples.shape[1] > MOST_VALUES or (most > 0).sum() > MOST_PIXELS:
            return samples
        scaling, columns = self.first.scaling, (most > 0).any(0)
        weight, bias = scaling.of_layer(self.first.weight, self.first.bias)
        sums = sent[:, columns].T, mask[:, columns].T
        own = Equations.of(derivatives.slopes.T, *sums, torch.ones_like(samples[:, columns].T))
        used, equations = self._of_activations(derivatives).followed_by(own, len(bias)).compact()
        features = torch.cat([weight, torch.diag(scaling.gain.to(samples))[columns]])[used]
        offsets = torch.cat([bias, scaling.offset.to(samples)[columns]])[used]
        priors = NormalPrior.natural(shape, samples), NormalPrior.dark(shape, samples)
        return LinearProblem(equations, features, offsets).solve(samples, most, priors)

    def _of_activations(self, derivatives: Derivatives) -> Equations:
        """Return the equations for the first layer's outputs, each neuron's by its number.

        A value of the gradient sums the products of derivatives and activations over the samples.
        """
        slopes, expected = derivatives.slopes, self.weight.T @ derivatives.behind.T
        least = UNCERTAIN * slopes.abs().amax(0)
        active = slopes.abs() > least
        told = derivatives.told & (expected.abs() > least).all(1)
        if slopes.shape[1] == 1:
            nonzero = self.gradient.any(0)
            told, active = told | nonzero, active | nonzero[:, None]
        used = active & told[:, None]
        return Equations.of(derivatives.behind, self.gradient.T, self.sent.T, used)


def _of_sample(
    basis: torch.Tensor, weight: torch.Tensor, slopes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute one sample's derivatives at the neurons, Shape (M), and behind these, (outputs).

    They are not numbers if they are not exact.

    Args:
        basis: of the gradient's column space; Shape (M, N).
        weight: from the neurons; Shape (M, outputs).
        slopes: approximate; Shape (M).
    """
    large, samples = slopes.abs() > CLEARLY_ACTIVE * slopes.abs().max(), basis.shape[1]
    behind = torch.linalg.lstsq(weight[large], slopes[large, None]).solution[:, 0]
    direction, before, error = slopes, torch.zeros_like(large), torch.inf
    for _ in range(TURNS):
        active = (direction - weight @ behind).abs() < direction.abs()
        if active.equal(before):
            break
        both = torch.cat([basis, active[:, None] * -weight], 1)
        _, sizes, vectors = torch.linalg.svd(both, full_matrices=False)
        direction, behind = basis @ vectors[-1, :samples], vectors[-1, samples:]
        before, error = active, sizes[-1] / sizes[-2]
    size, enough = direction.norm(), before.sum() >= ENOUGH * weight.shape[1]
    is_exact = error <= EXACT and size > DIFFERENT and enough
    size = size if is_exact else torch.nan
    return direction / size, behind / size


def weight_behind(model: torch.nn.Module, input_shape: tuple[int, ...]) -> str:
    """Return the name of the weight of the dense layer that takes the first one's ReLUs.

    Empty: no layer takes just these, or it runs more than once, is frozen, shares its weight or
    computes it from others.

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    first, scaling = layer_of_samples(model, input_shape)
    probes = random_samples(model, PROBES, input_shape)
    with torch.no_grad():
        passed = dense_inputs(model, probes)
        activations = model.get_submodule(first)(scaling.of_samples(probes.flatten(1))).relu()
    names = [one.layer for one in passed]
    following = passed[names.index(first) + 1 :][:1]
    for layer, taken in ((one.layer, one.embeddings) for one in following):
        same = taken.shape == activations.shape and torch.allclose(taken, activations, atol=1e-5)
        name = own_parameter(model, model.get_submodule(layer), "weight")
        if same and name and names.count(layer) == 1 and not _is_frozen(model, name):
            return name
    return ""


def _is_frozen(model: torch.nn.Module, name: str) -> bool:
    """Return True if a parameter is not trained and others are."""
    trains = any(parameter.requires_grad for parameter in model.parameters())
    return trains and not model.get_parameter(name).requires_grad
