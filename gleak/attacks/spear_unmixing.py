"""The computations of the attack `spear`: the search for samples, victim by victim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.attacks.first_layer import scaled_layer
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
    """Broadcast layers that the search uses, in double precision.

    Args:
        weight: weight of the dense layer whose inputs are the samples; Shape (neurons, F).
        bias: its bias; Shape (neurons).
        head: weight of the last layer, if it is the next one; Shape (classes, neurons).
        shape: shape of a sample.
        softmax: True if the loss contains a softmax.
    """

    weight: Tensor
    bias: Tensor
    head: Tensor | None
    shape: tuple[int, ...]
    softmax: bool


def unmix_victims(
    observation: Observation, observed: dict[str, Tensor], scores: Tensor, rounds: int
) -> Tensor:
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
            if saved := part.part(str(victim)).stored:
                found[victim] = torch.from_numpy(saved["inputs"]).to(found)
                continue
            gradients = [observed[f"{name}.{part}"][victim] for part in PARTS]
            of_samples = scaling.gradient_of_samples(*gradients)
            factors = factorise(of_samples, gradients[1], observation.batch_size)
            stream = torch_stream(observation.seed, "spear", int(number))
            proposals = _proposals(factors, layers, scores[victim].double(), stream)
            result = search(factors, weight, bias, layers.head, proposals, rounds)
            if result is not None:
                consistent = result.inputs[result.consistent]
                found[victim, : len(consistent)] = consistent
            part.part(str(victim)).keep({"inputs": found[victim]})
            part.save_if_due()
    return found


def last_weight(observation: Observation, neurons: int) -> Tensor | None:
    """Return the weight of the last layer, if the network has two dense layers and no other.

    Return None, too, unless there are fewer classes than active neurons of a sample, about half of
    all neurons: otherwise some gradient at the outputs would explain any direction.
    """
    weighted = [layer for layer in observation.model.modules() if list(layer.parameters(False))]
    last = classifier_of(observation).layer
    if len(weighted) != 2 or not isinstance(last, nn.Linear) or last.in_features != neurons:
        return None
    if 2 * last.out_features >= neurons:
        return None
    return last.weight.double()


@torch.no_grad()
def without_probabilities(observation: Observation, scores: Tensor, inputs: Tensor) -> Tensor:
    """Subtract the predicted probabilities from the scores of victims whose samples are all found.

    Args:
        observation: of the victims.
        scores: gradient of the last layer's bias, the mean of p - [label]; Shape (V, classes).
        inputs: samples found, not finite where unknown; Shape (V, N, F).

    Returns:
        Shape (V, classes).
    """
    if observation.loss != "cross_entropy":
        return scores
    known = inputs.isfinite().flatten(1).all(1)
    batches = inputs[known].unflatten(2, observation.input_shape).to(scores)
    means = [observation.model(samples).softmax(1).mean(0) for samples in batches]
    if not means:
        return scores
    return scores.index_put((known,), scores[known] - torch.stack(means))


def _proposals(
    factors: Factors, layers: Layers, scores: Tensor, stream: torch.Generator
) -> list[Callable[[], Tensor]]:
    """Return the searches that suit the network."""
    sparse = partial(sparse_columns, factors, stream)
    head = layers.head
    if head is None:
        return [sparse]

    def signal() -> Tensor:
        guess = draw_guess(layers.shape, layers.weight, layers.bias, scores, layers.softmax, stream)
        return signal_columns(factors, head, guess)

    return [signal, sparse]
