"""The attack `best`: an ensemble of all attacks without grants, with one criterion."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction, join_victims
from gleak.artifacts.schema import array_fields
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import LABELS, AttackSpec, AttackSummary
from gleak.attacks.candidates import EXACT, FINISHED, POLISHED, Candidates, Stage
from gleak.attacks.map import LONGER, MAP
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.matching.quantisation_cells import SignCell
from gleak.attacks.observation import Observation
from gleak.attacks.observed_direction import of_signs
from gleak.attacks.set_membership import SetMembership
from gleak.attacks.shadow_clients import greatest, shadow_clients, stage_errors
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import load, nested, parse, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.denoiser import Denoiser
from gleak.models.base import ModelSpec

CLOSE = 0.1
"""Squared error, relative to the update's mean square, below which exact samples are searched, and
above which, if no attack in closed form suits, those that signs tell."""
ENOUGH = 0.5
"""Values that were sent, relative to those of the samples, from which on both are searched."""
MANY = 2
"""Values that were sent, relative to those of the samples, from which on exact samples are
searched before the most probable ones."""
POLISH, FINISH = 200, 1200
"""Largest numbers of evaluations of the search from the best candidate, and of the exact one."""
COMPARED = 50
"""Largest number of evaluations of a search that only tells which candidate to keep."""
DOUBT = {"middle": 1, "start": 2}
"""Factors of the squared distances by which samples of `set_membership` are compared, by how they
have values that rounding bounds from one side."""
NOISY = 0.1
"""Squared error, relative to the update's mean square, above which a batch's candidates are chosen
by shadow clients."""
SHADOWS = 2
"""Number of shadow clients of each victim."""
CLEAR_GAIN = 5.0
"""Decrease of the criterion, in nats, from which on samples that began at signs are better: noise
can leave two explanations, between which less decides by chance."""
CONTINUED = 3
"""Number of times that a search which explains an update is continued."""
SELECTED = "the best of the searches, with the whole budget"
OF_SIGNS = "the samples that the signs of what was sent tell"
ROUNDED = "not run: samples in the middle of what rounding leaves open are better"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Proposal:
    """An attack that suits a victim, with what it does; or that does not, with the reason."""

    attack: AttackSpec
    reason: str
    suits: bool = True

    @property
    def in_closed_form(self) -> bool:
        """True if it suits and does not search."""
        return self.suits and not self.attack.cost().evaluations

    @property
    def shares_budget(self) -> bool:
        """True if it is one of the searches among which the budget is divided."""
        searches = self.suits and not self.in_closed_form
        return searches and not isinstance(self.attack, MAP)

    def rank(self) -> tuple[bool, ...]:
        """Return the key by which proposals are ordered."""
        searches = self.attack.cost().evaluations > 0
        return self.suits, self.shares_budget, searches, self.attack.exact


@register("best")
class Best(AttackSpec):
    """All attacks without grants that suit, whose results are compared by one criterion.

    Every registered attack that needs no grant, knowledge or crafted parameters proposes samples if
    it suits the network and what was sent (`AttackSpec.proposals`), plug-ins too. That candidate is
    chosen for which minus the logarithm of the posterior probability, given what was sent, is least
    (`gleak.attacks.matching.posterior`): the truth has no part in it. By the same criterion labels
    are improved, and samples of a batch are exchanged between candidates.

    1. Attacks in closed form are run, exact ones first. From the best candidate the most probable
       samples are searched, and, where little is left unexplained, the exact ones.
    2. `map` searches from grey images. Other attacks that search share the budget equally, if there
       are several, and the best of them is run once more with all of it.
    3. If one of these found a better candidate, the searches of the first step start from it. Of
       values in codes it need only be better than the most probable samples of the first step:
       the search for exact ones stalls there, at other samples for each start. If no attack in
       closed form suits, exact samples are searched first: where they explain the update that
       search is continued, and the most probable samples are not searched.
    4. If no attack in closed form suits and much is not explained, `map` searches the samples that
       the signs of the values tell, and the searches of the third step start from them: after
       training a search from grey images often ends where it explains nothing.

    Where gradients were rounded to the nearest levels, samples of `set_membership` are returned as
    they are, as searches spoil them. Of a single sample nothing else is searched. Its two results
    differ in values that rounding bounds from one side only. The most probable samples are
    searched for a few evaluations from both, and the nearer one of the two is returned.

    Of a batch of which a part of the values was sent, the most probable samples are searched from
    the candidate of every attack in closed form.

    Of updates whose largest values were sent, those candidates are unlikely of which other values
    would have been among them (`gleak.attacks.matching.unsent_values`). If attacks in closed form
    suit, this decides between their candidates and those of searches.

    Of clients that clip the gradient of one sample, the chosen sample is scaled last, as the bias
    gradient and the predictions tell (`gleak.attacks.matching.likely_scale`).

    Where noise or rounding hides most of a batch's update, or it is sent as products of low rank
    with fewer values than the batch has, the criterion can be misled: the search explains noise, or
    too little. Then the same is done for shadow clients of each, whose samples the attacker
    drew (`gleak.attacks.shadow_clients`), and the attack is chosen whose worst result on them is
    best.

    Of the signs of a batch's gradients the criterion chooses between attacks, and misleads a
    search: samples of `activation_pattern` are returned as they are (`AttackSpec.keeps_samples`).
    So are those of `cpa_noisy` and `singular_vectors` where clients clip each parameter of each
    sample by itself: they have the scale at which they fill their range. That of a single image is
    then corrected by the parameters that were too short to be clipped, if the bound is known.

    A candidate that explains the update up to rounding ends the search, if at least as many values
    were sent as the samples have.

    Every candidate is listed with its criterion and the reason why it was run, or was not. An
    attack that fails has its error there, and the others go on.
    """

    source = "ours, of the attacks that it runs"

    budget: int = parameter(
        4800, "gradient evaluations of each search, for one victim", source="InvertGrad", ge=1
    )
    denoiser: Annotated[Denoiser, nested("knowledge")] | None = parameter(
        None, "network whose energy is a part of the criterion's prior", source="ours"
    )

    @property
    def members(self) -> list[AttackSpec]:
        """All other registered attacks, with their defaults."""
        return [parse("attack", name) for name in load("attack") if name != self.name]

    @property
    def modules(self) -> frozenset[str]:
        return super().modules.union(*(member.modules for member in self.members))

    def cost(self) -> SearchCost:
        searches = ((1 + LONGER) * MAP().iterations, POLISH, *(3 + CONTINUED) * (FINISH,))
        evaluations = 2 * self.budget + sum(min(self.budget, each) for each in searches)
        return SearchCost(evaluations=evaluations, state=MAP().cost().state)

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        MAP(denoiser=self.denoiser).check(dataset, model, client)

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
        for proposal in self.proposed(observation.of_victim(0), self.budget):
            if proposal.suits:
                proposal.attack.rehearse(observation)
        candidates, rows = self._candidates(observation), np.arange(observation.victims)
        grey, found = candidates.best, np.zeros(len(rows), dtype=bool)
        guess = Reconstruction(inputs=grey.inputs, labels=grey.labels, converged=found)
        candidates.consider([self.name] * len(rows), "", rows, guess)
        candidates.polish(rows, POLISH, POLISHED)
        candidates.explain(rows, candidates.chosen, FINISH)
        candidates.polish(rows, FINISH, FINISHED, **EXACT)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Attack victims together that the same attacks suit."""
        groups: dict[tuple[Proposal, ...], list[int]] = {}
        for row in range(observation.victims):
            proposals = self.proposed(observation.of_victim(row), self.budget)
            groups.setdefault(proposals, []).append(row)
        rows = [np.array(group) for group in groups.values()]
        results = [
            self._attacked(proposals, observation.of_victims(group))
            for proposals, group in zip(groups, rows, strict=True)
        ]
        return in_order(results, rows)

    def proposed(self, observation: Observation, evaluations: int) -> tuple[Proposal, ...]:
        """Return what all attacks propose for one victim, with a budget for each search.

        Those that suit come last: attacks in closed form, `map`, and the searches that share the
        budget, in the same order whatever it is.
        """
        proposals = []
        for member in self.members:
            try:
                suiting = member.proposals(observation, evaluations)
                proposals += [Proposal(attack, summary_line(attack)) for attack in suiting]
            except IncompatibleError as error:
                proposals.append(Proposal(member, " ".join(str(error).split()), suits=False))
        return tuple(sorted(proposals, key=Proposal.rank))

    def _candidates(self, observation: Observation) -> Candidates:
        """Return an empty list of candidates, with the posterior of `map`."""
        criterion = MAP(denoiser=self.denoiser).fitted(observation.of_victim(0), self.budget)
        return Candidates(Posterior.of(observation, criterion.parts()))

    def _attacked(self, proposals: Sequence[Proposal], observation: Observation) -> Reconstruction:
        """Run attacks on victims all of which they suit."""
        candidates = self._searched(proposals, observation)
        is_choice = any(one.in_closed_form for one in proposals)
        if is_choice and candidates.posterior.problem.sent:
            candidates.count_unsent()
        rows = self._doubtful(candidates)
        if is_choice and len(rows):
            self._choose_by_shadows(proposals, candidates, rows)
        for one in proposals:
            if one.suits and one.attack.keeps_samples(observation):
                candidates.choose_own(one.attack)
        if is_choice and _is_scaled(observation):
            candidates.rescale()
        return candidates.reconstruction()

    def _choose_by_shadows(
        self, proposals: Sequence[Proposal], candidates: Candidates, rows: np.ndarray
    ) -> None:
        """Choose the candidates of some victims by what is recovered of their shadow clients."""
        log.info("%d victims: %d shadow clients of each", len(rows), SHADOWS)
        posterior, best = candidates.posterior.keep(rows), candidates.best.keep(rows)
        errors: list[list[dict[Stage, float]]] = [[] for _ in rows]
        for number in range(SHADOWS):
            known, samples = shadow_clients(posterior, best, number)
            shadows = self._searched(proposals, known)
            candidates.evaluations[rows] += shadows.evaluations
            for place, (listed, truth) in enumerate(zip(shadows.listed, samples, strict=True)):
                errors[place].append(stage_errors(listed, truth))
        for row, of_row in zip(rows, errors, strict=True):
            candidates.choose_by(greatest(of_row), row)

    def _doubtful(self, candidates: Candidates) -> np.ndarray:
        """Return the victims with a batch of images of which noise or rounding hides too much.

        So do products of low rank with fewer values than the images have. Shape (W), indices. Of
        signs, or a part of the values, what is recovered of images of the prior tells little about
        natural ones.
        """
        posterior, observation = candidates.posterior, candidates.posterior.observation
        problem, protocol = posterior.problem, observation.protocol
        signs = any(isinstance(cell, SignCell) for cell in problem.cells.values())
        other = signs or problem.sent or protocol.pruning or observation.knows_intervals
        if observation.batch_size == 1 or observation.modality != "image" or other:
            return np.array([], dtype=int)
        hidden = posterior.sent_share < 1 if problem.bases else candidates.error > NOISY
        return np.flatnonzero(np.isfinite(candidates.error) & hidden)

    def _searched(self, proposals: Sequence[Proposal], observation: Observation) -> Candidates:
        """Run attacks on victims all of which they suit, and compare them by the criterion."""
        candidates, closed = self._exact(proposals, observation)
        for one in proposals:
            if not one.suits:
                candidates.note(one.attack, one.reason)
            elif one in closed:
                candidates.run(one.attack, one.reason)
        rounded = [one.attack for one in closed if isinstance(one.attack, SetMembership)]
        if observation.batch_size == 1 and rounded:
            others = [one.attack for one in proposals if one.suits and one not in closed]
            return _in_the_middle(candidates, rounded, others, min(COMPARED, self.budget))
        probable = self._polish(candidates, np.arange(observation.victims), candidates.chosen)
        if candidates.posterior.problem.sent and observation.batch_size > 1:
            for one in closed:
                self._polish_from(one.attack, candidates)
        least = _criteria(candidates, probable if observation.cells else candidates.chosen)
        counts = [len(listed) for listed in candidates.listed]
        for one in proposals:
            if isinstance(one.attack, MAP) and one.suits:
                candidates.run(one.attack, one.reason)
        self._search(candidates, [one for one in proposals if one.shares_budget], observation)
        found = best_after(candidates, counts)
        rows = np.flatnonzero(_criteria(candidates, found) < least)
        if not closed:
            rows = self._explain(candidates, rows, found)
        self._polish(candidates, rows, found)
        if not closed:
            self._search_from_signs(candidates)
        return candidates

    def _exact(
        self, proposals: Sequence[Proposal], observation: Observation
    ) -> tuple[Candidates, list[Proposal]]:
        """Run exact attacks, and return the other attacks in closed form.

        If they do not explain every update, nothing is kept of them, and they are among the others:
        samples that they do not recover are completed by those of other attacks.
        """
        closed = [one for one in proposals if one.in_closed_form]
        candidates = self._candidates(observation)
        for one in (each for each in closed if each.attack.exact):
            candidates.run(one.attack, one.reason)
        if len(candidates.open_victims):
            return self._candidates(observation), closed
        return candidates, [one for one in closed if not one.attack.exact]

    def _polish(self, candidates: Candidates, rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Search the most probable samples, and where little is left unexplained the exact ones.

        Args:
            candidates: of all V victims.
            rows: the victims; Shape (W).
            starts: positions of the candidates of all victims; Shape (V).

        Returns:
            Positions of the most probable samples, or of the candidates; Shape (V).
        """
        rows, places = np.intersect1d(rows, candidates.open_victims), starts.copy()
        places[rows] = candidates.polish(rows, min(POLISH, self.budget), POLISHED, places[rows])
        close = (candidates.error <= CLOSE) & (candidates.posterior.sent_share >= ENOUGH)
        exact = rows[close[rows] & np.isin(rows, candidates.open_victims)]
        candidates.polish(exact, min(FINISH, self.budget), FINISHED, places[exact], **EXACT)
        return places

    def _explain(self, candidates: Candidates, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Search exact samples from candidates, and continue where they explain the update.

        Args:
            candidates: of all V victims.
            rows: the victims; Shape (W).
            places: positions of the candidates of all victims; Shape (V).

        Returns:
            The victims whose update is not explained.
        """
        posterior, count = candidates.posterior, min(FINISH, self.budget)
        plain = not (posterior.observation.cells or posterior.observation.knows_intervals)
        told = rows[(posterior.sent_share[rows] >= MANY) & (places[rows] >= 0) & plain]
        explained = told[candidates.explain(told, places[told], count)]
        for _ in range(CONTINUED):
            again = np.intersect1d(explained, candidates.open_victims)
            candidates.explain(again, candidates.chosen[again], count)
        return np.setdiff1d(rows, explained)

    def _search_from_signs(self, candidates: Candidates) -> None:
        """Search from the samples that the signs of what was sent tell, where much is left open."""
        observation = candidates.posterior.observation
        coded = any(isinstance(cell, SignCell) for cell in observation.cells.values())
        far = (candidates.error > CLOSE) & (candidates.posterior.sent_share >= ENOUGH)
        rows = np.intersect1d(np.flatnonzero(far), candidates.open_victims)
        if coded or observation.bases or observation.knows_intervals or not len(rows):
            return
        signs, before = of_signs(observation), candidates.chosen.copy()
        for attack in MAP(denoiser=self.denoiser).proposals(signs.of_victim(0), self.budget):
            candidates.run(attack, OF_SIGNS, rows, signs)
            found = candidates.places(attack)
            others = self._explain(candidates, rows, found)
            places = candidates.polish(others, min(POLISH, self.budget), POLISHED, found[others])
            candidates.polish(others, min(FINISH, self.budget), FINISHED, places, **EXACT)
        candidates.keep_chosen(before, rows, CLEAR_GAIN)

    def _polish_from(self, attack: AttackSpec, candidates: Candidates) -> None:
        """Search the most probable samples from an attack's candidates, where another is better."""
        places = candidates.places(attack)
        rows = np.flatnonzero((places >= 0) & (places != candidates.chosen))
        rows = np.intersect1d(rows, candidates.open_victims)
        iterations = min(POLISH, self.budget)
        candidates.polish(rows, iterations, POLISHED, places=places[rows])

    def _search(
        self, candidates: Candidates, searches: Sequence[Proposal], observation: Observation
    ) -> None:
        """Run searches with equal shares of the budget, and the best of each victim with all."""
        if len(searches) == 1:
            candidates.run(searches[0].attack, searches[0].reason)
        if len(searches) <= 1:
            return
        shared = self.proposed(observation.of_victim(0), max(1, self.budget // len(searches)))
        criteria = [candidates.run(one.attack, one.reason) for one in shared if one.shares_budget]
        winners = np.argmin(criteria, axis=0)
        for number, one in enumerate(searches):
            candidates.run(one.attack, SELECTED, np.flatnonzero(winners == number))


def _is_scaled(observation: Observation) -> bool:
    """Return True if updates are whole gradients of one sample whose scale `likely_scale` tells."""
    partial = observation.cells or observation.bases or observation.sent
    is_whole = observation.is_sample_gradient and observation.rounds == 1 and not partial
    protocol = observation.protocol
    by_parameter = protocol.norm_if_clipped is not None and observation.modality == "image"
    return (protocol.clipping == "update" or by_parameter) and is_whole


def best_after(candidates: Candidates, counts: Sequence[int]) -> np.ndarray:
    """Return the position of the best candidate after the first ones of each victim.

    Shape (V), -1 where there is none of finite criterion.
    """
    best = []
    for listed, count in zip(candidates.listed, counts, strict=True):
        later = {place: one.criterion for place, one in enumerate(listed) if place >= count}
        known = {place: value for place, value in later.items() if np.isfinite(value)}
        best.append(min(known, key=known.__getitem__, default=-1))
    return np.array(best)


def _in_the_middle(
    candidates: Candidates,
    rounded: Sequence[SetMembership],
    others: Sequence[AttackSpec],
    evaluations: int,
) -> Candidates:
    """Choose the samples of `set_membership` that are nearest to the most probable ones from there.

    Args:
        candidates: of all victims, with these samples.
        rounded: the attacks that found them.
        others: attacks that are not run.
        evaluations: budget of each search for the most probable samples.
    """
    for attack in rounded:
        rows = candidates.open_victims
        candidates.polish(rows, evaluations, POLISHED, candidates.places(attack)[rows])
    for other in others:
        candidates.note(other, ROUNDED)
    for row, best in enumerate(candidates.best.inputs):
        listed, distances = candidates.listed[row], dict[int, float]()
        for attack in rounded:
            if (place := candidates.places(attack)[row]) >= 0:
                difference = np.subtract(listed[place].inputs, best)
                distances[place] = DOUBT[attack.bounded] * float(np.square(difference).sum())
        if distances:
            candidates.choose(row, min(distances, key=distances.__getitem__))
    return candidates


def _criteria(candidates: Candidates, places: np.ndarray) -> np.ndarray:
    """Return the criterion of one candidate of each victim, infinite at -1; Shape (V)."""
    pairs = zip(candidates.listed, places, strict=True)
    return np.array([one[place].criterion if place >= 0 else np.inf for one, place in pairs])


def summary_line(attack: AttackSpec) -> str:
    """Return what an attack does: the first line of its description."""
    return (type(attack).__doc__ or "").strip().partition("\n")[0].rstrip(".")


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
