"""The computations of the attack `spear`: the search for samples, victim by victim."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.first_layer import dense_layer_of_samples, output_slopes, scaled_layer
from gleak.attacks.unmixing.relu_patterns import pattern_columns, remaining_mixture
from gleak.attacks.unmixing.relu_search import (
    Proposal,
    draw_guess,
    search,
    signal_columns,
    sparse_columns,
)
from gleak.attacks.unmixing.relu_sparsity import Factors, factorise
from gleak.core.lazy import torch
from gleak.models.layer_search import dense_inputs
from gleak.models.parameters import random_samples
from gleak.runtime.checkpointing import Journal
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation

PROBES = 3
PARTS = ("weight", "bias")


@dataclass(frozen=True)
class Layers:
    """Broadcast layers that the search uses, in double precision.

    Args:
        weight: weight of the dense layer whose inputs are the samples; Shape (neurons, F).
        bias: its bias; Shape (neurons).
        head: weight of the last layer, if it is the next one; Shape (classes, neurons).
        shape: shape of a sample.
        softmax: True if the loss contains a softmax.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    head: torch.Tensor | None
    shape: tuple[int, ...]
    softmax: bool


def unmix_victims(
    observation: Observation, observed: dict[str, torch.Tensor], scores: torch.Tensor, rounds: int
) -> torch.Tensor:
    """Search the samples of every victim.

    Args:
        observation: of the victims.
        observed: mean gradients.
        scores: gradient of the last layer's bias; Shape (V, classes).
        rounds: budget of one victim.

    Returns:
        Shape (V, N, F); not finite where no sample was found.

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    name, scaling = scaled_layer(observation.model, observation.input_shape)
    parameters = (observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS)
    weight, bias = scaling.of_layer(*parameters)
    softmax = observation.protocol.loss == "cross_entropy"
    layers = Layers(
        weight, bias, last_weight(observation, len(bias)), observation.input_shape, softmax
    )
    found = weight.new_full(
        (observation.victims, observation.batch_size, weight.shape[1]), torch.nan
    )
    part = observation.journal.part()
    with Progress(observation.victims, "victims") as progress:
        for victim in range(observation.victims):
            progress.advance()
            if saved := part.part(str(victim)).stored:
                found[victim] = torch.from_numpy(saved["inputs"]).to(found)
                continue
            gradients = [observed[f"{name}.{part}"][victim] for part in PARTS]
            of_samples = scaling.gradient_of_samples(*gradients)
            factors = factorise(of_samples, gradients[1], observation.batch_size)
            seen = observation.of_victim(victim)
            proposals = _proposals(seen, factors, layers, scores[victim].double())
            budget = 0 if factors.hidden else rounds
            result = search(factors, weight, bias, layers.head, proposals, budget)
            if result is not None:
                consistent = result.inputs[result.consistent]
                found[victim, : len(consistent)] = consistent
            part.part(str(victim)).keep({"inputs": found[victim]})
            part.save_if_due()
    return found


def last_weight(observation: Observation, neurons: int) -> torch.Tensor | None:
    """Return the weight behind the first layer if only a ReLU, or another mask, is between them.

    Derivatives at the first layer's outputs are then zero, or those at the outputs of a layer with
    one output per class times its weight. Return None, too, unless there are fewer classes than
    active neurons of a sample, about half of all neurons: otherwise some gradient at the outputs
    would explain any direction.
    """
    model, classes = observation.model, observation.classes
    if 2 * classes >= neurons:
        return None
    samples = random_samples(model, PROBES, observation.input_shape)
    labels = torch.arange(PROBES, device=samples.device) % classes
    first = dense_layer_of_samples(model, observation.input_shape)
    at_first = output_slopes(observation, first, samples, labels)
    for name, runs in Counter(each.layer for each in dense_inputs(model, samples)).items():
        weight = model.get_parameter(f"{name}.weight").detach()
        if runs > 1 or weight.shape != (classes, neurons):
            continue
        passed = output_slopes(observation, name, samples, labels) @ weight
        precision = 1e-4 * float(passed.abs().max())
        if torch.allclose(at_first, passed * (at_first != 0), rtol=1e-3, atol=precision):
            return weight.double()
    return None


def without_probabilities(
    observation: Observation, scores: torch.Tensor, inputs: torch.Tensor
) -> torch.Tensor:
    """Subtract the predicted probabilities from the scores of victims whose samples are all found.

    Args:
        observation: of the victims.
        scores: gradient of the last layer's bias, the mean of p - [label]; Shape (V, classes).
        inputs: samples found, not finite where unknown; Shape (V, N, F).

    Returns:
        Shape (V, classes).
    """
    with torch.no_grad():
        if observation.protocol.loss != "cross_entropy":
            return scores
        known = inputs.isfinite().flatten(1).all(1)
        batches = inputs[known].unflatten(2, observation.input_shape).to(scores)
        means = [observation.model(samples).softmax(1).mean(0) for samples in batches]
        if not means:
            return scores
        return scores.index_put((known,), scores[known] - torch.stack(means))


def _proposals(
    observation: Observation, factors: Factors, layers: Layers, scores: torch.Tensor
) -> list[Proposal]:
    """Return the searches that suit the samples and the network of one victim.

    Args:
        observation: of the victim.
        factors: of its gradients.
        layers: that the searches use.
        scores: gradient of the last layer's bias; Shape (classes).
    """
    stream = torch_stream(observation.seed, "spear", int(observation.victim_ids[0]))
    proposals: list[Proposal] = [lambda _: sparse_columns(factors, stream)]
    if layers.head is not None:
        proposals.insert(0, _signal_search(factors, layers, layers.head, scores, stream))
    if observation.modality == "image":
        proposals.insert(0, _pattern_search(observation, factors, layers))
    return proposals


def _signal_search(
    factors: Factors,
    layers: Layers,
    head: torch.Tensor,
    scores: torch.Tensor,
    stream: torch.Generator,
) -> Proposal:
    def propose(_: torch.Tensor) -> torch.Tensor:
        guess = draw_guess(layers.shape, layers.weight, layers.bias, scores, layers.softmax, stream)
        return signal_columns(factors, head, guess)

    return propose


def _pattern_search(observation: Observation, factors: Factors, layers: Layers) -> Proposal:
    """Return the search from the samples that `cpa_edges` separates."""
    separator = CPAEdges()
    silent = replace(observation, journal=Journal())

    def propose(known: torch.Tensor) -> torch.Tensor:
        rest = remaining_mixture(factors, known)
        count = factors.rank - len(known)
        sources = (
            separator.separate_counted(silent, rest, [count], count)
            if len(known)
            else separator.separate(silent)
        )
        inputs = sources.values[0].double() / sources.factors[0].double()
        inputs = inputs[inputs.isfinite().all(1)]
        return pattern_columns(factors, inputs, layers.weight, layers.bias)

    return propose
