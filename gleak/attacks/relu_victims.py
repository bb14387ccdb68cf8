"""The search for the samples of a ReLU layer, as an attacker with an observation runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.attacks.first_layer import dense_layer_of_samples
from gleak.matching.label_inference import classifier_of
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream
from gleak.unmixing.relu_search import draw_guess, search, signal_columns, sparse_columns
from gleak.unmixing.relu_sparsity import Factors, factorise

if TYPE_CHECKING:
    from gleak.observation import Observation

PARTS = ("weight", "bias")


@dataclass(frozen=True)
class Layers:
    """The broadcast layers that the search rests on, in double precision.

    Args:
        weight: of the dense layer that takes the samples; Shape (neurons, F).
        bias: Shape (neurons).
        head: weight of the last layer, where it comes next; Shape (classes, neurons).
        shape: of a sample.
        softmax: whether the loss has one.
    """

    weight: Tensor
    bias: Tensor
    head: Tensor | None
    shape: tuple[int, ...]
    softmax: bool


def unmix_victims(
    observation: Observation, observed: dict[str, Tensor], scores: Tensor, rounds: int
) -> Tensor:
    """Samples of every victim, not finite where they were not found.

    Args:
        observation: what the attacker has.
        observed: the mean gradients.
        scores: gradient of the last layer's bias; Shape (V, classes).
        rounds: of the search.

    Returns:
        Shape (V, N, F).

    Raises:
        IncompatibleError: the network does not begin with a dense layer that has a bias.
    """
    name = dense_layer_of_samples(observation.model, observation.input_shape)
    weight, bias = (observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS)
    softmax = observation.loss == "cross_entropy"
    layers = Layers(
        weight, bias, last_weight(observation, len(bias)), observation.input_shape, softmax
    )
    found = weight.new_full(
        (observation.victims, observation.batch_size, weight.shape[1]), torch.nan
    )
    part = observation.journal.part()
    with Progress(observation.victims, "victims") as progress:
        for victim, number in enumerate(observation.victim_ids):
            progress.advance()
            if known := part.part(str(victim)).stored:
                found[victim] = torch.from_numpy(known["inputs"]).to(found)
                continue
            gradients = [observed[f"{name}.{part}"][victim] for part in PARTS]
            factors = factorise(gradients[0], gradients[1], observation.batch_size)
            stream = torch_stream(observation.seed, "spear", int(number))
            proposals = _proposals(factors, layers, scores[victim].double(), stream)
            result = search(factors, weight, bias, layers.head, proposals, rounds)
            if result is not None:
                kept = result.inputs[result.consistent]
                found[victim, : len(kept)] = kept
            part.part(str(victim)).keep({"inputs": found[victim]})
            part.save_if_due()
    return found


def last_weight(observation: Observation, neurons: int) -> Tensor | None:
    """Weight of the last layer, if the network has two dense layers and no other.

    And if it has fewer classes than a sample has active neurons, about half of them: else slopes at
    the outputs would explain anything.
    """
    weighted = [each for each in observation.model.modules() if list(each.parameters(False))]
    last = classifier_of(observation).layer
    if len(weighted) != 2 or not isinstance(last, nn.Linear) or last.in_features != neurons:
        return None
    if 2 * last.out_features >= neurons:
        return None
    return last.weight.double()


@torch.no_grad()
def without_probabilities(observation: Observation, scores: Tensor, inputs: Tensor) -> Tensor:
    """What labels alone add to the scores, where all samples are known; Shape (V, classes).

    Args:
        observation: what the attacker has.
        scores: gradient of the last layer's bias, the mean of p - [label]; Shape (V, classes).
        inputs: found, not finite where unknown; Shape (V, N, F).
    """
    if observation.loss != "cross_entropy":
        return scores
    known = inputs.isfinite().flatten(1).all(1)
    batches = inputs[known].unflatten(2, observation.input_shape).to(scores)
    likely = [observation.model(samples).softmax(1).mean(0) for samples in batches]
    if not likely:
        return scores
    return scores.index_put((known,), scores[known] - torch.stack(likely))


def _proposals(
    factors: Factors, layers: Layers, scores: Tensor, stream: torch.Generator
) -> list[Callable[[], Tensor]]:
    """The searches that fit the network."""
    sparse = partial(sparse_columns, factors, stream)
    head = layers.head
    if head is None:
        return [sparse]

    def signal() -> Tensor:
        guess = draw_guess(layers.shape, layers.weight, layers.bias, scores, layers.softmax, stream)
        return signal_columns(factors, head, guess)

    return [signal, sparse]
