"""Gradient matching: search for samples whose gradient equals the observed one."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Self

from gleak.attacks.matching.choice import double_training, general_method, verified_method
from gleak.attacks.matching.chunks import shortage
from gleak.attacks.matching.gradients import ClientTraining, Gradients
from gleak.attacks.matching.label_inference import inferred_labels
from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.pieces import Piece, weighted_pairs
from gleak.attacks.matching.priors import Prior
from gleak.attacks.matching.problem import Problem, mean_gradients
from gleak.attacks.matching.quantisation_cells import QuantisationCell, coded
from gleak.attacks.observation import Observation
from gleak.core.errors import GleakError, IncompatibleError, nearest
from gleak.core.lazy import torch
from gleak.models.layer_search import first_dense_input, last_dense_input
from gleak.models.parameters import dtype_of
from gleak.models.stochastic import noise_sizes, with_noise_as_input

WORDS = {"first_dense": first_dense_input, "classifier": last_dense_input}
"""Layers that are named by their place, as by the field ``layer`` of `soteria`."""
SEPARATOR = "-"
ALL = slice(None)


@dataclass(frozen=True)
class GradientMatching(Problem):
    """Distance between dummy and observed gradient, plus priors.

    Args:
        parts: components of the attack.
        observed: for each parameter, Shape (V, *shape).
        gradients: method of computing dummy gradients.
        sent: for each parameter that is compared in part, ones where it is; Shape (V, *shape).
        skipped: names of the parameters that are left out.
        cells: codes of the parameters, if the distance depends on them.
        bases: orthonormal bases of the columns that were sent, if the distance depends on them;
            Shape (V, rows, K).
        priors: of these victims.
        precise: local training in double precision, if the optimizer needs residuals.
    """

    parts: Parts
    gradients: Gradients
    sent: dict[str, torch.Tensor]
    skipped: frozenset[str]
    cells: dict[str, QuantisationCell]
    bases: dict[str, torch.Tensor]
    priors: tuple[Prior, ...] = ()
    precise: ClientTraining | None = None

    @classmethod
    def of(cls, observation: Observation, parts: Parts) -> Self:
        """Build the problem from an observation and the components of an attack."""
        observed = mean_gradients(observation)
        parts = replace(parts, distance=parts.distance.of(observation))
        training = ClientTraining.of(observation, parts.client_model)
        cells: dict[str, QuantisationCell] = {}
        bases: dict[str, torch.Tensor] = {}
        if parts.distance.reads_codes:  # those of the first round
            factor = 1 / observation.protocol.update_scale
            first = {name: cell.at((ALL, 0)) for name, cell in observation.cells.items()}
            cells = {name: cell.scaled(factor) for name, cell in first.items()}
            bases = {name: basis[:, 0] for name, basis in observation.bases.items()}
        sent: dict[str, torch.Tensor] = {}
        if parts.compared == "sent":
            sent = {name: value[:, 0] for name, value in observation.sent.items()}
        elif parts.compared == "nonzero":
            present = {name: value != 0 for name, value in observed.items()}
            sent = {name: mask for name, mask in present.items() if not mask.all()}
        targets: torch.Tensor | None = None
        if parts.labels != "joint":
            if parts.labels == "known":
                labels = observation.granted["labels"].long()
            elif parts.labels == "enumerated":
                labels = torch.zeros(observation.victims, observation.batch_size).long()
            else:
                labels = inferred_labels(parts.labels, observation, observed)
            like = next(iter(observed.values()))
            targets = torch.nn.functional.one_hot(labels.to(like.device), observation.classes)
            targets = targets.to(like)
        return cls(
            parts=parts,
            observed=observed,
            targets=targets,
            shape=(observation.batch_size, *observation.input_shape),
            classes=observation.classes,
            gradients=gradients_of(observation, parts),
            sent={name: mask.to(observed[name]) for name, mask in sent.items()},
            skipped=skipped_parameters(
                observation.model, observation.input_shape, observed, parts.skip
            ),
            cells=cells,
            bases=bases,
            priors=tuple(prior.of(observation) for prior in parts.used_priors),
            precise=double_training(training) if parts.optimizer.needs_residuals else None,
        )

    @cached_property
    def scale(self) -> torch.Tensor:
        """Scale of the distances, the distance of a zero gradient; Shape (V)."""
        matched = [value for name, value in self.observed.items() if name not in self.skipped]
        return self.parts.distance.scale(matched)

    @cached_property
    def _layer_weights(self) -> dict[str, torch.Tensor]:
        return self.parts.layers.of(self.observed) if self.parts.layers else {}

    @cached_property
    def layers(self) -> list[list[str]]:
        """Names of the matched parameters by layer, from the first to the last."""
        names = [name for name in self.observed if name not in self.skipped]
        return [list(layer) for _, layer in groupby(names, lambda name: name.rpartition(".")[0])]

    def residuals(self, point: torch.Tensor, names: Collection[str]) -> torch.Tensor:
        """Compute the difference of the gradients of one victim by these parameters; Shape (R).

        From a point in double precision, differentiably; zero where a value was not sent.
        """
        assert self.precise
        at = point.to(dtype_of(self.precise.model))[None]
        pieces = general_method(self.precise)(
            self.inputs(at), self.soft_labels(at).to(at), self.observed
        )
        differences = []
        for piece in pieces:
            if piece.name in names:
                formed = piece.formed()
                if piece.name in self.sent:
                    formed = formed.within(self.sent[piece.name])
                differences.append((formed.gradient - formed.target).flatten().double())
        return torch.cat(differences)

    def keep(self, rows: torch.Tensor | slice) -> Self:
        sent = {name: value[rows] for name, value in self.sent.items()}
        cells = {name: cell.at(rows) for name, cell in self.cells.items()}
        bases = {name: basis[rows] for name, basis in self.bases.items()}
        priors = tuple(prior.keep(rows) for prior in self.priors)
        return replace(super().keep(rows), sent=sent, cells=cells, bases=bases, priors=priors)

    def in_microbatches(self, count: int) -> Self | None:
        gradients = self.gradients.in_microbatches(count) if count <= self.shape[0] else None
        return None if gradients is None else replace(self, gradients=gradients)

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        points = points.detach().requires_grad_()
        objective, distance = self._objective(points, self.soft_labels(points))
        (gradient,) = torch.autograd.grad(objective.sum(), points)
        return Evaluation(objective.detach(), distance.detach(), gradient)

    def objective(self, points: torch.Tensor) -> torch.Tensor:
        """Compute the objective alone, which takes less time than `evaluate`; Shape (V)."""
        points = points.detach()
        return self._objective(points, self.soft_labels(points))[0].detach()

    def label_slopes(self, points: torch.Tensor) -> torch.Tensor:
        """Compute the derivative of the objective by the label probabilities; Shape (V, N, K)."""
        labels = self.soft_labels(points).detach().requires_grad_()
        objective, _ = self._objective(points.detach(), labels)
        return torch.autograd.grad(objective.sum(), labels)[0]

    def _objective(
        self, points: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the objective and the distance in it, relative to its scale; Shape (V) each."""
        inputs, given = self.inputs(points), self.network_inputs(points)
        pieces = coded(
            [
                self._as_sent(piece)
                for piece in self.gradients(given, targets, self.observed)
                if piece.name not in self.skipped
            ],
            self.cells,
        )
        joined = self.parts.distance.joins_parameters
        distance = self.parts.distance.measure(
            weighted_pairs(pieces, self._layer_weights) if joined else pieces
        )
        objective = distance
        for prior in self.priors:
            objective = objective + prior.weight * prior(inputs)
        if self.parts.label_term:  # CPL Algorithm 1, line 12
            wrong = self.gradients.logits(given).softmax(2) - targets
            objective = objective + self.parts.label_term * wrong.square().sum((1, 2))
        return objective / self.scale, distance / self.scale

    def _as_sent(self, piece: Piece) -> Piece:
        """Return what was sent of a gradient: some of its values, or its product with a basis."""
        if piece.name in self.sent:
            return piece.within(self.sent[piece.name])
        return piece.projected(self.bases[piece.name]) if piece.name in self.bases else piece

    def network_inputs(self, points: torch.Tensor) -> torch.Tensor:
        """Return what the network takes at these points."""
        return self.inputs(points)


def gradients_of(observation: Observation, parts: Parts) -> Gradients:
    """Return the method of computing gradients, verified once for all observations of a job."""
    training = ClientTraining.of(observation, parts.client_model)
    methods = observation.verified_methods
    if parts.client_model not in methods:
        try:
            methods[parts.client_model] = verified_method(training)
        except IncompatibleError as error:
            raise IncompatibleError(f"{observation.spec}: {error}") from error
        except (MemoryError, RuntimeError) as error:
            if shortage(error) is None:
                raise
            raise GleakError(
                f"{observation.spec}: the gradient of a few samples of this network, by which "
                "methods are compared, does not fit into memory; use a larger machine or a smaller "
                f"model ({error})"
            ) from error
    return methods[parts.client_model](training)


def skipped_parameters(
    network: torch.nn.Module, shape: tuple[int, ...], names: Collection[str], skip: str | None
) -> frozenset[str]:
    """Return the names of the trained parameters that a pattern leaves out.

    It consists of names of parameters or modules, or of `WORDS`, with `SEPARATOR` between them.

    Raises:
        IncompatibleError: a name is unknown, or nothing is left.
    """
    if skip is None:
        return frozenset()
    modules = []
    for module in skip.split(SEPARATOR):
        if module in WORDS:
            zeros = next(network.parameters()).new_zeros(1, *shape)
            with torch.no_grad():
                dense = WORDS[module](network, zeros)
            if dense is None:
                raise IncompatibleError(
                    f"skip={module}: the model has no dense layer that is called once with one "
                    "vector per sample; name the layer"
                )
            module = dense.layer
        modules.append(module)
    skipped = frozenset(name for name in names if any(_belongs(name, one) for one in modules))
    for module in modules:
        if not any(_belongs(name, module) for name in names):
            options = {*WORDS, *names, *(name.rpartition(".")[0] for name in names)}
            raise IncompatibleError(f"skip={skip}: unknown {module!r}; {nearest(module, options)}")
    if len(skipped) == len(names):
        raise IncompatibleError(f"skip={skip} leaves out all parameters; name fewer layers")
    return skipped


def _belongs(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


@dataclass(frozen=True)
class DrawnMatching(GradientMatching):
    """Gradient matching in samples and in what a client's variational layers drew for them.

    A client of PRECODE differentiates its loss at random representations b = mu + sigma eps. Its
    gradient determines eps as well as the samples: in a dense layer after the block each row is a
    multiple of b (Balunovic et al. 2022 recover it there; here it is searched, for batches too).
    Unknowns are the samples, joint labels if any, and the ``draws`` values of eps of each sample,
    which start from normal values.
    """

    draws: int = 0

    @classmethod
    def of(cls, observation: Observation, parts: Parts) -> Self:
        network, shape = observation.model, observation.input_shape
        draws = sum(noise_sizes(network, shape))
        extended = replace(
            observation,
            model=with_noise_as_input(network, shape),
            input_shape=(math.prod(shape) + draws,),
            verified_methods={},
        )
        stated = super().of(observation, parts)
        return replace(stated, gradients=gradients_of(extended, parts), draws=draws)

    @property
    def unknowns(self) -> int:
        return super().unknowns + self.shape[0] * self.draws

    def network_inputs(self, points: torch.Tensor) -> torch.Tensor:
        """Return flat samples and their eps; Shape (V, N, P + K)."""
        noise = points[:, super().unknowns :].unflatten(1, (self.shape[0], self.draws))
        return torch.cat([self.inputs(points).flatten(2), noise], 2)
