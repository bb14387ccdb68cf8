"""Samples read off single rows of a crafted dense layer's gradient.

A row to which one sample contributes has the gradients d x of its weights and d of its bias, so
that their ratio is the sample x. A crafting makes such rows likely; an attack reads a candidate off
each row, and `choose` decides which of them are samples.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import MID_GREY, AttackSpec, AttackSummary
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.batching import memory_slices
from gleak.models.differentiation import sample_losses, smoothed
from gleak.models.layer_search import layer_of_samples

ROUNDING = 1e-6
"""Norm of a row's gradient that is due to rounding, relative to the largest row's."""
OUTSIDE = 0.03
"""Root mean square by which the values of a sample may exceed [0, 1]."""
SAME = 0.01
"""Root mean square of the differences between two estimates of one sample."""


@dataclass(frozen=True)
class Rows:
    """Candidates of V victims, one for each of K rows.

    Args:
        inputs: not finite where a row has no gradient; Shape (V, K, F).
        slopes: gradients of the bias that the candidates explain; Shape (V, K).
    """

    inputs: torch.Tensor
    slopes: torch.Tensor


class IsolatedRowsAttack(AttackSpec):
    """Base class of attacks that read a candidate off each row of a dense layer's gradient.

    After one step, a candidate is a single sample if its own gradient at the row, for one of the
    labels, is what was observed: the derivative of the logits by the row's output gives it for all
    labels at once. Others are means of several samples: they are returned where there is
    room, with ``averaged_count`` 2. After several steps, whose gradients are taken at parameters
    that the server does not know, all plausible candidates count as single samples. Labels are
    those that fit best, and class 0 where nothing was found.
    Candidates with values outside of [0, 1] are not plausible. One that differs from an earlier one
    by rounding is the same sample, and returned once. Places that stay free are mid-grey with
    ``averaged_count`` 0, and such a victim has not converged.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    takes_batch_statistics: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = False

    tolerance: float = parameter(
        1e-3,
        "largest relative error of the gradient that a single sample explains",
        source="ours",
        gt=0,
    )

    def summary(self) -> AttackSummary:
        return AttackSummary(labels="by the gradient of each sample")

    def decide(
        self, observation: Observation, layer: str, rows: Rows, samples: int
    ) -> Reconstruction:
        """Return the samples of clients among their candidates, at most ``samples`` of each.

        Args:
            observation: gives the model, the loss and the number of samples of an update.
            layer: name of the layer of which the candidates are rows.
            rows: candidates of V clients, which may be more than there are victims.
            samples: number of samples of a client.
        """
        plausible = is_plausible(rows.inputs)
        errors, labels = explained(observation, layer, rows, plausible)
        shown = observation.protocol.shows_gradient
        single = errors <= self.tolerance if shown else plausible
        shape = (samples, *observation.input_shape)
        return choose(shape, rows.inputs, plausible, single, errors, labels)


class SampleRowsAttack(IsolatedRowsAttack):
    """Base class of attacks on a dense layer that takes the samples."""

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if model.first_layer == "convolution":
            raise IncompatibleError(
                f"attack {self} reads samples off a dense layer that takes them, but model {model} "
                f"begins with a convolution; use fc2, or planted+model={model.name}"
            )

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the layer's weight and bias."""
        layer, _ = layer_of_samples(model, input_shape)
        return frozenset({f"{layer}.weight", f"{layer}.bias"})

    @abstractmethod
    def rows(self, observation: Observation, weight: torch.Tensor, bias: torch.Tensor) -> Rows:
        """Read the candidates off the gradients of the layer, as if it took the samples themselves.

        Shapes: weight (V, K, F), bias (V, K).
        """

    def reconstruct(self, observation: Observation) -> Reconstruction:
        layer, scaling = layer_of_samples(observation.model, observation.input_shape)
        observed = mean_gradients(observation)
        bias = observed[f"{layer}.bias"]
        weight = scaling.gradient_of_samples(observed[f"{layer}.weight"], bias)
        rows = self.rows(observation, weight, bias)
        return self.decide(observation, layer, rows, observation.batch_size)


class DirectRowsAttack(SampleRowsAttack):
    """Base class of attacks whose candidates are the ratios of weight and bias gradients."""

    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})

    def rows(self, observation: Observation, weight: torch.Tensor, bias: torch.Tensor) -> Rows:
        norms = weight.norm(dim=2)
        filled = norms > ROUNDING * norms.amax(1, keepdim=True)
        ratios = weight / bias[..., None]
        return Rows(ratios.where(filled[..., None], torch.nan), bias)


def is_plausible(inputs: torch.Tensor) -> torch.Tensor:
    """Return the mask of candidates with values in [0, 1]; Shape (V, K, F) to (V, K)."""
    excess = inputs - inputs.clamp(0, 1)
    return excess.square().mean(2).sqrt() <= OUTSIDE  # false for values that are not finite


def explained(
    observation: Observation, layer: str, rows: Rows, wanted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each candidate's own gradient at its row, for its best label, with the observed one.

    Args:
        observation: of one step; of several, errors are those of one step.
        layer: name of the layer.
        rows: candidates.
        wanted: mask of those to compare; Shape (V, K).

    Returns:
        Relative errors, infinite if not wanted, and labels, -1 if not; Shape (V, K) each.
    """
    errors = torch.full_like(rows.slopes, torch.inf)
    labels = torch.full_like(rows.slopes, -1, dtype=torch.long)
    victims, places = wanted.nonzero(as_tuple=True)
    for part in memory_slices(len(victims), observation.input_shape):
        victim, place = victims[part], places[part]
        inputs = rows.inputs[victim, place].clamp(0, 1).unflatten(1, observation.input_shape)
        own = label_slopes(observation, layer, inputs, place) / observation.batch_size
        target = rows.slopes[victim, place, None]
        best = ((own - target).abs() / target.abs()).min(1)
        errors[victim, place], labels[victim, place] = best
    return errors, labels


def label_slopes(
    observation: Observation, layer: str, inputs: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Compute the derivative of samples' losses at one output of a layer, for every label.

    Args:
        observation: gives the model and the loss.
        layer: name of a layer with outputs of Shape (M, K).
        inputs: Shape (M, *shape).
        rows: the output of each sample; Shape (M).

    Returns:
        Shape (M, classes), for the labels.
    """
    like = next(observation.model.parameters())
    shifts = like.new_zeros(len(inputs), requires_grad=True)

    def shift(_: torch.nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
        return output + torch.nn.functional.one_hot(rows, output.shape[1]) * shifts[:, None]

    with torch.enable_grad():
        with observation.model.get_submodule(layer).register_forward_hook(shift):
            logits = observation.model(inputs.to(like))
        weights = torch.zeros_like(logits, requires_grad=True)
        (along,) = torch.autograd.grad(logits, shifts, weights, create_graph=True)
        # linear in the weights of the logits: its derivative is that of each logit by the shift
        (slopes,) = torch.autograd.grad(along.sum(), weights)
        values, protocol = logits.detach().requires_grad_(), observation.protocol
        by_label = []
        for label in torch.eye(observation.classes).to(logits):
            targets = smoothed(label, protocol.label_smoothing).expand_as(values)
            losses = sample_losses(protocol.loss, values, targets)
            (by_logits,) = torch.autograd.grad(losses.sum(), values)
            by_label.append((by_logits * slopes).sum(1))
    return torch.stack(by_label, 1)


def choose(
    shape: tuple[int, ...],
    inputs: torch.Tensor,
    plausible: torch.Tensor,
    single: torch.Tensor,
    errors: torch.Tensor,
    labels: torch.Tensor,
) -> Reconstruction:
    """Return as many candidates of each victim as it has samples, each sample once.

    Args:
        shape: of the samples of a victim, (N, *shape).
        inputs: candidates; Shape (V, K, F).
        plausible: mask of those that could be samples, or means of some; Shape (V, K).
        single: mask of those that count as single samples.
        errors: by which they are ordered, single samples first.
        labels: -1 where unknown.
    """
    size = shape[0]
    order = torch.where(single, errors, torch.inf).argsort(dim=1, stable=True)
    found, alone, named = (values.gather(1, order) for values in (plausible, single, labels))
    values = inputs.where(plausible[..., None], 0).take_along_dim(order[..., None], 1).clamp(0, 1)
    distances = torch.cdist(values, values) / values.shape[2] ** 0.5
    earlier = torch.ones_like(distances, dtype=torch.bool).tril(-1) & found[:, None]
    kept = found & ~((distances <= SAME) & earlier).any(2)
    places = (~kept).long().argsort(dim=1, stable=True)[:, :size]
    kept, alone, named = (each.gather(1, places) for each in (kept, alone, named))
    chosen = values.take_along_dim(places[..., None], 1)
    counts = torch.where(kept, torch.where(alone, 1, 2), 0)
    samples = torch.where(kept[..., None], chosen, MID_GREY)
    free = size - samples.shape[1]
    samples = torch.nn.functional.pad(samples, (0, 0, 0, free), value=MID_GREY)
    counts = torch.nn.functional.pad(counts, (0, free))
    named = torch.nn.functional.pad(named.clamp(min=0), (0, free))
    return Reconstruction(
        inputs=samples.unflatten(2, shape[1:]).float().cpu().numpy(),
        labels=named.cpu().numpy(),
        converged=(counts == 1).all(1).cpu().numpy(),
        averaged_count=counts.cpu().numpy(),
    )
