"""Base class of attack specs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import torch
from gleak.core.spec import Spec
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.knowledge.base import EvaluatorSpec, KnowledgeSpec
from gleak.models.base import ModelSpec
from gleak.models.parameters import check_trained

MID_GREY = 0.5
"""Value of samples that were not recovered."""
LABELS = {
    "known": "granted",
    "joint": "optimised",
    "enumerated": "the most probable",
    "sign": "one each, by sign",
    "rows": "one each, by least entry",
    "argmin": "by counting",
    "counts": "by counting, with probabilities",
    "auto": "by counting",
}
"""Description of each `gleak.attacks.matching.parts.LabelRule`."""


@dataclass(frozen=True, kw_only=True)
class AttackSummary:
    """Losses, optimizers and label rule of an attack, in the terms of AGIC's Table VII.

    Args:
        losses: the main term that each search minimises, in words or as the spec of a distance.
        terms: regularisation terms and constraints.
        optimizers: one for each search, in words or as specs.
        labels: label inference rule.
    """

    losses: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    labels: str = ""

    def then(self, later: AttackSummary) -> AttackSummary:
        """Return the summary of this search followed by another, which returns the samples."""
        return AttackSummary(
            losses=self.losses + later.losses,
            terms=self.terms + later.terms,
            optimizers=self.optimizers + later.optimizers,
            labels=later.labels,
        )


def terms_of(parts: SearchParts) -> tuple[str, ...]:
    """Return the regularisation terms and constraints of a search."""
    titles = tuple(prior.title for prior in parts.used_priors)
    return (*titles, "values in [0, 1]") if parts.box else titles


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """Work of an attack's search for one victim, for estimates.

    Args:
        evaluations: upper bound of the gradient evaluations; 0 if there is no search.
        passes: work of an evaluation in forward passes of its samples. A gradient takes about three
            forward passes, and a gradient of a function at most four times the function (Baur and
            Strassen 1983), so the gradient of a function of a gradient takes 12.
        samples: number of samples that an evaluation computes; None: all of a client.
        repeats_local_steps: True if an evaluation runs all local steps of the client.
        state: bytes of the search's state for each value of the samples, which a checkpoint holds.
    """

    evaluations: int = 0
    passes: int = 12
    samples: int | None = None
    repeats_local_steps: bool = False
    state: int = 0


class AttackSpec(Spec):
    """Base class of attacks: the grants they need and the reconstruction itself.

    Class attributes of subclasses:

    - ``modalities``: the kinds of data that the attack supports.
    - ``crafting``: name of the crafting whose parameters and secret the attack reads. None: the
      attack knows no secret, whatever is broadcast.
    - ``takes_local_steps``: True if the attack supports clients that send the result of several
      local steps.
    - ``takes_batch_statistics``: True if the attack supports clients whose samples depend on each
      other by the statistics of their batch.
    - ``takes_intervals``: True if the attack uses gradients that are known in intervals, as after a
      step of Adam (`gleak.attacks.matching.distances.IntervalCell`).
    - ``reads_all_rounds``: True if it uses the updates of all rounds, not only the first.
    - ``uses_gpu``: False if everything is computed on the CPU, so that nothing can be rehearsed.
    - ``superseded``: why `best` does not run the attack, a clause; empty if it does where it suits.
    - ``exact``: True if samples that it recovers are exact, so that `best` runs it first.
    - ``tuned``: names of the weights that are tuned for each setting. A weight of zero disables its
      term.
    """

    kind: ClassVar[str] = "attack"
    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    crafting: ClassVar[str | None] = None
    takes_local_steps: ClassVar[bool] = True
    takes_batch_statistics: ClassVar[bool] = True
    takes_intervals: ClassVar[bool] = False
    reads_all_rounds: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = True
    superseded: ClassVar[str] = ""
    exact: ClassVar[bool] = False
    tuned: ClassVar[frozenset[str]] = frozenset()

    @property
    def tuned_fields(self) -> frozenset[str]:
        """Names of the tuned weights that are not zero."""
        return frozenset(key for key in self.tuned if getattr(self, key))

    @property
    def grants(self) -> frozenset[str]:
        """Names of the required grants; reported in a column of the scores."""
        return frozenset()

    @property
    def _learned(self) -> tuple[KnowledgeSpec, ...]:
        return tuple(value for _, value in self if isinstance(value, KnowledgeSpec))

    @property
    def knowledge(self) -> tuple[KnowledgeSpec, ...]:
        """Fields that are networks trained on public data and used by the attack."""
        return tuple(spec for spec in self._learned if not isinstance(spec, EvaluatorSpec))

    @property
    def evaluators(self) -> tuple[KnowledgeSpec, ...]:
        """Fields that are networks trained on public data and used for scoring only."""
        return tuple(spec for spec in self._learned if isinstance(spec, EvaluatorSpec))

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Check that the attack supports these specs, before any job is run.

        Raises:
            IncompatibleError: names the attack and the spec that it does not support.
        """
        if dataset.modality not in self.modalities:
            raise IncompatibleError(
                f"attack {self} does not take {dataset.modality} data ({dataset})"
            )
        if not client.protocol.shows_gradient and not self.takes_local_steps:
            raise IncompatibleError(
                f"attack {self} needs the gradient of one step, which the update of client "
                f"{client} does not determine; use local_steps=1 with plain gradient descent, or "
                "fedsgd"
            )
        if client.batch_norm == "training" and not self.takes_batch_statistics:
            raise IncompatibleError(
                f"attack {self} treats every sample by itself, but client {client} normalises by "
                "the whole batch; leave out batch_norm, or match gradients, as invertgrad does"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the attack supports a network whose spec says nothing about its layers.

        Args:
            network: untrained, in evaluation mode; not modified.
            shape: shape of a sample.
            classes: number of outputs.
            client: client whose updates are attacked.

        Raises:
            IncompatibleError: names the attack and what the network lacks.
        """
        check_trained(network, self.reads(network, shape) or frozenset())

    def check_crafting(self, crafting: CraftingSpec) -> None:
        """Check that the broadcast parameters are crafted as the attack requires.

        Raises:
            IncompatibleError: names both specs.
        """
        if self.crafting not in (None, crafting.name):
            raise IncompatibleError(
                f"attack {self} needs parameters crafted for it, but these are {crafting}; "
                f"use crafting {self.crafting}"
            )

    def check_knowledge(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Check that the public data of the attack's knowledge cannot contain victims' samples.

        Raises:
            IncompatibleError: see `KnowledgeSpec.check_victims`.
            SpecError: two networks of one name, or an unknown public dataset.
        """
        names = [spec.name for spec in self._learned]
        if len(set(names)) < len(names):
            raise SpecError(f"attack {self} has two knowledge fields of one name: {sorted(names)}")
        for spec in self._learned:
            spec.check_victims(victims, client)

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the parameters whose updates the attack uses; None for all.

        Raises:
            IncompatibleError: the model lacks the layers that the attack uses.
        """
        return None

    @property
    def joins_epochs(self) -> bool:
        """True if a sample is searched in updates of several epochs jointly, for tables."""
        return False

    def summary(self) -> AttackSummary:
        """Return losses, optimizers and label rule, for tables of attacks."""
        return AttackSummary()

    def cost(self) -> SearchCost:
        """Return the work of the search for one victim, for estimates; by default there is none."""
        return SearchCost()

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[AttackSpec]:
        """Return the attack as `best` runs it, with the fields that suit what is observed.

        By default it is run as it is. An attack that searches returns one with this budget.

        Args:
            observation: of one victim.
            evaluations: budget of a search, in gradient evaluations.

        Raises:
            IncompatibleError: the attack does not suit; gives the reason, a clause.
        """
        self.check_observation(observation)
        return [self]

    def check_observation(self, observation: Observation) -> None:
        """Raise `IncompatibleError` with the reason why the attack does not suit, a clause."""
        needed = [*sorted(self.grants), *(spec.name for spec in self.knowledge)]
        if self.crafting:
            needed.append(f"parameters crafted by {self.crafting}")
        protocol = observation.protocol
        reasons = {
            self.superseded: bool(self.superseded),
            f"needs {', '.join(needed)}": bool(needed),
            f"does not take {observation.modality} data": (
                observation.modality not in self.modalities
            ),
            "needs the gradient of one step": (
                not protocol.shows_gradient and not self.takes_local_steps
            ),
            "treats every sample by itself, and clients normalise by the whole batch": (
                protocol.batch_norm == "training" and not self.takes_batch_statistics
            ),
            "needs gradients, of which this optimiser's step shows intervals": (
                observation.knows_intervals and not self.takes_intervals
            ),
        }
        for reason, holds in reasons.items():
            if holds:
                raise IncompatibleError(reason)
        names = self.reads(observation.model, observation.input_shape) or frozenset()
        if missing := sorted(names - observation.update.keys()):
            raise IncompatibleError(f"needs the gradient of {', '.join(missing)}")

    def rehearse(self, observation: Observation) -> None:
        """Run everything that is computed on a GPU once, on tensors without values.

        The default runs the attack, of which each search takes one step. Attacks whose course
        depends on values otherwise override it.

        Args:
            observation: on a `gleak.runtime.virtual_gpu.VirtualGPU`, with a journal of one step.
        """
        self.reconstruct(observation)

    @abstractmethod
    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Reconstruct samples and labels of every victim."""
