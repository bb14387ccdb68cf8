"""Unmixing of a batch by the zeros that a ReLU leaves in the gradient (SPEAR)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.first_layer import (
    DenseFirstAttack,
    classifier_scores,
    exact_reconstruction,
    output_slopes,
)
from gleak.attacks.matching.label_inference import infer_by_argmin
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.attacks.observed_network import is_kinked
from gleak.attacks.unmixing import relu_search
from gleak.attacks.unmixing.relu_sparsity import Factors, factorise
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import dense_inputs, layer_of_samples
from gleak.models.parameters import random_samples
from gleak.models.perceptron import Perceptron
from gleak.runtime.checkpointing import Journal
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import torch_stream

PROBES = 3
PARTS = ("weight", "bias")


NOISE = 1e-6
"""Largest share of a gradient's power outside of its leading singular vectors, by rounding."""


@register("spear")
class Spear(DenseFirstAttack):
    """Exact samples of a batch from a dense layer with ReLU, with labels by CPL's rule.

    If all samples are recovered, their predicted probabilities make the rule exact.

    Like SPEAR, the attack uses the zeros that the ReLU leaves in a low-rank gradient (see
    `gleak.attacks.unmixing.relu_sparsity`) and verifies samples without the truth: a sample must
    activate the neurons at which its gradient is not zero. SPEAR draws random submatrices. Here
    images are first separated approximately by `cpa_edges`, and the neurons at which they are
    surely inactive give exact directions; those found leave fewer images to separate. Then, and for
    tables, sparse directions are searched by iteratively reweighted least squares and, if the
    network has only one more layer, also by the sign and size that its weights give a sample's
    gradient (see `gleak.attacks.unmixing.relu_search`). Samples that are not recovered are
    mid-grey; a victim has converged when all are recovered. The attack needs a single gradient: in
    several local steps the gradients of the layers differ.
    """

    source = "Dimitrov et al. 2024 (SPEAR), sections 3 and 4"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"rounds"})
    instead: ClassVar[str] = "use fc2 or mlp+activation=relu"
    takes_local_steps: ClassVar[bool] = False
    takes_batch_statistics: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    rounds: int = parameter(64, "searches for directions, budget of one victim", ge=1)

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not isinstance(model, Perceptron):
            return
        if model.activation != "relu":
            raise IncompatibleError(
                f"attack {self} needs the zeros of a ReLU, but model {model} has "
                f"activation={model.activation}; use activation=relu"
            )
        self._check_neurons(client.batch_size, model.hidden, f"model {model}")

    def _check_neurons(self, samples: int, neurons: int, where: str) -> None:
        if samples > neurons:
            raise IncompatibleError(
                f"attack {self} separates at most as many samples as the layer has neurons: "
                f"{samples} and {neurons} ({where}); use a smaller batch_size"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        layer = layer_of_samples(network, shape)[0]
        neurons = len(network.get_parameter(f"{layer}.bias"))
        self._check_neurons(client.batch_size, neurons, f"layer {layer!r}")

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        layer = layer_of_samples(observation.model, observation.input_shape)[0]
        samples = observation.batch_size
        weight = observation.update[f"{layer}.weight"][0, 0].double()
        if samples == 1 or not is_kinked(observation):
            raise IncompatibleError("needs several samples and the zeros of a ReLU")
        powers = torch.linalg.eigvalsh(weight @ weight.T)
        if powers[:-samples].sum() > NOISE * powers.sum():
            raise IncompatibleError("needs an exact gradient, whose rank is the number of samples")

    def summary(self) -> AttackSummary:
        return AttackSummary(
            losses=("sparsity of directions", "likelihood of edges"),
            optimizers=("reweighted least squares", "quasi-Newton"),
            labels=LABELS["argmin"],
        )

    def rehearse(self, observation: Observation) -> None:
        """Take few rounds, as the end of the search depends on values, for one victim of all."""
        self.model_copy(update={"rounds": 3}).reconstruct(observation.of_victim(0))

    def reconstruct(self, observation: Observation) -> Reconstruction:
        scores, observed = classifier_scores(observation), mean_gradients(observation)
        name, scaling = layer_of_samples(observation.model, observation.input_shape)
        parameters = (observation.model.get_parameter(f"{name}.{part}").double() for part in PARTS)
        weight, bias = scaling.of_layer(*parameters)
        head = last_weight(observation, len(bias))
        size = (observation.victims, observation.batch_size, weight.shape[1])
        inputs = weight.new_full(size, torch.nan)
        part = observation.journal.part()
        with Progress(observation.victims, "victims") as progress:
            for victim in range(observation.victims):
                progress.advance()
                own = part.part(str(victim))
                if own.stored:
                    inputs[victim] = torch.from_numpy(own.stored["inputs"]).to(inputs)
                    continue
                gradients = [observed[f"{name}.{part}"][victim] for part in PARTS]
                of_samples = scaling.gradient_of_samples(*gradients)
                factors = factorise(of_samples, gradients[1], observation.batch_size)
                seen, likely = observation.of_victim(victim), scores[victim].double()
                proposals = _proposals(seen, factors, weight, bias, head, likely)
                budget = 0 if factors.hidden else self.rounds
                result = relu_search.search(factors, weight, bias, head, proposals, budget)
                if result is not None:
                    consistent = result.inputs[result.consistent]
                    inputs[victim, : len(consistent)] = consistent
                own.keep({"inputs": inputs[victim]})
                part.save_if_due()
        remaining = without_probabilities(observation, scores, inputs)
        labels = infer_by_argmin(remaining, observation.batch_size)
        return exact_reconstruction(observation, inputs, labels)


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
    first = layer_of_samples(model, observation.input_shape)[0]
    at_first = output_slopes(observation, first, samples, labels)
    for name, runs in Counter(entry.layer for entry in dense_inputs(model, samples)).items():
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

    Scores are gradients of the last layer's bias, means of p - [label], Shape (V, classes); inputs
    are not finite where unknown, Shape (V, N, F).
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
    observation: Observation,
    factors: Factors,
    weight: torch.Tensor,
    bias: torch.Tensor,
    head: torch.Tensor | None,
    scores: torch.Tensor,
) -> list[relu_search.Proposal]:
    """Return the searches that suit the samples and the network of one victim."""
    stream = torch_stream(observation.seed, "spear", int(observation.victim_ids[0]))
    softmax = observation.protocol.loss == "cross_entropy"
    separator, silent = CPAEdges(), replace(observation, journal=Journal())

    def by_patterns(known: torch.Tensor) -> torch.Tensor:
        """Search from the samples that `cpa_edges` separates."""
        if len(known):
            count = factors.rank - len(known)
            rest = relu_search.remaining_mixture(factors, known)
            sources = separator.separate_counted(silent, rest, [count], count)
        else:
            sources = separator.separate(silent)
        inputs = sources.values[0].double() / sources.factors[0].double()
        return relu_search.pattern_columns(factors, inputs[inputs.isfinite().all(1)], weight, bias)

    def by_signal(_: torch.Tensor) -> torch.Tensor:
        assert head is not None
        guess = relu_search.draw_guess(
            observation.input_shape, weight, bias, scores, softmax, stream
        )
        return relu_search.signal_columns(factors, head, guess)

    def by_sparsity(_: torch.Tensor) -> torch.Tensor:
        return relu_search.sparse_columns(factors, stream)

    suiting = {by_patterns: observation.modality == "image", by_signal: head is not None}
    return [*(proposal for proposal, suits in suiting.items() if suits), by_sparsity]
