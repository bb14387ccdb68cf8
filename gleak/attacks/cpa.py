"""The cocktail party attack (CPA): objective and search of its unmixing, and the attack itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.cpa_edges import differences
from gleak.attacks.matching.optimizers import Adam, GradientOptimizerSpec
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.independent_components import LAPLACIAN, fixed_point
from gleak.attacks.unmixing.mixtures import Mixture, Unmixing, White, whiten
from gleak.attacks.unmixing_attack import SCALE, InputUnmixing, Scale
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.runtime.checkpointing import Part, strip_prefix
from gleak.runtime.gpu_loop import GraphedCall, graphs_on
from gleak.runtime.progress import Progress

Term = Callable[["torch.Tensor"], "torch.Tensor"]
"""Function from rows of length 1, Shape (V, n, n), to a term of the objective; Shape (V)."""
CHECKED_EVERY = 50
GAUSSIAN = 0.37456720749144
"""Mean log cosh of a standard normal variable."""
TERMS = {
    "ne": "negentropy",
    "tv": "total variation",
    "l1": "magnitude of embeddings",
    "sr": "mixed signs",
    "mi": "dependence",
}
"""Name of each term in tables, by the field of its weight."""
CHOSEN = "ours, chosen on training images"


@dataclass(frozen=True)
class UnmixingObjective:
    """Sum of weighted terms, minimised over unmixing matrices of V victims (CPA Eq. 10 and 11).

    Only the direction of a matrix's rows counts. Means are over rows, so that a weight has the same
    effect for every number of sources.
    """

    terms: list[tuple[float, Term]]

    def evaluate(self, matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute value and gradient, Shape (V) and (V, n, n)."""
        matrices = matrices.detach().requires_grad_()
        rows = torch.nn.functional.normalize(matrices, dim=2)
        nothing = 0 * rows.sum((1, 2))
        value = sum((weight * term(rows) for weight, term in self.terms), start=nothing)
        (gradient,) = torch.autograd.grad(value.sum(), matrices)
        return value.detach(), gradient


def negentropy(white: White, reference: float = 0.0) -> Term:
    """Return minus J of Eq. 8 with a = 1, over the centred sources, whose variance is one.

    Eq. 8 is ambiguous about the square; as in the authors' code it is that of the mean log cosh,
    though their code then sets the term to zero. Without a reference, a mean log cosh that is
    subtracted, J grows from sources with long tails (Laplace: 0.338) over Gaussian to uniform ones
    (0.401), so it is no measure of the distance from a Gaussian. `GAUSSIAN` is that of the
    negentropy's usual approximation (Hyvarinen and Oja 2000, Eq. 25).
    """
    signals = white.signals

    def term(rows: torch.Tensor) -> torch.Tensor:
        magnitudes = (rows @ signals).abs()
        log_cosh = magnitudes + torch.nn.functional.softplus(-2 * magnitudes) - math.log(2)
        return -(log_cosh.mean(2) - reference).square().mean(1)

    return term


def total_variation(white: White, shape: tuple[int, ...]) -> Term:
    """Return Eq. 3, with a mean for each axis, of sources that are images of a shape (C, H, W)."""
    victims, count, _ = white.signals.shape
    channels, height, width = shape
    numbers = [channels * (height - 1) * width, channels * height * (width - 1)]
    weights = [torch.full((number // channels,), 1 / number) for number in numbers if number]
    steps = differences(white.signals.reshape(-1, *shape), orders=1)
    steps = (steps * torch.cat(weights).to(steps)).reshape(victims, count, -1)

    def term(rows: torch.Tensor) -> torch.Tensor:
        return (rows @ steps).abs().sum(2).mean(1)

    return term


def magnitude(white: White) -> Term:
    """Return the mean magnitude of sources, for embeddings that are mostly zero (Eq. 11, L1)."""
    signals = white.uncentred
    return lambda rows: (rows @ signals).abs().mean((1, 2))


def mixed_signs(white: White) -> Term:
    """Return the smaller of positive and negative parts, for embeddings of one sign (Eq. 11).

    Section IV-A does not specify the norm of each part; as in the reference it is Euclidean.
    """
    signals = white.uncentred

    def term(rows: torch.Tensor) -> torch.Tensor:
        sources = rows @ signals
        return torch.minimum(sources.relu().norm(dim=2), (-sources).relu().norm(dim=2)).mean(1)

    return term


def dependence(temperature: float) -> Term:
    """Return the mean of exp(T |cosine|) - 1 over pairs of rows (Eq. 9; reference: also i = j)."""

    def term(rows: torch.Tensor) -> torch.Tensor:
        count = rows.shape[1]
        diagonal = torch.eye(count, dtype=rows.dtype, device=rows.device)
        cosines = (rows @ rows.mT).abs() * (1 - diagonal)
        return torch.expm1(temperature * cosines).sum((1, 2)) / max(1, count * (count - 1))

    return term


def descend(
    objective: UnmixingObjective,
    first: torch.Tensor,
    optimizer: GradientOptimizerSpec,
    iterations: int,
    tolerance: float | None,
    part: Part,
) -> Unmixing:
    """Minimise from the first matrices on; a victim stops when its objective stalls.

    It stalls when it has decreased by less than ``tolerance``, relative to its size, since the last
    check, `CHECKED_EVERY` iterations before. Without a tolerance the budget is spent. The search
    resumes from the checkpoint of its part of the job's journal.

    Returns:
        Matrices with the least objective among the checked iterations, and that objective.
    """
    points, number = first.flatten(1).clone(), 0
    rule = optimizer.begin(points, iterations)
    best, least = points.clone(), points.new_full((len(points),), torch.inf)
    spent, resting = torch.zeros(len(points)).long(), torch.zeros(len(points)).bool()
    if part.stored:
        saved = {name: torch.from_numpy(value) for name, value in part.stored.items()}
        number, spent, resting = int(saved["number"]), saved["spent"], saved["resting"]
        device = points.device
        points, best, least = (saved[name].to(device) for name in ("points", "best", "least"))
        moments = strip_prefix("optimizer", saved)
        rule.resume({name: value.to(device) for name, value in moments.items()})

    def over() -> bool:
        return bool(resting.all()) or number > iterations

    def state() -> dict[str, torch.Tensor]:
        moments = {f"optimizer.{name}": value for name, value in rule.state().items()}
        own = {"points": points, "best": best, "least": least, "spent": spent, "resting": resting}
        return {"number": torch.tensor(number), **own, **moments}

    values, gradients = (found.clone() for found in objective.evaluate(points.view_as(first)))

    def step() -> None:
        points.copy_(rule.step(points, gradients.flatten(1)))
        found = objective.evaluate(points.view_as(first))
        values.copy_(found[0])
        gradients.copy_(found[1])

    graph = GraphedCall(graphs_on(points.device))
    with Progress(iterations, "unmixing") as progress, part.stepping():
        for _ in part.steps(lambda: not over(), state):
            if number % CHECKED_EVERY == 0 or number == iterations:
                running = ~resting.to(values.device)
                stalled = -torch.inf if tolerance is None else tolerance * values.abs()
                rests = least - values < stalled
                better = running & (values < least)
                best[better], least[better] = points[better], values[better]
                spent[running.cpu()] = number
                resting |= rests.cpu()
                progress.advance(number - progress.done, objective=values.mean().item())
            number += 1
            if not over():
                rule.prepare(graph.renew)
                graph(step)
        part.keep(state())
    return Unmixing(best.view_as(first), spent, least)


class CocktailParty(Spec):
    """Fields of CPA's separator: Adam on an unmixing matrix with normalised rows (Eq. 10 and 11).

    The weights of the terms are tuned on a separate batch, as in the paper; weights tuned for one
    network and batch size suit others badly.
    """

    budget_fields: ClassVar[frozenset[str]] = frozenset(
        {"iterations", "lr", "tolerance", "initial"}
    )
    weights: ClassVar[tuple[str, ...]] = ("ne", "mi")

    iterations: int = parameter(25000, "budget of one victim", source="CPA section V-A", ge=1)
    lr: float = parameter(1e-3, "learning rate of Adam", source="CPA reference", gt=0)
    tolerance: float | None = parameter(
        None,
        "relative improvement over 50 iterations below which a victim stops; none: it never does",
        source="ours",
        ge=0,
    )
    ne: float = parameter(1.0, "weight of the negentropy", source="CPA Eq. 10", ge=0)
    mi: float = parameter(1.47, "weight of the rows' dependence", source="CPA reference", ge=0)
    temperature: float = parameter(12.4, "T of the rows' dependence", source="CPA reference", gt=0)
    contrast: Literal["log_cosh", "negentropy"] = parameter(
        "log_cosh",
        "mean log cosh of a source, or its distance from a Gaussian's, which is squared",
        source="CPA Eq. 8; negentropy: Hyvarinen and Oja 2000, Eq. 25",
    )
    initial: Literal["identity", "fastica"] = parameter(
        "identity",
        "first unmixing of the whitened gradients; fastica: its fixed point",
        source="CPA reference; fastica: Hyvarinen and Oja 2000",
    )

    def unmixing_summary(self) -> AttackSummary:
        """Return the summary of the unmixing, in which the first weighted term is the main one."""
        weighted = tuple(TERMS[name] for name in self.weights if getattr(self, name))
        return AttackSummary(
            losses=weighted[:1],
            terms=weighted[1:],
            optimizers=(str(Adam(lr=self.lr)),),
            labels=LABELS["argmin"],
        )

    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        """Unmix gradients; see `gleak.attacks.unmixing_attack.UnmixingAttack.unmix`."""
        white = whiten(mixture.weight, count)
        unmixing = descend(
            self.objective(white, shape),
            self.first(white),
            Adam(lr=self.lr),
            self.iterations,
            self.tolerance,
            part,
        )
        return replace(unmixing, rows=unmixing.rows.double() @ white.transform)

    def objective(self, white: White, shape: tuple[int, ...]) -> UnmixingObjective:
        """Return the weighted sum of all terms whose weight is not zero."""
        reference = GAUSSIAN if self.contrast == "negentropy" else 0.0
        terms: dict[str, Callable[[], Term]] = {
            "ne": lambda: negentropy(white, reference),
            **self.priors(white, shape),
            "mi": lambda: dependence(self.temperature),
        }
        weighted = [(getattr(self, name), make) for name, make in terms.items()]
        return UnmixingObjective([(weight, make()) for weight, make in weighted if weight])

    def first(self, white: White) -> torch.Tensor:
        """Return the initial unmixing matrices; Shape (V, n, n)."""
        if self.initial == "fastica":
            return fixed_point(white.signals[:, :, None], LAPLACIAN)
        victims, count, _ = white.signals.shape
        return torch.eye(count).to(white.signals).repeat(victims, 1, 1)

    @abstractmethod
    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        """Return the prior terms on the sources, by the field of their weight."""


@register("cpa")
class CPA(CocktailParty, InputUnmixing):
    """Independent components of a dense layer's gradients with a total variation prior.

    Rate and weights were chosen on training images (docs/results/defaults.md). The authors' code
    has lr=1e-3, mi=1.47 and tv=3.1.
    """

    source = "CPA section III, Eq. 10 and 14"
    superseded: ClassVar[str] = "cpa_edges separates the same mixture from edges, in closed form"
    weights: ClassVar[tuple[str, ...]] = ("ne", "tv", "mi")
    tuned: ClassVar[frozenset[str]] = frozenset({*weights, "temperature"})

    lr: float = parameter(0.02, "learning rate of Adam", source=CHOSEN, gt=0)
    mi: float = parameter(0.02, "weight of the rows' dependence", source=CHOSEN, ge=0)
    scale: Scale = SCALE
    tv: float = parameter(
        2.0,
        "weight of the total variation (images): mean absolute difference between neighbours, "
        "along height plus width, of sources with a variance of 1",
        source=CHOSEN,
        ge=0,
    )

    def summary(self) -> AttackSummary:
        return self.unmixing_summary()

    def priors(self, white: White, shape: tuple[int, ...]) -> dict[str, Callable[[], Term]]:
        return {"tv": lambda: total_variation(white, shape)} if len(shape) == 3 else {}

    def reconstruct(self, observation: Observation) -> Reconstruction:
        return self.reconstruct_samples(observation, self.scale)
