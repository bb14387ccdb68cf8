"""Base class of attack specs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import AttackerSpec
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError

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


class AttackSpec(AttackerSpec):
    """Base class of attacks that reconstruct samples.

    Class attributes of subclasses, besides those of `AttackerSpec`:

    - ``takes_intervals``: True if the attack uses gradients that are known in intervals, as after a
      step of Adam (`gleak.attacks.matching.quantisation_cells.IntervalCell`).
    - ``superseded``: why `best` does not run the attack, a clause; empty if it does where it suits.
    - ``exact``: True if samples that it recovers are exact, so that `best` runs it first.
    """

    kind: ClassVar[str] = "attack"
    takes_intervals: ClassVar[bool] = False
    superseded: ClassVar[str] = ""
    exact: ClassVar[bool] = False

    @property
    def joins_epochs(self) -> bool:
        """True if a sample is searched in updates of several epochs jointly, for tables."""
        return False

    def summary(self) -> AttackSummary:
        """Return losses, optimizers and label rule, for tables of attacks."""
        return AttackSummary()

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

    def keeps_samples(self, observation: Observation) -> bool:
        """Return True if `best`, where it chose this attack, returns the samples as they are.

        Otherwise they may be polished, and single ones exchanged.
        """
        return False

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
