"""Candidates of an ensemble for V victims, compared by one criterion: their posterior."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.attacks.base import MID_GREY, AttackSpec
from gleak.attacks.matching.codes import Pixels
from gleak.attacks.matching.distances import SquaredError
from gleak.attacks.matching.likely_scale import FACTORS, likely_scale
from gleak.attacks.matching.posterior import Posterior
from gleak.attacks.matching.unsent_values import unsent_values
from gleak.attacks.observation import Observation
from gleak.core.errors import GleakError, StoppedError
from gleak.core.lazy import torch

EXPLAINED = 1e-9
"""Squared error of what was sent, relative to its mean square, that rounding leaves."""
NOT_RUN = "not run: the chosen candidate explains everything that was sent"
JOINED = "with samples of another candidate"
POLISHED = "the most probable samples from there"
FINISHED = "exact samples from there"
EXPLAINING = "exact samples from there, by a search that ignores their range at first"
DERIVED = {JOINED, POLISHED, FINISHED, EXPLAINING}
"""Reasons of candidates that were computed from others, after whose attacks they are named."""
CLEAR = 1e-3
"""Squared error of what was sent, relative to its mean square, that little noise leaves."""
EXACT: dict[str, Any] = {"code": Pixels(), "distance": SquaredError(), "priors": (), "box": True}
"""Parts of the search for exact samples."""
BALANCED: dict[str, Any] = {**EXACT, "distance": SquaredError(balance=0.5)}
"""Parts of the search for samples that explain everything."""
RESCALED = "at the scale that its bias gradient and predictions tell"
LEAST_GAIN = 1.0
"""Least decrease of the criterion, in nats, for which samples are exchanged."""
MARGIN = 0.5
"""Difference of errors, in dB, below which two stages are taken for equally good."""
Stage = tuple[str, str]
"""Attack and reason of a candidate."""
EXCHANGED = 2**12
"""Largest number of samples whose gradients are computed to exchange those of a batch."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Samples of V victims, Shape (V, N, ...), their labels, (V, N), and the criterion, (V)."""

    inputs: np.ndarray
    labels: np.ndarray
    criterion: np.ndarray

    @classmethod
    def grey(cls, victims: int, shape: tuple[int, ...]) -> Self:
        """Return mid-grey samples of a shape (N, ...), of infinite criterion."""
        inputs = np.full((victims, *shape), MID_GREY, dtype=np.float32)
        return cls(inputs, np.zeros(inputs.shape[:2], dtype=int), np.full(victims, np.inf))

    def keep(self, rows: np.ndarray) -> Self:
        """Return the samples of some victims; Shape (W), indices or a mask."""
        return replace(self, **{name: value[rows] for name, value in vars(self).items()})

    def where(self, chosen: np.ndarray, other: Batch) -> Self:
        """Return these samples where a mask of victims, Shape (V), says so, else the others."""
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items()}
        shaped = {
            name: chosen.reshape(-1, *[1] * (own.ndim - 1)) for name, (own, _) in pairs.items()
        }
        return replace(
            self, **{name: np.where(shaped[name], *pair) for name, pair in pairs.items()}
        )


class Candidates:
    """The best candidate of each of V victims so far, and the list of all.

    Attributes:
        best: samples of least criterion.
        error: squared error of what was sent, relative to its mean square; Shape (V).
        listed: of each victim, in the order in which they were considered.
        chosen: position of the best one in this list; Shape (V), -1 before the first.
        converged: True if the attack's own criterion was met; Shape (V).
        evaluations: gradient evaluations of all attacks; Shape (V).
    """

    def __init__(self, posterior: Posterior) -> None:
        victims = posterior.observation.victims
        self.posterior = posterior
        self.best = Batch.grey(victims, posterior.problem.shape)
        self.error = np.full(victims, np.inf)
        self.listed: list[list[Candidate]] = [[] for _ in range(victims)]
        self.chosen = np.full(victims, -1)
        self.converged = np.zeros(victims, dtype=bool)
        self.evaluations = np.zeros(victims, dtype=int)

    @property
    def open_victims(self) -> np.ndarray:
        """Numbers of victims whose update is not explained, or has fewer values than samples have.

        Shape (W).
        """
        return np.flatnonzero(~((self.error <= EXPLAINED) & self.posterior.determined))

    def note(self, attack: AttackSpec, reason: str, rows: np.ndarray | None = None) -> None:
        """Note for these victims, or all, why an attack proposes nothing."""
        for row in range(len(self.listed)) if rows is None else rows:
            self.listed[row].append(Candidate(attack=str(attack), reason=reason))

    def run(
        self,
        attack: AttackSpec,
        reason: str,
        rows: np.ndarray | None = None,
        observation: Observation | None = None,
    ) -> np.ndarray:
        """Run an attack on these victims, or on all, as far as they are open.

        Args:
            attack: that proposes samples.
            reason: why it is run.
            rows: the victims; Shape (W), or None.
            observation: of all victims, in place of the posterior's.

        Returns:
            The criterion of its candidates, infinite where there is none; Shape (V).
        """
        criterion = np.full(len(self.listed), np.inf)
        wanted = np.arange(len(self.listed)) if rows is None else rows
        rows = np.intersect1d(wanted, self.open_victims)
        self.note(attack, NOT_RUN, np.setdiff1d(wanted, rows))
        if not len(rows):
            return criterion
        log.info("%s, %d victims: %s", attack, len(rows), reason)
        try:
            seen = self.posterior.observation if observation is None else observation
            found = attack.reconstruct(seen.of_victims(rows))
            criterion[rows] = self.consider([str(attack)] * len(rows), reason, rows, found)
        except StoppedError:
            raise
        except Exception as error:  # the others survive any error of an attack, also of a plug-in
            kind = "" if isinstance(error, GleakError) else f"{type(error).__name__}: "
            message = kind + " ".join(str(error).split())
            log.warning("%s failed and is left out: %s", attack, message)
            self.note(attack, f"failed: {message}", rows)
        return criterion

    def places(self, attack: AttackSpec) -> np.ndarray:
        """Return the positions of an attack's own candidates, of finite criterion; Shape (V).

        -1 where there is none.
        """
        own = [
            [
                place
                for place, one in enumerate(listed)
                if one.attack == str(attack)
                and one.reason not in DERIVED
                and np.isfinite(one.criterion)
            ]
            for listed in self.listed
        ]
        return np.array([max(places, default=-1) for places in own])

    def polish(
        self,
        rows: np.ndarray,
        iterations: int,
        reason: str,
        places: np.ndarray | None = None,
        **parts: Any,
    ) -> np.ndarray:
        """Search from candidates of these victims; the results are named after them.

        Args:
            rows: the victims; Shape (W).
            iterations: budget of each.
            reason: for all.
            places: positions of the candidates, -1 for none; Shape (W). The best ones by default.
            **parts: of the search, in place of the posterior's.

        Returns:
            Positions of the better ones of the candidates before and after; Shape (W).
        """
        places = self.chosen[rows] if places is None else places
        known = np.flatnonzero(places >= 0)
        if not len(known):
            return places
        log.info("%d victims: %s", len(known), reason)
        starts, posterior = self._at(rows[known], places[known]), self.posterior.keep(rows[known])
        found = posterior.search(starts.labels, iterations, starts.inputs, **parts)
        better = places.copy()
        better[known] = self._better(rows[known], places[known], reason, found)
        return better

    def explain(self, rows: np.ndarray, places: np.ndarray, iterations: int) -> np.ndarray:
        """Search samples that explain everything that was sent, from candidates of these victims.

        Bounds of the samples' values slow this search down: three quarters of the evaluations are
        without them. Where noise hides the gradients such a search explains the noise, and what it
        finds is left out.

        Args:
            rows: the victims; Shape (W).
            places: positions of the candidates; Shape (W).
            iterations: budget of each.

        Returns:
            A mask of victims whose update it explains, by better samples than before; Shape (W).
        """
        explained = np.zeros(len(rows), dtype=bool)
        if not len(rows):
            return explained
        log.info("%d victims: %s", len(rows), EXPLAINING)
        starts, posterior = self._at(rows, places), self.posterior.keep(rows)
        bounded = max(1, iterations // 4)
        count, unbounded = max(1, iterations - bounded), {**BALANCED, "box": False}
        near = posterior.search(starts.labels, count, starts.inputs, **unbounded)
        found = posterior.search(starts.labels, bounded, near.inputs.clip(0, 1), **BALANCED)
        total = spent(near) + spent(found)
        is_clear = posterior.squared_error(found.inputs, found.labels) <= CLEAR
        clear = np.flatnonzero(is_clear)
        self.evaluations[rows[~is_clear]] += total[~is_clear]
        if len(clear):
            fields = ("inputs", "labels", "converged")
            kept = Reconstruction(
                **{name: getattr(found, name)[clear] for name in fields}, evaluations=total[clear]
            )
            better = self._better(rows[clear], places[clear], EXPLAINING, kept)
            explained[clear] = better != places[clear]
        return explained

    def _at(self, rows: np.ndarray, places: np.ndarray) -> Batch:
        """Return candidates of W victims."""
        ones = [self.listed[row][place] for row, place in zip(rows, places, strict=True)]
        fields = ("inputs", "labels", "criterion")
        return Batch(*(np.array([getattr(one, name) for one in ones]) for name in fields))

    def _better(
        self, rows: np.ndarray, places: np.ndarray, reason: str, found: Reconstruction
    ) -> np.ndarray:
        """Consider what was found from candidates of W victims.

        Returns the positions of the better ones of the candidates before and after.
        """
        pairs = zip(rows, places, strict=True)
        before = [self.listed[row][place] for row, place in pairs]
        after = np.array([len(self.listed[row]) for row in rows])
        criterion = self.consider([one.attack for one in before], reason, rows, found)
        return np.where(criterion < [one.criterion for one in before], after, places)

    def consider(
        self, names: Sequence[str], reason: str, rows: np.ndarray, found: Reconstruction
    ) -> np.ndarray:
        """Compare what attacks found of some victims with their best candidates.

        Samples that were not found are those of the best candidate. In a batch, samples of the
        better candidate are then exchanged for those of the other where that lowers the criterion.

        Args:
            names: of the attacks; W of them.
            reason: for all.
            rows: the victims; Shape (W).
            found: of these victims.

        Returns:
            The criterion of the candidates; Shape (W).

        Raises:
            GleakError: samples of another number or shape.
        """
        if found.inputs.shape[1:] != self.posterior.problem.shape:
            shapes = (found.inputs.shape[1:], self.posterior.problem.shape)
            raise GleakError("found samples of shape {}, and clients have {}".format(*shapes))
        posterior, before = self.posterior.keep(rows), self.best.keep(rows)
        earlier = self.chosen[rows]
        inputs, whole = filled(found.inputs, before.inputs)
        own = Batch(inputs, *posterior.labelled(inputs, found.labels))
        self.evaluations[rows] += spent(found)
        self._add(rows, names, reason, own, spent(found), found.converged & whole)
        both = np.isfinite(before.criterion) & np.isfinite(own.criterion)
        if inputs.shape[1] > 1 and both.any():
            pairs = (before.keep(both), own.keep(both))
            joined = join_samples(posterior.keep(np.flatnonzero(both)), *pairs)
            chosen = [self.listed[row][self.chosen[row]].attack for row in rows[both]]
            better = joined.criterion < self.best.criterion[rows[both]] - LEAST_GAIN
            changed = np.flatnonzero(better)
            self._add(
                rows[both][changed],
                [chosen[place] for place in changed],
                JOINED,
                joined.keep(changed),
                np.zeros(len(changed), int),
                np.zeros(len(changed), bool),
            )
        changed = np.flatnonzero(self.chosen[rows] != earlier)
        if len(changed):
            best = self.best.keep(rows[changed])
            error = posterior.keep(changed).squared_error(best.inputs, best.labels)
            self.error[rows[changed]] = error
        return own.criterion

    def _add(
        self,
        rows: np.ndarray,
        names: Sequence[str],
        reason: str,
        batch: Batch,
        spent: np.ndarray,
        converged: np.ndarray,
    ) -> None:
        """List candidates, and keep those of a lower criterion than the best ones."""
        for place, row in enumerate(rows):
            candidate = Candidate(
                attack=names[place],
                reason=reason,
                criterion=float(batch.criterion[place]),
                evaluations=int(spent[place]),
                inputs=batch.inputs[place],
                labels=batch.labels[place],
            )
            self.listed[row].append(candidate)
            if candidate.criterion < self.best.criterion[row]:
                self.chosen[row], self.converged[row] = len(self.listed[row]) - 1, converged[place]
                for name, value in vars(self.best).items():
                    value[row] = getattr(batch, name)[place]

    def choose_by(self, errors: Mapping[Stage, float], row: int) -> None:
        """Choose the best candidate of one victim by its stages' errors, in dB.

        Of stages within `MARGIN` of the least error, the candidate of least criterion. Searches
        that began at the samples of an attack which is not listed with them count as the first
        search of the same kind.
        """
        listed, by_reason = self.listed[row], dict[str, float]()
        for (_, reason), error in errors.items():
            by_reason.setdefault(reason, error)
        known = {
            place: errors.get(stage(one), by_reason[one.reason])
            for place, one in enumerate(listed)
            if one.reason in by_reason and np.isfinite(one.criterion)
        }
        if known:
            least = min(known.values()) + MARGIN
            near = [place for place, error in known.items() if error <= least]
            self.choose(row, min(near, key=lambda place: listed[place].criterion))

    def keep_chosen(self, places: np.ndarray, rows: np.ndarray, gain: float) -> None:
        """Choose earlier candidates of these victims again where others gain less, in nats.

        Args:
            places: positions of the earlier candidates of all victims; Shape (V), -1 for none.
            rows: the victims; Shape (W).
            gain: least decrease of the criterion.
        """
        for row in rows[places[rows] >= 0]:
            earlier = self.listed[row][places[row]]
            if self.best.criterion[row] > earlier.criterion - gain:
                self.choose(row, places[row])

    def count_unsent(self) -> None:
        """Add what values that were not sent tell to the criteria, and choose again by these.

        They tell nothing where the samples of least criterion say that they were left out at
        random.
        """
        for row, listed in enumerate(self.listed):
            posterior = self.posterior.keep(np.array([row]))
            unsent = {
                place: unsent_values(posterior, one.inputs[None], one.labels[None])
                for place, one in enumerate(listed)
                if one.inputs is not None and one.labels is not None
            }
            if self.chosen[row] not in unsent or not unsent[self.chosen[row]].by_size:
                continue
            for place, values in unsent.items():
                one = listed[place]
                listed[place] = replace(one, criterion=one.criterion + values.added)
            known = [place for place, one in enumerate(listed) if np.isfinite(one.criterion)]
            self.choose(row, min(known, key=lambda place: listed[place].criterion))

    def rescale(self) -> None:
        """Choose the best candidates of open victims at their likely scale (`likely_scale`)."""
        for row in self.open_victims[self.chosen[self.open_victims] >= 0]:
            posterior = self.posterior.keep(np.array([row]))
            one = self.listed[row][self.chosen[row]]
            try:
                scale = likely_scale(posterior.observation, one.inputs, one.labels)
            except (GleakError, ArithmeticError, RuntimeError, ValueError) as error:
                log.warning("a sample is not scaled: %s", error)
                continue
            inputs = (np.float32(scale) * one.inputs).clip(0, 1)
            (criterion,) = posterior.criterion(inputs[None], one.labels[None]).tolist()
            scaled = replace(one, inputs=inputs, criterion=criterion, evaluations=len(FACTORS))
            self.listed[row].append(replace(scaled, reason=RESCALED))
            self.evaluations[row] += len(FACTORS)
            self.choose(row, len(self.listed[row]) - 1)

    def choose_own(self, attack: AttackSpec) -> None:
        """Choose the samples that an attack found, where the best candidate came of them."""
        for row, listed in enumerate(self.listed):
            own = [place for place, one in enumerate(listed) if one.attack == str(attack)]
            if self.chosen[row] in own:
                self.choose(row, own[0])

    def choose(self, row: int, place: int) -> None:
        """Choose a candidate of one victim by its position."""
        one = self.listed[row][place]
        self.converged[row] &= place == self.chosen[row]
        self.chosen[row] = place
        for name, value in vars(self.best).items():
            value[row] = getattr(one, name)

    def reconstruction(self) -> Reconstruction:
        """Return the best candidates, and the list of all.

        Raises:
            GleakError: of some victim there is none whose criterion is finite.
        """
        if (self.chosen < 0).any():
            row = int(np.flatnonzero(self.chosen < 0)[0])
            tried = "; ".join(f"{one.attack}: {one.reason}" for one in self.listed[row])
            raise GleakError(f"no attack found samples of victim {row} ({tried})")
        listed = [
            [replace(one, chosen=place == chosen) for place, one in enumerate(candidates)]
            for candidates, chosen in zip(self.listed, self.chosen, strict=True)
        ]
        return Reconstruction(
            inputs=self.best.inputs,
            labels=self.best.labels,
            converged=self.converged,
            evaluations=self.evaluations,
            objective=self.best.criterion,
        ).with_candidates(listed)


def stage(candidate: Candidate) -> Stage:
    """Return the stage of an ensemble that a candidate is of."""
    return candidate.attack, candidate.reason


def spent(found: Reconstruction) -> np.ndarray:
    """Return the gradient evaluations of each victim, zero where none were counted; Shape (V)."""
    none = np.zeros(len(found.inputs), int)
    return none if found.evaluations is None else found.evaluations


def filled(inputs: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Complete samples of which some were not found, and are mid-grey, by others.

    Those of the others that resemble the samples which were found are left out.

    Returns:
        The samples, Shape (V, N, ...), and a mask of the victims of which all were found.
    """
    completed = inputs.astype(np.float32)
    missing = (inputs == MID_GREY).reshape(*inputs.shape[:2], -1).all(2)
    for victim in np.flatnonzero(missing.any(1) & ~missing.all(1)):
        lacking = missing[victim]
        taken = assigned(inputs[victim, ~lacking], others[victim])
        completed[victim, lacking] = np.delete(others[victim], taken, axis=0)[: lacking.sum()]
    return completed, ~missing.any(1)


def assigned(samples: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the positions of the most similar others, one for each of K samples; Shape (K)."""
    from scipy.optimize import linear_sum_assignment

    first, second = (torch.from_numpy(each.astype(float)) for each in (samples, others))
    _, taken = linear_sum_assignment(torch.cdist(first.flatten(1), second.flatten(1)).numpy())
    return np.asarray(taken)


def join_samples(posterior: Posterior, first: Batch, second: Batch) -> Batch:
    """Exchange samples of the better batch of each victim for similar ones of the other batch.

    One by one, where that lowers the criterion; of large batches several at once.
    """
    swapped = second.criterion < first.criterion
    best, other = second.where(swapped, first), first.where(swapped, second)
    order = np.stack([assigned(*pair) for pair in zip(best.inputs, other.inputs, strict=True)])
    victims = np.arange(len(order))[:, None]
    samples = order.shape[1]
    exchanges = min(samples, max(1, EXCHANGED // samples))
    for part in np.array_split(np.arange(samples), exchanges):
        inputs, labels = best.inputs.copy(), best.labels.copy()
        inputs[:, part] = other.inputs[victims, order[:, part]]
        labels[:, part] = other.labels[victims, order[:, part]]
        tried = Batch(inputs, labels, posterior.criterion(inputs, labels))
        best = tried.where(tried.criterion < best.criterion, best)
    return best
