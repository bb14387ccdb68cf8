"""The attack `best`: of all attacks without grants, those that suit what is observed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.agic import AGIC
from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.base import AttackSpec
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.cpa_noisy import CPANoisy
from gleak.attacks.dense_first import Aono
from gleak.attacks.dlg import CPL
from gleak.attacks.gradinversion import GradInversion
from gleak.attacks.invertgrad import InvertGrad
from gleak.attacks.joined_results import (
    completed,
    in_order,
    lacks_samples,
    nearer,
    with_victims_of,
)
from gleak.attacks.matching.codes.sample_codes import Bicubic
from gleak.attacks.matching.distances.likelihood import Likelihood
from gleak.attacks.matrix_completion import MatrixCompletion, determines_layer
from gleak.attacks.observation import Observation
from gleak.attacks.rog import ROG
from gleak.attacks.spear import Spear
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec

SMOOTH_TV, KINKED_TV = 1e-4, 0.1
"""Weights of the total variation under masks and PRECODE, in networks without kinks and with."""
NOISY = 0.1
"""Length of noise relative to the gradient's from which it is modelled (docs/results/cpa.md)."""
ROUNDED_TV = 0.3
"""Weight of the total variation for rounded values."""
DEEP = 6
"""Number of convolutions from which on AGIC's weights of layers recover more than equal ones.

Chosen on training images of CIFAR-10 (docs/results/defaults.md).
"""
VERY_DEEP = 12
"""Number of convolutions from which on the mean of several coarse searches recovers more."""
VERY_DEEP_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.2, "result": "mean"}
"""Fields of AGIC for such networks, chosen on training images (docs/results/defaults.md)."""
SEARCHES = 3
"""Number of searches that share the budget there."""
PROBES = 3
"""Random samples that show whether a network has kinks."""
LARGE = 96
"""Least side of images that are sought at half of it."""
LARGE_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.1, "tv": 3.0}
"""Fields of ROG for large images, chosen on training photographs (docs/results/rog.md)."""


@dataclass(frozen=True)
class Choice:
    """An attack that suits an observation.

    Args:
        attack: the attack.
        reason: why it is chosen; a clause.
    """

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

    budget: int = parameter(
        4800, "iterations of gradient matching for one victim", source="InvertGrad reference", ge=1
    )
    tv: float = parameter(
        0.01, "weight of the total variation (images)", source="AGIC's and MKOR's studies", ge=0
    )

    @property
    @override
    def evaluations(self) -> int:
        return self.budget

    @override
    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the gradients of the network can be matched."""
        super().check_network(network, shape, classes, client)
        InvertGrad().check_network(network, shape, classes, client)

    @override
    def traits(self) -> AttackSummary:
        several = ("that of each attack",)
        return AttackSummary(losses=several, optimizers=several, labels=LABELS["auto"])

    @override
    def rehearse(self, observation: Observation) -> None:
        """Rehearse every attack that suits the first victim, whichever would converge."""
        for choice in self.choices(observation.of_victim(0)):
            choice.attack.rehearse(observation)

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Attack victims together that the same attacks suit."""
        groups: dict[tuple[Choice, ...], list[int]] = {}
        for row in range(observation.victims):
            chosen = tuple(self.choices(observation.of_victim(row)))
            groups.setdefault(chosen, []).append(row)
        rows = [np.array(group) for group in groups.values()]
        found = [
            _attacked(chosen, observation.of_victims(group))
            for chosen, group in zip(groups, rows, strict=True)
        ]
        return in_order(found, rows)

    def choices(self, observation: Observation) -> Iterator[Choice]:
        """Yield the attacks that suit one victim, in the order in which they are tried."""
        whole = not (observation.sent or observation.cells)
        if not observation.cells and neurons_of_samples(observation):
            yield from exact_attacks(observation)
        elif whole and not defence_fields(observation) and _is_smooth(observation):
            yield Choice(
                CPL(), "one sample and a network without kinks, for which L-BFGS converges"
            )
        yield self._matching(observation)

    def _matching(self, observation: Observation) -> Choice:
        from gleak.models.batch_norm import has_trained_statistics

        unrolled = observation.protocol.local_steps > 1
        against_defence = defence_fields(observation)
        fields = {
            "iterations": self.budget,
            "tv": self.tv,
            "client_model": "unrolled" if unrolled else "one_step",
            **against_defence,
        }
        if has_trained_statistics(observation.model):
            return Choice(
                GradInversion(**fields), "the network keeps statistics of its training data"
            )
        undefended, deep = not (against_defence or observation.sent), _is_deep(observation)
        if undefended and deep and not unrolled:
            return self._deep_matching(observation, fields)
        if undefended and _is_large(observation) and not deep:
            return Choice(
                ROG(**{**fields, **LARGE_FIELDS}), "large images are sought at half their side"
            )
        return Choice(InvertGrad(**fields), "matches the gradients of any network")

    def _deep_matching(self, observation: Observation, fields: dict[str, Any]) -> Choice:
        """Return AGIC, with several searches in networks that hide where things are."""
        if _convolutions(observation) < VERY_DEEP or not _is_halved(observation):
            return Choice(
                AGIC(labels="auto", **fields), "in deep networks the later layers tell more"
            )
        several = {"seeds": SEARCHES, "iterations": max(self.budget // SEARCHES, 1)}
        return Choice(
            AGIC(labels="auto", **{**fields, **VERY_DEEP_FIELDS, **several}),
            "in very deep networks the mean of several searches at half the side tells more",
        )


def _attacked(choices: Iterable[Choice], observation: Observation) -> Reconstruction:
    """Run attacks on victims, each on those that the ones before have not settled.

    A victim is settled if an attack converges, or if attacks that say which samples they have found
    leave none out. These samples stay.
    """
    found: Reconstruction | None = None
    kept: Reconstruction | None = None
    open_victims = np.arange(observation.victims)
    for choice in choices:
        if not len(open_victims):
            break
        logging.info("%s, %d victims: %s", choice.attack, len(open_victims), choice.reason)
        observed = observation.of_victims(open_victims)
        later = choice.attack.reconstruct(observed)
        settled = later.converged
        if found is None or kept is None:
            found = kept = later
        else:
            found = completed(kept, nearer(found, later, open_victims, observed), open_victims)
            told = lacks_samples(later)
            kept = with_victims_of(kept, found, open_victims[settled | told])
            settled = settled | (told & ~lacks_samples(kept)[open_victims])
        open_victims = open_victims[~settled]
    assert found is not None
    return found


def defence_fields(observation: Observation) -> dict[str, Any]:
    """Return the fields of gradient matching that suit the defence which a server sees.

    They were chosen on training images of CIFAR-10 (docs/results/masks.md).

    Args:
        observation: of one victim.
    """
    from gleak.models.variational import sampling

    kinked = _is_kinked(observation)
    exact = {"distance": Likelihood(), "tv": KINKED_TV if kinked else SMOOTH_TV}
    fields: dict[str, Any] = {}
    if observation.cells:
        fields |= _fields_of_codes(observation, kinked)
    elif not observation.sent and has_zero_columns(observation):
        fields |= {"compared": "nonzero", **({"tv": KINKED_TV} if kinked else exact)}
    if sampling(observation.model) and observation.protocol.local_steps == 1:
        fields |= {"draws": "searched", **exact}
    return fields


def _fields_of_codes(observation: Observation, kinked: bool) -> dict[str, Any]:
    """Return the fields for rounded values and signs.

    In a network with kinks a search by the likelihood of rounded values gets stuck.
    """
    from gleak.attacks.matching.code_cells import RandomCell, SignCell

    kinds = {type(cell) for cell in observation.cells.values()}
    if SignCell in kinds:
        return {"distance": Likelihood()}
    if kinked:
        return {"tv": ROUNDED_TV}
    return {"distance": Likelihood(), **({"tv": ROUNDED_TV} if RandomCell in kinds else {})}


def has_zero_columns(observation: Observation) -> bool:
    """Return True if a defence has set columns of the first dense layer's gradient to zero.

    Soteria does. A ReLU before the layer leaves some, too, as in the gradient of random samples:
    then more than half of the other columns must be zero.

    Args:
        observation: of one victim.
    """

    from gleak.models.layer_search import first_dense_input

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

    Returns:
        0 if there is no such layer, or the gradient of its weight or bias was not sent.
    """
    from gleak.attacks.first_layer import dense_layer_of_samples

    try:
        layer = dense_layer_of_samples(observation.model, observation.input_shape)
    except IncompatibleError:
        return 0
    if not observation.update.keys() >= {f"{layer}.weight", f"{layer}.bias"}:
        return 0
    return len(observation.model.get_parameter(f"{layer}.bias"))


def exact_attacks(observation: Observation, spear: Spear | None = None) -> Iterator[Choice]:
    """Yield the attacks on a dense layer whose inputs are the samples, the most exact first.

    If only some values of the layer's gradient were sent, they are completed first.

    Args:
        observation: of one victim.
        spear: SPEAR with another budget.
    """
    choices = _attacks_on_samples(observation, spear or Spear())
    if not observation.sent:
        yield from choices
    elif _is_determined(observation):
        for choice in choices:
            reason = f"{choice.reason}; the values that were not sent follow from the others"
            yield Choice(MatrixCompletion(attack=choice.attack), reason)


def _attacks_on_samples(observation: Observation, spear: Spear) -> Iterator[Choice]:
    """Yield the attacks of `exact_attacks` on a gradient that was sent as a whole."""
    from gleak.attacks.first_layer import leaves_zeros

    samples, neurons = observation.batch_size, neurons_of_samples(observation)
    if samples == 1 and neurons:
        yield Choice(Aono(), "one sample is the ratio of a dense first layer's gradients")
        return
    if samples > neurons:
        return
    single = observation.protocol.local_steps == 1 and observation.protocol.batch_norm is None
    if single and leaves_zeros(observation, random_samples(observation, PROBES)):
        yield Choice(spear, "a ReLU behind a dense first layer leaves zeros in the gradient")
    if observation.modality == "image":
        mixed = f"{samples} samples are mixed in {neurons} neurons"
        if _noise_share(observation, neurons) > NOISY:
            yield Choice(CPANoisy(), f"{mixed}, in noise")
        else:
            yield Choice(CPAEdges(), mixed)


def _is_determined(observation: Observation) -> bool:
    """Return True if the values sent determine the gradient of the first dense layer."""
    from gleak.attacks.first_layer import dense_layer_of_samples

    if not neurons_of_samples(observation):
        return False
    layer = dense_layer_of_samples(observation.model, observation.input_shape)
    return determines_layer(observation, layer)


def _noise_share(observation: Observation, neurons: int) -> float:
    """Return the noise in the layer's gradients relative to them; 0 where it cannot be told.

    It cannot be told after several steps, with statistics of the batch, for as many samples as the
    layer has neurons or inputs, and if some values were not sent.

    Args:
        observation: of one victim.
        neurons: of the layer.
    """
    from gleak.attacks.unmixing.noisy_mixtures import observe_noise

    steps = observation.protocol.local_steps * observation.protocol.epochs
    most = min(neurons, math.prod(observation.input_shape))
    if (
        steps > 1
        or observation.protocol.batch_norm
        or observation.batch_size >= most
        or observation.sent
    ):
        return 0.0
    mixture = CPANoisy().mixture(observation)
    return observe_noise(mixture.weight[0], mixture.bias[0], observation.batch_size).noise_share


def _is_deep(observation: Observation) -> bool:
    return _convolutions(observation) >= DEEP


def _convolutions(observation: Observation) -> int:

    return sum(isinstance(layer, torch.nn.Conv2d) for layer in observation.model.modules())


def _is_large(observation: Observation) -> bool:
    return min(observation.input_shape[1:], default=0) >= LARGE and _is_halved(observation)


def _is_halved(observation: Observation) -> bool:
    """Return True for images whose sides have halves."""
    sides = observation.input_shape[1:]
    return observation.modality == "image" and not any(side % 2 for side in sides)


def _is_smooth(observation: Observation) -> bool:
    return observation.is_sample_gradient and not _is_kinked(observation)


def _is_kinked(observation: Observation) -> bool:
    from gleak.models.differentiation import has_kinks

    return has_kinks(observation.model, random_samples(observation, 2 * PROBES))


def random_samples(observation: Observation, count: int) -> torch.Tensor:
    """Draw uniform samples, always the same; Shape (N, *shape)."""

    from gleak.runtime.seeding import torch_stream

    generator = torch_stream(observation.seed, "best")
    shape = (count, *observation.input_shape)
    samples = torch.rand(shape, generator=generator, dtype=torch.float32)
    return samples.to(next(observation.model.parameters()))
