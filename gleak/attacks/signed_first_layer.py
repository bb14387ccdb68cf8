"""Signs of a dense first layer's gradient, and what they say about the samples of a batch.

In a network of two dense layers with a ReLU between them the gradient of neuron j's weight is
sum_i c_ij x_i, with c_ij = a_ij sum_k (p_ik - y_ik) w_kj: of the activity a_ij in {0, 1} and the
errors of the predicted probabilities, which the labels nearly tell where a network is untrained.
Given c, each value of the samples is a problem of one-bit regression by itself, that determines
(x_1, .., x_N) up to its length. The lengths follow from the activities, which are comparisons of
known projections of each sample with zero, and from the prior.

The signs of the classifier's gradient, sum_i (p_ik - y_ik) h_ij with the ReLU's outputs h_ij, show
which neurons were active for the samples of a class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np

from gleak.attacks.first_layer import classifier_of
from gleak.attacks.matching.priors import NaturalImages, brightness
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.noisy_first_layer import PARTS, FirstLayer
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.data.natural_images import ImagePrior
from gleak.models.differentiation import smoothed
from gleak.models.layer_search import find_classifier, layer_of_samples

UNCERTAIN = (1.0, 0.2, 0.1, 0.05)
"""Deviation within which outputs are compared with zero, relative to that of natural images, in the
first rounds; the last one in all later ones (training images of CIFAR-10)."""
ROUNDS, SETTLED, GAIN = 16, 0.002, 0.01
"""Largest number of later rounds, and what ends them: fewer changed activities, as a share, or a
smaller gain of the logarithm of the posterior, relative to it."""
SEARCH = {"maxiter": 40, "maxcor": 20}
"""Iterations of each search, and steps that it keeps."""
FIRST = 0.1
"""Deviation of a neuron's gradient in the first round (see `DEVIATIONS`)."""
DEVIATIONS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
"""Deviations of a neuron's gradient, relative to the root of the sum of its squared terms, of
which the likeliest one is taken."""
STRIDE = 7
"""Of so many values of a sample one counts where activities are chosen: errors of neighbours are
not independent."""
STARTS = 3
"""Starts from which the first rounds are run if labels repeat; the most probable one goes on."""
APART = 0.5
"""Size of the random differences between samples of one class at the start, in images."""
ENUMERATED = 4
"""Largest batch of which all activities of a neuron are compared; of others one changes at once."""
SWEEPS = 4
"""Largest number of rounds of such changes."""
DRAWS = 8
"""Number of batches of the prior's images by which labels are counted."""
PROBIT = 1.702
"""Factor with which the logistic function is about the normal distribution function."""
FLOOR = 1e-3
"""Added to the squared length of a value in all samples, whose logarithm is taken."""
PROBES = 4
TINY = 1e-9
FORBIDDEN = 1e9


def check_two_layers(
    network: torch.nn.Module, shape: tuple[int, ...], classes: int
) -> tuple[str, str]:
    """Return the names of weight and bias of the classifier that follows the first layer's ReLU.

    Raises:
        IncompatibleError: the network is another one, a clause.
    """
    name, scaling = layer_of_samples(network, shape)
    classifier = find_classifier(network, shape, classes)
    names = classifier.dense_parameters()
    parameters = [f"{name}.{part}" for part in PARTS], names
    first, last = ([network.get_parameter(one) for one in layer] for layer in parameters)
    values = torch.linspace(-1, 2, PROBES).to(first[0])
    samples = values[:, None].expand(-1, first[0].shape[1])
    with torch.no_grad():
        hidden = torch.nn.functional.linear(scaling.of_samples(samples), *first).relu()
        logits = network(samples.unflatten(1, shape))
        fits = hidden.shape[1] == last[0].shape[1] and torch.allclose(
            torch.nn.functional.linear(hidden, *last), logits, rtol=1e-3, atol=1e-4
        )
    if not fits:
        raise IncompatibleError(
            "needs one sample, or a network of two dense layers with a ReLU between them"
        )
    return names


def unlikelihood(margins: torch.Tensor) -> torch.Tensor:
    """Compute minus the logarithm of the probability that signs are right, at their margins."""
    return torch.nn.functional.softplus(-PROBIT * margins)


@dataclass(frozen=True)
class Estimate:
    """Samples of a batch, Shape (N, F), and which neurons are active, 0 or 1, (N, neurons).

    The deviation is that of a neuron's gradient (see `DEVIATIONS`), and the improbability minus the
    logarithm of the posterior, in nats.
    """

    samples: torch.Tensor
    active: torch.Tensor
    deviation: float = FIRST
    improbability: float = float("inf")


@dataclass(frozen=True)
class SignedBatch:
    """Signs of the gradients of one victim's two dense layers, in double precision.

    Args:
        layer: the first layer.
        weight: of the classifier; Shape (classes, neurons).
        bias: Shape (classes).
        signs: of the gradients of the first layer's weight and bias; Shape (neurons, F + 1).
        class_signs: of that of the classifier's weight; Shape (classes, neurons).
        prior: of the samples.
        uncertain: deviation of the layer's outputs in natural images; Shape (neurons).
    """

    layer: FirstLayer
    weight: torch.Tensor
    bias: torch.Tensor
    signs: torch.Tensor
    class_signs: torch.Tensor
    prior: ImagePrior
    uncertain: torch.Tensor

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return what one victim sent."""
        layer, gradients = FirstLayer.of(observation), mean_gradients(observation)
        names = classifier_of(observation).dense_parameters()
        weight, bias = (observation.model.get_parameter(name).double() for name in names)
        first, offsets = (gradients[f"{layer.name}.{part}"][0] for part in PARTS)
        prior = ImagePrior.natural(observation.input_shape, layer.weight)
        inputs = prior.scaled(layer.scaling.gain.double(), layer.scaling.offset.double())
        directions = inputs.coefficients(layer.weight) * inputs.variances.sqrt()
        return cls(
            layer,
            weight,
            bias,
            torch.cat([first, offsets[:, None]], 1).sign().float(),
            gradients[names[0]][0].double().sign(),
            prior,
            directions.norm(dim=1),
        )

    @property
    def used(self) -> torch.Tensor:
        """True for neurons that were active for some sample; Shape (neurons)."""
        return (self.signs != 0).any(1)

    def inputs(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the layer's inputs, with 1 for the bias; Shape (N, F) to (N, F + 1)."""
        inputs = self.layer.scaling.of_samples(samples)
        return torch.nn.functional.pad(inputs, (0, 1), value=1.0).float()

    def outputs(self, samples: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs, before the ReLU; Shape (N, F) to (N, neurons)."""
        return self.layer.outputs(self.layer.scaling.of_samples(samples))

    def probabilities(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute the predicted probabilities; Shape (N, neurons) to (N, classes)."""
        return torch.nn.functional.linear(hidden, self.weight, self.bias).softmax(1)

    def labels(self, stream: torch.Generator) -> torch.Tensor:
        """Count the labels by the share of active neurons of negative gradient; Shape (N), sorted.

        A class with more samples has more of them, by as much as with images of the prior.
        """
        samples, classes = self.layer.observation.batch_size, len(self.bias)
        expected = torch.zeros(classes, samples + 1, dtype=torch.float64)
        for _ in range(DRAWS):
            hidden = self.outputs(self._drawn(samples, stream).clamp(0, 1)).relu()
            total = self.probabilities(hidden).T @ hidden
            own = torch.nn.functional.pad(hidden.cumsum(0), (0, 0, 1, 0))
            negative = (total[:, None] < own).double().sum(2)
            expected += (negative / hidden.any(0).sum().clamp(min=1)).cpu() / DRAWS
        seen = ((self.class_signs < 0).sum(1) / self.used.sum()).cpu()
        misfit = (seen[:, None] - expected).square()
        counts, rows = torch.zeros(classes, dtype=torch.long), torch.arange(classes)
        for _ in range(samples):
            gains = misfit[rows, counts] - misfit[rows, counts + 1]
            counts[gains.argmax()] += 1
        return rows.repeat_interleave(counts).to(self.signs.device)

    def _drawn(self, count: int, stream: torch.Generator) -> torch.Tensor:
        """Draw images from the prior; Shape (count, F)."""
        codes = torch.randn(count, len(self.prior.mean), generator=stream, dtype=torch.float64)
        return self.prior.coloured(codes.to(self.weight))

    def reconstruct(self, labels: torch.Tensor, stream: torch.Generator) -> torch.Tensor:
        """Compute the samples, given their labels, by turns with the activities; Shape (N, F)."""
        problem = Labelled.of(self, labels)
        active = (self.class_signs[labels] < 0).double() * self.used
        middle = self.prior.mean.expand(len(labels), -1)
        samples = problem.compared(Estimate(middle, active))
        repeated = (labels[:, None] == labels).sum(1, keepdim=True) > 1
        estimates = []
        for _ in range(STARTS if repeated.any() else 1):
            different = self._drawn(len(labels), stream) - self.prior.mean
            estimate = Estimate(samples + APART * repeated * different, active)
            for uncertain in UNCERTAIN:
                estimate = problem.improved(estimate, uncertain)
            estimates.append(estimate)
        best = min(estimates, key=lambda one: one.improbability)
        return problem.settled(best).samples


@dataclass(frozen=True)
class Labelled:
    """Posterior of the samples of a batch and of the activities, given labels.

    Args:
        batch: what was sent.
        targets: of the classes, smoothed if clients smooth them; Shape (N, classes).
    """

    batch: SignedBatch
    targets: torch.Tensor

    @classmethod
    def of(cls, batch: SignedBatch, labels: torch.Tensor) -> Self:
        """Return the posterior with labels; Shape (N)."""
        targets = torch.nn.functional.one_hot(labels, len(batch.bias)).double()
        return cls(batch, smoothed(targets, batch.layer.observation.protocol.label_smoothing))

    def errors(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute the derivatives of the losses at the logits; Shape (N, classes)."""
        return self.batch.probabilities(hidden) - self.targets

    def factors(self, errors: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        """Compute the derivatives at the layer's outputs; Shape (neurons, N)."""
        return (errors @ self.batch.weight * active).T

    def of_rows(
        self, factors: torch.Tensor, inputs: torch.Tensor, signs: torch.Tensor, deviation: float
    ) -> torch.Tensor:
        """Compute minus the log-likelihood of signs of R neurons; Shape (R).

        Errors of the factors are relative to each, so the lengths of the values have no part in it.

        Args:
            factors: Shape (R, N).
            inputs: Shape (N, M).
            signs: Shape (R, M).
            deviation: see `DEVIATIONS`.
        """
        factors = factors.float()
        squares = factors.detach().square()
        spread = (squares @ inputs.square() + 1e-4 * squares.sum(1, keepdim=True)).sqrt() + TINY
        margins = signs * (factors @ inputs) / (deviation * spread)
        return (unlikelihood(margins) * signs.abs()).sum(1, dtype=torch.float64)

    def of_classes(
        self, errors: torch.Tensor, active: torch.Tensor, outputs: torch.Tensor, doubt: torch.Tensor
    ) -> torch.Tensor:
        """Compute minus the log-likelihood of the classifier's signs; Shape (neurons)."""
        signs = self.batch.class_signs
        spread = (errors.detach().square().T @ (active * doubt.square())).sqrt() + TINY
        margins = signs * (errors.T @ (active * outputs)) / spread
        return (unlikelihood(margins) * signs.abs()).sum(0)

    def mixed(self, estimate: Estimate) -> torch.Tensor:
        """Return the neurons whose factors differ in sign; others show no value. Shape (R)."""
        outputs = self.batch.outputs(estimate.samples)
        factors = self.factors(self.errors(estimate.active * outputs), estimate.active)
        differ = (factors > 0).any(1) & (factors < 0).any(1)
        return torch.nonzero(differ & self.batch.used)[:, 0]

    def compared(self, estimate: Estimate) -> torch.Tensor:
        """Compute the most probable samples, given the activities alone; Shape (N, F)."""
        doubt, sides = self.batch.uncertain, 2 * estimate.active - 1

        def improbability(codes: torch.Tensor) -> torch.Tensor:
            margins = sides * self.batch.outputs(self.batch.prior.coloured(codes)) / doubt
            return codes.square().sum() / 2 + unlikelihood(margins).sum()

        codes, _ = minimised(improbability, torch.zeros_like(estimate.samples), **SEARCH)
        return self.batch.prior.coloured(codes)

    def improved(self, estimate: Estimate, uncertain: float) -> Estimate:
        """Choose the activities, search the samples, and estimate the deviation."""
        doubt = uncertain * self.batch.uncertain
        active = self.activities(estimate, doubt)
        found = self.searched(replace(estimate, active=active), doubt)
        return replace(found, deviation=self.likeliest_deviation(found))

    def settled(self, estimate: Estimate) -> Estimate:
        """Improve an estimate until its activities hardly change."""
        for _ in range(ROUNDS):
            before, estimate = estimate, self.improved(estimate, UNCERTAIN[-1])
            changes = (before.active != estimate.active).double().mean()
            gain = before.improbability - estimate.improbability
            if changes < SETTLED or gain < GAIN * abs(estimate.improbability):
                break
        return estimate

    def searched(self, estimate: Estimate, doubt: torch.Tensor) -> Estimate:
        """Search the most probable samples from an estimate, given its activities.

        The directions of the values (x_1, .., x_N) are known within about the same angle, so
        shorter values have a smaller volume of equally probable ones. Its logarithm is added, less
        that of a common scale: the samples' brightness is the usual one.
        """
        batch, active = self.batch, estimate.active
        rows, sides = self.mixed(estimate), 2 * active - 1
        density = NaturalImages(1.0, images=batch.prior)

        def improbability(codes: torch.Tensor) -> torch.Tensor:
            samples = bright(batch.prior.coloured(codes))
            outputs = batch.outputs(samples)
            errors, inputs = self.errors(active * outputs), batch.inputs(samples)
            factors = self.factors(errors, active)[rows]
            lengths = inputs[:, :-1].double().square().sum(0) + FLOOR
            volume = (len(samples) - 1) / 2 * (lengths.log() - lengths.mean().log()).sum()
            shape = batch.layer.observation.input_shape
            terms = (
                density(samples.unflatten(1, shape)[None]).sum(),
                unlikelihood(sides * outputs / doubt).sum(),
                self.of_classes(errors, active, outputs, doubt).sum(),
                self.of_rows(factors, inputs, batch.signs[rows], estimate.deviation).sum(),
            )
            return sum(terms, -volume)

        start = batch.prior.whitened(estimate.samples)
        codes, least = minimised(improbability, start, **SEARCH)
        return replace(estimate, samples=bright(batch.prior.coloured(codes)), improbability=least)

    def likeliest_deviation(self, estimate: Estimate) -> float:
        """Return that of `DEVIATIONS` by which the signs are the most probable."""
        batch, rows = self.batch, self.mixed(estimate)
        outputs = batch.outputs(estimate.samples)
        factors = self.factors(self.errors(estimate.active * outputs), estimate.active)[rows]
        inputs, signs = batch.inputs(estimate.samples)[:, ::STRIDE], batch.signs[rows][:, ::STRIDE]
        sums = [float(self.of_rows(factors, inputs, signs, one).sum()) for one in DEVIATIONS]
        return DEVIATIONS[int(np.argmin(sums))]

    def activities(self, estimate: Estimate, doubt: torch.Tensor) -> torch.Tensor:
        """Choose the most probable activities, given the samples; Shape (N, neurons).

        Of large batches they are changed one by one, from those before and from those of the
        samples.
        """
        batch = self.batch
        outputs = batch.outputs(estimate.samples)
        errors, hidden = self.errors(estimate.active * outputs), outputs.relu()
        inputs, signs = batch.inputs(estimate.samples)[:, ::STRIDE], batch.signs[:, ::STRIDE]

        def improbability(active: torch.Tensor) -> torch.Tensor:
            factors = self.factors(errors, active)
            rows = self.of_rows(factors, inputs, signs, estimate.deviation)
            own = unlikelihood((2 * active - 1) * outputs / doubt).sum(0)
            impossible = FORBIDDEN * (active.sum(0) == 0)
            return rows + own + self.of_classes(errors, active, hidden, doubt) + impossible

        if len(outputs) <= ENUMERATED:
            patterns = torch.tensor(list(product([0.0, 1.0], repeat=len(outputs))))
            starts = [one[:, None].expand_as(outputs).to(outputs) for one in patterns]
        else:
            starts = [
                changed(improbability, one) for one in (estimate.active, (outputs > 0).double())
            ]
        least = torch.stack([improbability(one) for one in starts]).argmin(0)
        chosen = torch.stack(starts)[least, :, torch.arange(len(least))].T
        return chosen * batch.used


def bright(samples: torch.Tensor) -> torch.Tensor:
    """Scale samples by a common factor, so that their brightness is the usual one; Shape (N, F)."""
    return samples / brightness(samples).log().mean().exp()


def changed(
    improbability: Callable[[torch.Tensor], torch.Tensor], active: torch.Tensor
) -> torch.Tensor:
    """Change the activity of one sample after the other where that is more probable."""
    active, least = active.clone(), improbability(active)
    for _ in range(SWEEPS):
        before = active.clone()
        for row in range(len(active)):
            tried = active.clone()
            tried[row] = 1 - tried[row]
            value = improbability(tried)
            active = torch.where(value < least, tried, active)
            least = torch.minimum(value, least)
        if torch.equal(before, active):
            break
    return active


def minimised(
    improbability: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, **options: int
) -> tuple[torch.Tensor, float]:
    """Minimise a function of codes by SciPy's L-BFGS-B, with its options.

    Returns:
        The codes, of the start's shape, and the function's value.
    """
    from scipy import optimize

    def evaluated(values: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            point = torch.from_numpy(values).to(start).view_as(start).requires_grad_()
            value = improbability(point)
            (slope,) = torch.autograd.grad(value, point)
        return value.item(), slope.flatten().cpu().numpy()

    found = optimize.minimize(
        evaluated, start.flatten().cpu().numpy(), jac=True, method="L-BFGS-B", options=options
    )
    return torch.from_numpy(found.x).to(start).view_as(start), float(found.fun)
