"""Base of the specs at the last level of a path, which attack the updates of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import torch
from gleak.core.spec import Spec
from gleak.crafting.base import CraftingSpec
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.knowledge.base import EvaluatorSpec, KnowledgeSpec
from gleak.models.base import ModelSpec
from gleak.models.parameters import check_trained


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """Work of an attack's search for one victim, for estimates.

    Args:
        evaluations: upper bound of the gradient evaluations, but for those that compare label
            hypotheses or are of shadow clients; 0 if there is no search.
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


class AttackerSpec(Spec):
    """Base class of what is done with updates: what it needs to know and which cells it suits.

    Class attributes of subclasses:

    - ``modalities``: the kinds of data that the attack supports.
    - ``crafting``: name of the crafting whose parameters and secret the attack reads. None: the
      attack knows no secret, whatever is broadcast.
    - ``takes_local_steps``: True if the attack supports clients that send the result of several
      local steps.
    - ``takes_batch_statistics``: True if the attack supports clients whose samples depend on each
      other by the statistics of their batch.
    - ``reads_all_rounds``: True if it uses the updates of all rounds, not only the first.
    - ``uses_gpu``: False if everything is computed on the CPU, so that nothing can be rehearsed.
    - ``tuned``: names of the weights that are tuned for each setting. A weight of zero disables its
      term.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    crafting: ClassVar[str | None] = None
    takes_local_steps: ClassVar[bool] = True
    takes_batch_statistics: ClassVar[bool] = True
    reads_all_rounds: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = True
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
                f"{self.kind} {self} does not take {dataset.modality} data ({dataset})"
            )
        if not client.protocol.shows_gradient and not self.takes_local_steps:
            raise IncompatibleError(
                f"{self.kind} {self} needs the gradient of one step, which the update of client "
                f"{client} does not determine; use local_steps=1 with plain gradient descent, or "
                "fedsgd"
            )
        if client.batch_norm == "training" and not self.takes_batch_statistics:
            raise IncompatibleError(
                f"{self.kind} {self} treats every sample by itself, but client {client} normalises "
                "by the whole batch; leave out batch_norm, or match gradients, as invertgrad does"
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
                f"{self.kind} {self} needs parameters crafted for it, but these are {crafting}; "
                f"use crafting {self.crafting}"
            )

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        """Check that it suits clients under a defence, before any job is run; by default it does.

        Raises:
            IncompatibleError: names the defence and what to change.
        """

    def check_knowledge(self, victims: DatasetSpec, client: ClientSpec) -> None:
        """Check that the public data of the attack's knowledge cannot contain victims' samples.

        Raises:
            IncompatibleError: see `KnowledgeSpec.check_victims`.
            SpecError: two networks of one name, or an unknown public dataset.
        """
        names = [spec.name for spec in self._learned]
        if len(set(names)) < len(names):
            raise SpecError(
                f"{self.kind} {self} has two knowledge fields of one name: {sorted(names)}"
            )
        for spec in self._learned:
            spec.check_victims(victims, client)

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the parameters whose updates the attack uses; None for all.

        Raises:
            IncompatibleError: the model lacks the layers that the attack uses.
        """
        return None

    def cost(self) -> SearchCost:
        """Return the work of the search for one victim, for estimates; by default there is none."""
        return SearchCost()
