"""Base class of attacks that infer who took part, and what they know of the candidates."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from gleak.artifacts.membership import CandidateSamples
from gleak.attacks.attacker import AttackerSpec
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import CapturedUpdates
from gleak.clients.local_training import steps_of_epoch
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec
from gleak.models.parameters import as_inputs

CANDIDATES = "candidates"
"""The grant of all attacks of this kind."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of V victims, as an attack reads them, on the device of the network.

    Args:
        inputs: the pool, Shape (M, *shape).
        labels: Shape (M).
        positions: of each victim's candidates in the pool, Shape (V, K).
        reference_inputs: samples that no victim has, Shape (L, *shape).
        reference_labels: Shape (L).
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    reference_inputs: torch.Tensor
    reference_labels: torch.Tensor

    @classmethod
    def of(cls, samples: CandidateSamples, observation: Observation, where: str) -> Self:
        """Return the candidates of an observation's victims, from a file.

        Raises:
            ArtifactError: samples, labels or victims are not those of the observation.
        """
        facts = {
            "samples of shape": (observation.input_shape, tuple(samples.inputs.shape[1:])),
            "victims": (observation.victims, len(samples.candidate)),
        }
        for what, (wanted, given) in facts.items():
            if wanted != given:
                raise ArtifactError(f"{where}: has {what} {given}, but the update is of {wanted}")
        labels = np.concatenate([samples.labels, samples.reference_labels])
        if labels.min() < 0 or labels.max() >= observation.classes:
            raise ArtifactError(
                f"{where}: labels from {labels.min()} to {labels.max()}, but the network has "
                f"{observation.classes} classes"
            )
        network = observation.model
        device = next(network.parameters()).device
        classes, positions, known = (
            torch.from_numpy(np.asarray(values)).to(device, torch.long)
            for values in (samples.labels, samples.candidate, samples.reference_labels)
        )
        return cls(
            as_inputs(network, samples.inputs),
            classes,
            positions,
            as_inputs(network, samples.reference_inputs),
            known,
        )

    def of_victim(self, row: int) -> Self:
        """Return the candidates of one victim, with a pool of them alone, in their order."""
        chosen = self.positions[row]
        return replace(
            self,
            inputs=self.inputs[chosen],
            labels=self.labels[chosen],
            positions=torch.arange(len(chosen), device=chosen.device)[None],
        )

    def of_each(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the pool for each victim's candidates; (M, V) to (V, K)."""
        return values.T.gather(1, self.positions)


class MembershipSpec(AttackerSpec):
    """Base class of membership inference from updates.

    An attack knows the update, the broadcast parameters, and labelled candidates, of which some
    were used for the update; besides, samples of the same distribution that no victim has. It gives
    evidence for each candidate, by which candidates are ranked.
    """

    kind: ClassVar[str] = "membership"
    takes_batch_statistics: ClassVar[bool] = False
    reads_all_rounds: ClassVar[bool] = True
    uses_gpu: ClassVar[bool] = False

    candidates: int = parameter(
        1000, "largest number of candidates of a victim, its own samples included", ge=20
    )
    rounds: Literal["all", "first"] = parameter(
        "all", "observed rounds whose evidence is added up, or the first alone"
    )

    @property
    def grants(self) -> frozenset[str]:
        return frozenset({CANDIDATES})

    def sample_gradients(self, client: ClientSpec) -> float:
        """Return the number of gradients of samples that are computed, for estimates."""
        rounds = client.rounds if self.rounds == "all" else 1
        return rounds * client.victims * self.candidates

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        super().check_defense(client, defense)
        protocol = client.protocol
        left = protocol.batch_size % protocol.mini_batch
        if not protocol.drop_last or not left:
            return
        if not isinstance(client, CapturedUpdates):
            if protocol.state == "kept" and protocol.order is not None:
                raise IncompatibleError(
                    f"membership {self}: {client} leaves out other samples in the earlier round "
                    "whose state it keeps than in the observed one; choose a mini_batch that "
                    "divides its samples"
                )
            return
        whole = steps_of_epoch(protocol, protocol.batch_size)
        if protocol.order is None or protocol.local_steps <= whole:
            raise IncompatibleError(
                f"membership {self}: {client} left out {left} of its samples (drop_last), and the "
                "capture does not say which, so they would count as members; capture rounds whose "
                "samples mini_batch divides, or import the used samples alone"
            )

    def infer(self, observation: Observation, candidates: Candidates) -> np.ndarray:
        """Compute the evidence of each candidate over the rounds; Shape (V, K).

        The observation holds gradients (`gleak.attacks.observed_direction`).
        """
        rounds = range(observation.rounds if self.rounds == "all" else 1)
        several = observation.rounds > 1
        total = sum(
            self.evidence(observation.of_round(number) if several else observation, candidates)
            for number in rounds
        )
        return np.asarray(torch.as_tensor(total).double().cpu().numpy())

    @abstractmethod
    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        """Compute the evidence of each victim's candidates in one round; Shape (V, K)."""


class EachVictimSpec(MembershipSpec):
    """Base class of attacks whose computation differs by what a victim has sent.

    Victims that sent all values are attacked together, others one by one.
    """

    def evidence(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        if not observed.sent:
            return self.evidence_alike(observed, candidates)
        rows = range(observed.victims)
        return torch.cat(
            [self.evidence_alike(observed.of_victim(v), candidates.of_victim(v)) for v in rows]
        )

    @abstractmethod
    def evidence_alike(self, observed: Observation, candidates: Candidates) -> torch.Tensor:
        """Compute the evidence for victims of which the same values are known; Shape (V, K)."""
