"""The attack `best`: of all attacks without grants, those that suit what is observed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction, join_victims
from gleak.artifacts.schema import array_fields
from gleak.attacks.agic import AGIC
from gleak.attacks.base import LABELS, MID_GREY, AttackSpec, AttackSummary, SearchCost
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.cpa_noisy import CPANoisy
from gleak.attacks.dlg import CPL
from gleak.attacks.first_layer import Aono, dense_layer_of_samples, output_slopes
from gleak.attacks.gradinversion import GradInversion
from gleak.attacks.invertgrad import InvertGrad
from gleak.attacks.matching.codes import Bicubic
from gleak.attacks.matching.distances import Cosine, Likelihood, RandomCell, SignCell
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matrix_completion import MatrixCompletion, determines_layer
from gleak.attacks.observation import Observation
from gleak.attacks.rog import ROG
from gleak.attacks.spear import Spear
from gleak.attacks.unmixing.noisy_mixtures import observe_noise
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.batch_norm import has_trained_statistics
from gleak.models.differentiation import has_kinks
from gleak.models.layer_search import first_dense_input
from gleak.models.stochastic import sampling
from gleak.runtime.seeding import torch_stream

SMOOTH_TV, KINKED_TV = 1e-4, 0.1
"""Weights of the total variation under masks and PRECODE, in networks without kinks and with."""
NOISY = 0.1
"""Length of noise relative to the gradient's from which it is modelled (docs/results/cpa.md)."""
ROUNDED_TV = 0.3
"""Weight of the total variation for rounded values."""
DEEP = 6
"""Number of convolutions from which on AGIC's weights of layers recover more than equal ones."""
VERY_DEEP = 12
"""Number of convolutions from which on the mean of several coarse searches recovers more.

Both, and the fields, were chosen on training images of CIFAR-10 (docs/results/defaults.md).
"""
VERY_DEEP_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.2, "result": "mean"}
SEARCHES = 3
"""Number of searches that share the budget there."""
PROBES = 3
"""Random samples that show whether a network has kinks."""
LARGE = 96
"""Least side of images that are sought at half of it."""
LARGE_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.1, "tv": 3.0}
"""Fields of ROG for large images, chosen on training photographs (docs/results/rog.md)."""


class Candidate(NamedTuple):
    """An attack that suits an observation, and the reason: a clause."""

    attack: AttackSpec
    reason: str


@register("best")
class Best(AttackSpec):
    """The attacks that suit the network and the update, the most exact first.

    Each attack is run on the victims in which those before it have not converged by their own
    criteria, and where clients send the gradient of one sample the result is kept whose gradient
    has the nearer direction; nothing is compared with the truth. Exact attacks come first: the
    ratio of a dense first layer's gradients for one sample, SPEAR for a batch behind a ReLU, then
    CPA on edges, or in noise its form that models it.
    L-BFGS follows for one sample of a network without kinks, where it converges to the sample, and
    gradient matching last: with a prior by the network's running statistics if it has any, and with
    AGIC's weights of layers for the exact gradient of other networks of `DEEP` convolutions (from
    `VERY_DEEP` on by the mean of several searches at half the side, which share the budget), and
    with ROG's codes for large images and few convolutions. If only some values were sent, but
    enough to complete the gradient of a dense first layer (`matrix_completion`), the exact attacks
    are run on the completed one. Otherwise, and on rounded values, only gradient matching is run,
    with the fields that suit the defence (`defence_fields`). The log names the attacks and the
    reasons. Attacks that need grants, knowledge or crafted parameters are never among them.
    """

    source = "ours, of the attacks that it runs"
    parts: ClassVar[tuple[type[AttackSpec], ...]] = (
        *(AGIC, Aono, CPAEdges, CPANoisy, CPL, GradInversion, InvertGrad),
        *(MatrixCompletion, ROG, Spear),
    )
    """The attacks among which it chooses."""

    budget: int = parameter(
        4800, "iterations of gradient matching for one victim", source="InvertGrad reference", ge=1
    )
    tv: float = parameter(
        0.01, "weight of the total variation (images)", source="AGIC's and MKOR's studies", ge=0
    )

    def cost(self) -> SearchCost:
        return SearchCost(evaluations=self.budget, state=CPL().cost().state)

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        InvertGrad().check_network(network, shape, classes, client)

    def summary(self) -> AttackSummary:
        several = ("that of each attack",)
        return AttackSummary(losses=several, optimizers=several, labels=LABELS["auto"])

    def rehearse(self, observation: Observation) -> None:
        """Rehearse every attack that suits the first victim, whichever would converge."""
        for candidate in self.candidates(observation.of_victim(0)):
            candidate.attack.rehearse(observation)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Attack victims together that the same attacks suit."""
        groups: dict[tuple[Candidate, ...], list[int]] = {}
        for row in range(observation.victims):
            candidates = tuple(self.candidates(observation.of_victim(row)))
            groups.setdefault(candidates, []).append(row)
        rows = [np.array(group) for group in groups.values()]
        results = [
            _attacked(candidates, observation.of_victims(group))
            for candidates, group in zip(groups, rows, strict=True)
        ]
        return in_order(results, rows)

    def candidates(self, observation: Observation) -> Iterator[Candidate]:
        """Yield the attacks that suit one victim, in the order in which they are tried."""
        whole = not (observation.sent or observation.cells)
        if not observation.cells and neurons_of_samples(observation):
            yield from exact_attacks(observation)
        elif (
            whole
            and not defence_fields(observation)
            and observation.is_sample_gradient
            and not _is_kinked(observation)
        ):
            yield Candidate(
                CPL(), "one sample and a network without kinks, for which L-BFGS converges"
            )
        yield self._matching(observation)

    def _matching(self, observation: Observation) -> Candidate:
        """Return gradient matching with the prior, weights of layers or codes that suit best."""
        unrolled = observation.protocol.local_steps > 1
        against_defence = defence_fields(observation)
        fields = {
            "iterations": self.budget,
            "tv": self.tv,
            "client_model": "unrolled" if unrolled else "one_step",
            **against_defence,
        }
        if has_trained_statistics(observation.model):
            return Candidate(
                GradInversion(**fields), "the network keeps statistics of its training data"
            )
        modules, sides = observation.model.modules(), observation.input_shape[1:]
        convolutions = sum(isinstance(layer, torch.nn.Conv2d) for layer in modules)
        halved = observation.modality == "image" and not any(side % 2 for side in sides)
        undefended = not (against_defence or observation.sent)
        if undefended and convolutions >= DEEP and not unrolled:
            reason = "in deep networks the later layers tell more"
            if convolutions >= VERY_DEEP and halved:
                shared = {"seeds": SEARCHES, "iterations": max(self.budget // SEARCHES, 1)}
                fields |= {**VERY_DEEP_FIELDS, **shared}
                reason = (
                    "in very deep networks the mean of several searches at half the side tells more"
                )
            return Candidate(AGIC(labels="auto", **fields), reason)
        if undefended and convolutions < DEEP and halved and min(sides, default=0) >= LARGE:
            large = ROG(**{**fields, **LARGE_FIELDS})
            return Candidate(large, "large images are sought at half their side")
        return Candidate(InvertGrad(**fields), "matches the gradients of any network")


def _attacked(candidates: Iterable[Candidate], observation: Observation) -> Reconstruction:
    """Run attacks on victims, each on those that the ones before have not settled.

    A victim is settled if an attack converges, or if attacks that say which samples they have found
    leave none out. These samples stay.
    """
    result: Reconstruction | None = None
    kept: Reconstruction | None = None
    open_victims = np.arange(observation.victims)
    for candidate in candidates:
        if not len(open_victims):
            break
        logging.info("%s, %d victims: %s", candidate.attack, len(open_victims), candidate.reason)
        observed = observation.of_victims(open_victims)
        later = candidate.attack.reconstruct(observed)
        settled = later.converged
        if result is None or kept is None:
            result = kept = later
        else:
            result = completed(kept, nearer(result, later, open_victims, observed), open_victims)
            told = _missing(later.inputs).any(1)
            rows = open_victims[settled | told]
            fields = {
                name: getattr(kept, name).copy() for name in ("inputs", "labels", "converged")
            }
            for name, values in fields.items():
                values[rows] = getattr(result, name)[rows]
            kept = Reconstruction(**fields, paired=kept.paired and result.paired)
            lacking = _missing(kept.inputs[open_victims]).any(1)
            settled = settled | (told & ~lacking)
        open_victims = open_victims[~settled]
    assert result is not None
    return result


def nearer(
    first: Reconstruction, later: Reconstruction, victims: np.ndarray, observation: Observation
) -> Reconstruction:
    """Return the later result of each victim, or the first one if it matches the gradient better.

    The cosine distance of gradients decides, where clients send the gradient of one sample: unlike
    the squared one, it does not depend on the length of the gradient, which clipping changes. The
    first result is of all victims, the later one and the observation of these rows.
    """
    if not observation.is_sample_gradient:
        return later
    problem = GradientMatching.of(observation, replace(CPL().parts(), distance=Cosine()))
    like = next(iter(problem.observed.values()))

    def distances(inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        tensor = torch.from_numpy(labels).long()
        targets = torch.nn.functional.one_hot(tensor, problem.classes).to(like)
        points = torch.from_numpy(inputs).flatten(1).to(like)
        return replace(problem, targets=targets).evaluate(points).distance.cpu().numpy()

    before = distances(first.inputs[victims], first.labels[victims])
    kept = (before <= distances(later.inputs, later.labels)).nonzero()[0]
    inputs, labels = later.inputs.copy(), later.labels.copy()
    inputs[kept], labels[kept] = first.inputs[victims[kept]], first.labels[victims[kept]]
    return replace(later, inputs=inputs, labels=labels)


def completed(first: Reconstruction, later: Reconstruction, victims: np.ndarray) -> Reconstruction:
    """Complete the results of some victims by those of another attack.

    Samples that the first attack did not find are mid-grey. They are taken from the later attack,
    which has found the others as well: those that resemble them most are left out. A victim without
    mid-grey samples, whose search did not converge, is replaced. A completed victim has not
    converged: the later attack's criterion is about all samples that it found. The first result is
    of all victims, the later one of these rows.
    """
    from scipy import optimize, spatial

    inputs, labels, converged = (x.copy() for x in (first.inputs, first.labels, first.converged))
    labels[victims], converged[victims] = later.labels, later.converged
    for row, victim in enumerate(victims):
        missing, others = _missing(first.inputs[[victim]])[0], later.inputs[row]
        if missing.all() or not missing.any():
            inputs[victim] = others
            continue
        known = inputs[victim, ~missing]
        flat = (known.reshape(len(known), -1), others.reshape(len(others), -1))
        _, taken = optimize.linear_sum_assignment(spatial.distance.cdist(*flat))
        inputs[victim, missing] = np.delete(others, taken, axis=0)[: missing.sum()]
        converged[victim] = False
    paired = first.paired and later.paired
    return Reconstruction(inputs=inputs, labels=labels, converged=converged, paired=paired)


def _missing(inputs: np.ndarray) -> np.ndarray:
    """Mark samples that were not found, which are mid-grey; Shape (V, N)."""
    return np.asarray((inputs == MID_GREY).reshape(*inputs.shape[:2], -1).all(2))


def in_order(results: Sequence[Reconstruction], rows: Sequence[np.ndarray]) -> Reconstruction:
    """Join the results of groups of victims, given the rows of each group's victims among all.

    Snapshots are left out of several groups, as they are of the first victims.
    """
    if len(results) == 1:
        return results[0]
    whole, order = join_victims(results), np.concatenate(rows).argsort()
    sorted_fields = {
        name: value[order]
        for name, schema in array_fields(Reconstruction).items()
        if schema.dims[0] == "victim" and (value := getattr(whole, name)) is not None
    }
    return replace(whole, **sorted_fields, snapshots=None, snapshot_iteration=None)


def defence_fields(observation: Observation) -> dict[str, Any]:
    """Return the fields of gradient matching that suit the defence which a server sees.

    They were chosen on training images of CIFAR-10 (docs/results/masks.md).
    """
    kinked = _is_kinked(observation)
    exact = {"distance": Likelihood(), "tv": KINKED_TV if kinked else SMOOTH_TV}
    fields: dict[str, Any] = {}
    kinds = {type(cell) for cell in observation.cells.values()}
    if SignCell in kinds:
        fields = {"distance": Likelihood()}
    elif kinds and kinked:  # a search by the likelihood of rounded values gets stuck
        fields = {"tv": ROUNDED_TV}
    elif kinds:
        fields = {"distance": Likelihood(), **({"tv": ROUNDED_TV} if RandomCell in kinds else {})}
    elif not observation.sent and has_zero_columns(observation):
        fields |= {"compared": "nonzero", **({"tv": KINKED_TV} if kinked else exact)}
    if sampling(observation.model) and observation.protocol.local_steps == 1:
        fields |= {"draws": "searched", **exact}
    return fields


def has_zero_columns(observation: Observation) -> bool:
    """Return True if a defence has set columns of the first dense layer's gradient to zero.

    Soteria does. A ReLU before the layer leaves some, too, as in the gradient of random samples:
    then more than half of the other columns must be zero.
    """
    samples = random_samples(observation, observation.batch_size)
    with torch.no_grad():
        entry = first_dense_input(observation.model, samples)
    if entry is None or f"{entry.layer}.weight" not in observation.update:
        return False
    zero = (observation.update[f"{entry.layer}.weight"][0] == 0).all(-2).double().mean().item()
    natural = (entry.embeddings == 0).all(0).double().mean().item()
    return zero > (1 + natural) / 2 if natural else zero > 0


def neurons_of_samples(observation: Observation) -> int:
    """Return the number of neurons of the dense layer whose inputs are the samples.

    It is 0 if there is no such layer, or the gradient of its weight or bias was not sent.
    """
    try:
        layer = dense_layer_of_samples(observation.model, observation.input_shape)
    except IncompatibleError:
        return 0
    if not observation.update.keys() >= {f"{layer}.weight", f"{layer}.bias"}:
        return 0
    return len(observation.model.get_parameter(f"{layer}.bias"))


def exact_attacks(observation: Observation, spear: Spear | None = None) -> Iterator[Candidate]:
    """Yield the attacks on a dense layer whose inputs are the samples, the most exact first.

    If only some values of the layer's gradient were sent, they are completed first. The observation
    is of one victim; ``spear`` may have another budget.
    """
    candidates = _attacks_on_samples(observation, spear or Spear())
    if not observation.sent:
        yield from candidates
    elif neurons_of_samples(observation) and determines_layer(
        observation, dense_layer_of_samples(observation.model, observation.input_shape)
    ):
        for attack, reason in candidates:
            reason = f"{reason}; the values that were not sent follow from the others"
            yield Candidate(MatrixCompletion(attack=attack), reason)


def _attacks_on_samples(observation: Observation, spear: Spear) -> Iterator[Candidate]:
    """Yield the attacks of `exact_attacks` on a gradient that was sent as a whole."""
    samples, neurons = observation.batch_size, neurons_of_samples(observation)
    if samples == 1 and neurons:
        yield Candidate(Aono(), "one sample is the ratio of a dense first layer's gradients")
        return
    if samples > neurons:
        return
    single = observation.protocol.local_steps == 1 and observation.protocol.batch_norm is None
    if single:
        layer = dense_layer_of_samples(observation.model, observation.input_shape)
        drawn, labels = random_samples(observation, PROBES), torch.zeros(PROBES).long()
        if (output_slopes(observation, layer, drawn, labels.to(drawn.device)) == 0).any():
            yield Candidate(spear, "a ReLU behind a dense first layer leaves zeros in the gradient")
    if observation.modality == "image":
        mixed = f"{samples} samples are mixed in {neurons} neurons"
        if _noise_share(observation, neurons) > NOISY:
            yield Candidate(CPANoisy(), f"{mixed}, in noise")
        else:
            yield Candidate(CPAEdges(), mixed)


def _noise_share(observation: Observation, neurons: int) -> float:
    """Return the noise in the layer's gradients relative to them; 0 where it cannot be told.

    It cannot be told after several steps, with statistics of the batch, for as many samples as the
    layer has neurons or inputs, and if some values were not sent.
    """
    protocol, most = observation.protocol, min(neurons, math.prod(observation.input_shape))
    several = protocol.local_steps * protocol.epochs > 1
    if several or protocol.batch_norm or protocol.batch_size >= most or observation.sent:
        return 0.0
    mixture = CPANoisy().mixture(observation)
    return observe_noise(mixture.weight[0], mixture.bias[0], observation.batch_size).noise_share


def _is_kinked(observation: Observation) -> bool:
    return has_kinks(observation.model, random_samples(observation, 2 * PROBES))


def random_samples(observation: Observation, count: int) -> torch.Tensor:
    """Draw uniform samples, always the same; Shape (N, *shape)."""
    generator = torch_stream(observation.seed, "best")
    shape = (count, *observation.input_shape)
    samples = torch.rand(shape, generator=generator, dtype=torch.float32)
    return samples.to(next(observation.model.parameters()))
