"""The attack `best`: an ensemble of all attacks without grants, with one criterion."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gleak.artifacts.reconstruction import Candidate, Reconstruction, join_victims
from gleak.artifacts.schema import array_fields
from gleak.attacks.base import LABELS, MID_GREY, AttackSpec, AttackSummary, SearchCost
from gleak.attacks.map import MAP
from gleak.attacks.matching.codes import Pixels
from gleak.attacks.matching.distances import SquaredError
from gleak.attacks.matching.label_inference import labels_of_samples
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import GleakError, IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import load, parse, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec

EXPLAINED = 1e-9
"""Squared error, relative to the update's mean square, up to which it is explained: rounding."""
CLOSE = 1e-2
"""The same below which a search without prior and noise goes on towards the exact samples."""
POLISH, FINISH = 200, 1200
"""Largest numbers of evaluations of the search from the best candidate, and of that without prior."""


@register("best")
class Best(AttackSpec):
    """All attacks without grants that suit, whose results one criterion compares.

    Every registered attack that needs no grant, knowledge or crafted parameters proposes samples,
    if it suits the network and what was sent (`AttackSpec.proposals`); so plug-ins take part. The
    candidate is chosen for which minus the logarithm of the posterior probability, given what was
    sent, is least (`gleak.attacks.matching.posterior`); the truth is not used. Its labels are
    improved by the same criterion, and samples of a batch are joined across attacks where that
    lowers it.

    1. Attacks in closed form and `map` come first. An update that a candidate explains up to
       rounding, with at least as many values as the samples have, ends the search.
    2. Other attacks that search share a budget equally, if there are several; the best of them is
       then run with as much alone.
    3. The best candidate is polished: by a search for the most probable samples from there, and,
       where little is left unexplained, by one for the exact samples.

    Every candidate is listed, with its criterion and the reason why it was run or not. An attack
    that fails leaves its error there.
    """

    source = "ours, of the attacks that it runs"

    budget: int = parameter(
        4800, "gradient evaluations of each search, for one victim", source="InvertGrad", ge=1
    )

    @property
    def members(self) -> list[AttackSpec]:
        """All other registered attacks, with their defaults."""
        return [parse("attack", name) for name in load("attack") if name != self.name]

    @property
    def modules(self) -> frozenset[str]:
        return super().modules.union(*(member.modules for member in self.members))

    def cost(self) -> SearchCost:
        evaluations = 2 * self.budget + MAP().iterations + POLISH + FINISH
        return SearchCost(evaluations=evaluations, state=MAP().cost().state)

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        MAP().check(dataset, model, client)

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        MAP().check_network(network, shape, classes, client)

    def summary(self) -> AttackSummary:
        several = ("that of each attack",)
        return AttackSummary(losses=several, optimizers=several, labels=LABELS["enumerated"])

    def rehearse(self, observation: Observation) -> None:
        """Rehearse every attack that suits the first victim, whichever would explain it."""
        for attack in self.proposals_of(observation.of_victim(0), self.budget):
            if isinstance(attack, AttackSpec):
                attack.rehearse(observation)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Attack victims together that the same attacks suit."""
        groups: dict[tuple[Proposal, ...], list[int]] = {}
        for row in range(observation.victims):
            proposals = tuple(self.proposals_of(observation.of_victim(row)))
            groups.setdefault(proposals, []).append(row)
        rows = [np.array(group) for group in groups.values()]
        results = [
            self._attacked(proposals, observation.of_victims(group))
            for proposals, group in zip(groups, rows, strict=True)
        ]
        return in_order(results, rows)

    def proposals_of(self, observation: Observation) -> list[Proposal]:
        """Return what every attack proposes for one victim, from the least work on."""
        proposals = []
        for member in self.members:
            try:
                own = member.proposals(observation, self.budget)
                proposals += [Proposal(attack, first_line(attack)) for attack in own]
            except IncompatibleError as error:
                proposals.append(Proposal(member, one_line(error), suits=False))
        return sorted(proposals, key=Proposal.order)

    def _attacked(self, proposals: Sequence[Proposal], observation: Observation) -> Reconstruction:
        """Run attacks on victims that all of them suit."""
        posterior = Posterior.of(observation, posterior_of(observation).parts())
        found = Candidates(posterior)
        searches = [one for one in proposals if one.suits and one.searches]
        for one in proposals:
            if not one.suits:
                found.note(one.attack, one.reason)
            elif one not in searches:
                found.run(one.attack, one.reason)
        share = self.budget // max(1, len(searches))
        for one in searches:
            attack = one.attack if len(searches) == 1 else with_budget(one.attack, share)
            found.run(attack, one.reason)
        if len(searches) > 1:
            found.run_best(...)
        found.polish()
        return found.reconstruction()
