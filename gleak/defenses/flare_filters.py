"""The privacy filters of NVIDIA FLARE, on the differences of weights that clients send."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from pydantic import model_validator

from gleak.artifacts.encodings import Clipped, Encoded
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.defenses.sparsification import Sparsification, encode_nonzero, encode_sparse
from gleak.models.parameters import Tensors
from gleak.runtime.seeding import numpy_stream

CHUNK = 1_000_000
"""Values of a parameter among which FLARE selects at once."""
ROUNDED = 0.01
"""Excess of a value over the largest magnitude, relative to it, by rounding."""
STEPS = "local steps that the client reports to FLARE (NUM_STEPS_CURRENT_ROUND); 1: none reported"
Rows = dict[str, np.ndarray]
"""Values of one round by parameter; Shape (*shape)."""


class FilterOfValues(Sparsification):
    """Base of filters that choose values of one round, and change those that they send.

    The server finds zeros where nothing was sent, so it knows which values were.
    """

    @property
    def takes_differences(self) -> bool:
        return True

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        random = numpy_stream(generator)
        count = len(next(iter(update.values())))
        rounds = [
            self.filtered({name: value[number].numpy() for name, value in update.items()}, random)
            for number in range(count)
        ]
        return self.encode_received(
            {name: torch.from_numpy(np.stack([one[name] for one in rounds])) for name in update}
        )

    @abstractmethod
    def filtered(self, update: Rows, random: np.random.RandomState) -> Rows:
        """Return the values of one round as FLARE sends them, in new arrays."""


@register("flare_percentile")
class PercentilePrivacy(FilterOfValues):
    """Values of small magnitude are not sent, large ones are cut (FLARE's `PercentilePrivacy`).

    The cutoff is a percentile of the magnitudes of all values of a round. Values below it become
    zero, the others are cut to [-gamma, gamma]; both refer to a difference of weights divided by
    the local steps that the client reports. Parameters without axes are sent as they are. The
    numbers are those of a difference of weights, so choose clients with ``sends=weights``. Equal
    to FLARE 2.9 in every bit; nothing is guaranteed. The server knows gamma, so that a value of
    that magnitude may have been larger.
    """

    source = "NVIDIA FLARE 2.9, PercentilePrivacy; Shokri and Shmatikov 2015"

    percentile: float = parameter(
        10.0, "percentile of magnitudes below which values are not sent", ge=0, le=100
    )
    gamma: float = parameter(
        0.01, "largest magnitude that is sent, per local step", unit="value sent", gt=0
    )
    steps: int = parameter(1, STEPS, ge=1)

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode values that are not zero; one of the largest magnitude may have been larger."""
        sent: dict[str, Encoded] = {}
        for name, one in encode_nonzero(update).items():
            largest = np.abs(one.values).max(initial=0)
            if update[name].ndim > 1 and largest > (1 + ROUNDED) * self.gamma * self.steps:
                raise ArtifactError(
                    f"{name}: a value has the magnitude {largest:.3g}, larger than gamma times "
                    f"steps of defense {self}; correct them, or leave the defence out"
                )
            bounds = np.full(one.leading, self.gamma * self.steps, one.values.dtype)
            cut = Clipped(one.indices, one.values, one.shape, bounds)
            sent[name] = cut if update[name].ndim > 1 else one
        return sent

    def filtered(self, update: Rows, random: np.random.RandomState) -> Rows:
        per_step = {name: value / self.steps for name, value in update.items()}
        magnitudes = np.concatenate([np.abs(value).ravel() for value in per_step.values()])
        cutoff = np.percentile(magnitudes, self.percentile)
        return {name: self._cut(value, cutoff) * self.steps for name, value in per_step.items()}

    def _cut(self, value: np.ndarray, cutoff: np.floating) -> np.ndarray:
        if not np.ndim(value):
            return value
        small = (value > -cutoff) & (value < cutoff)
        return np.clip(np.where(small, value.dtype.type(0), value), -self.gamma, self.gamma)


@register("flare_svt")
class SparseVectorPrivacy(FilterOfValues):
    """A share of the values, chosen by noisy magnitudes, is sent with noise (FLARE's `SVTPrivacy`).

    Per local step reported, values are cut to [-gamma, gamma]. Magnitudes with Laplace noise are
    compared with a noisy threshold, again and again until c values, a share of all, are accepted;
    c of the accepted ones are drawn, and sent with Laplace noise. Parameters without axes are sent
    as they are. The numbers are those of a difference of weights: choose ``sends=weights``. Equal
    to FLARE 2.9 in every bit, for equal draws of numpy.

    FLARE states that one round costs ``epsilon`` for the choice and ``epsilon_release``, by default
    c noise_var, for the values, with delta 0, and that rounds add up (metric `epsilon_stated`).
    Neighbours are any two batches of the client. It is what FLARE's own accountant says, and no
    proof: the sparse vector technique stops at c values above the threshold, while the filter goes
    on to the end of a pass, which may accept any number.
    """

    source = "NVIDIA FLARE 2.9, SVTPrivacy; Li et al. 2019"

    fraction: float = parameter(0.1, "share of values that is sent", gt=0, le=1)
    epsilon: float = parameter(0.1, "privacy budget of the choice", gt=0)
    noise_var: float = parameter(
        0.1, "privacy budget of each value that is sent, unless epsilon_release is given", gt=0
    )
    gamma: float = parameter(
        1e-5, "largest magnitude before the noise, per local step", unit="value sent", gt=0
    )
    tau: float = parameter(1e-6, "threshold before its noise", unit="value sent")
    replace: bool = parameter(True, "accepted values are drawn with replacement")
    epsilon_threshold: float | None = parameter(
        None, "part of epsilon for the threshold; none: the rest, or 1 : (2c)^(2/3)", gt=0
    )
    epsilon_query: float | None = parameter(
        None, "part of epsilon for the comparisons; none: the rest, or 1 : (2c)^(2/3)", gt=0
    )
    epsilon_release: float | None = parameter(
        None, "privacy budget of all values that are sent; none: by noise_var", gt=0
    )
    steps: int = parameter(1, STEPS, ge=1)

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if min(self.budgets(1)) <= 0 or not np.isclose(sum(self.budgets(1)), self.epsilon):
            raise ValueError(
                f"epsilon_threshold and epsilon_query must add up to epsilon={self.epsilon}; give "
                "one of them below it, or none"
            )
        return self

    @property
    def remedy(self) -> str:
        return "choose a larger noise_var, or a larger gamma, which costs privacy (epsilon_stated)"

    def budgets(self, count: int) -> tuple[float, float]:
        """Return the parts of ``epsilon`` for the threshold and for the comparisons."""
        threshold, query = self.epsilon_threshold, self.epsilon_query
        if threshold is None and query is None:
            threshold = self.epsilon / (1.0 + (2.0 * count) ** (2.0 / 3.0))
        if threshold is None:
            assert query is not None
            threshold = self.epsilon - query
        return threshold, self.epsilon - threshold if query is None else query

    def count(self, size: int) -> int:
        """Return the number of values that are sent of an update of ``size`` values."""
        return int(min(np.ceil(float(size) * self.fraction), float(size)))

    def stated_epsilon(self, size: int) -> float:
        released = self.epsilon_release or float(self.count(size)) * self.noise_var
        return sum(self.budgets(self.count(size))) + released

    def filtered(self, update: Rows, random: np.random.RandomState) -> Rows:
        names = sorted(update)
        flat = {name: update[name].reshape(-1) for name in names}
        edges = np.cumsum([len(flat[name]) for name in names])
        count = self.count(int(edges[-1]))
        steps = np.float64(self.steps)
        per_step = np.concatenate([flat[name].astype(np.float64) for name in names]) / steps
        cut = np.clip(per_step, -self.gamma, self.gamma)
        chosen = np.split(self._accepted(np.abs(cut), count, random), edges[:-1])
        cut_values = dict(zip(names, np.split(cut, edges[:-1]), strict=True))
        shares = list(_shares([int(each.sum()) for each in chosen], count, self.replace, random))
        sent = {name: np.zeros_like(update[name]) for name in names}
        scale = self.gamma * 2.0 * count / (self.epsilon_release or float(count) * self.noise_var)
        for name, accepted, share in zip(names, chosen, shares, strict=True):
            places = self._places(accepted, share, np.ndim(update[name]) > 0, scale, random)
            for positions, noise in places:
                sent[name].reshape(-1)[positions] = (cut_values[name][positions] + noise) * steps
        return {
            name: sent[name] if np.ndim(value) else value.copy() for name, value in update.items()
        }

    def _accepted(
        self, magnitudes: np.ndarray, count: int, random: np.random.RandomState
    ) -> np.ndarray:
        """Choose at least ``count`` values by noisy magnitudes; Shape (M)."""
        threshold_budget, query_budget = self.budgets(count)
        threshold = self.tau + random.laplace(scale=self.gamma / threshold_budget)
        scale = self.gamma * 2.0 * count / query_budget
        accepted = np.zeros(len(magnitudes), dtype=bool)
        while accepted.sum() < count:
            rest = np.flatnonzero(~accepted)
            noisy = magnitudes[rest] + random.laplace(scale=scale, size=len(rest))
            accepted[rest[noisy >= threshold]] = True
        return accepted

    def _places(
        self,
        accepted: np.ndarray,
        share: int,
        drawn: bool,
        scale: float,
        random: np.random.RandomState,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draw positions in one parameter, chunk by chunk, and their noise."""
        starts = range(0, len(accepted), CHUNK)
        chunks = [accepted[start : start + CHUNK] for start in starts]
        parts = _shares([int(chunk.sum()) for chunk in chunks], share, self.replace, random)
        for start, chunk, part in zip(starts, chunks, parts, strict=True):
            if drawn and part:
                candidates = np.flatnonzero(chunk)
                positions = random.choice(candidates, size=part, replace=self.replace)
                yield start + positions, random.laplace(scale=scale, size=part)


def _shares(
    counts: Sequence[int], total: int, replace: bool, random: np.random.RandomState
) -> Iterator[int]:
    """Draw how many of ``total`` samples fall into each group, one after the other."""
    rest = sum(counts)
    for count in counts[:-1]:
        share = 0
        if total and count:
            share = int(
                random.binomial(total, float(count) / float(rest))
                if replace
                else random.hypergeometric(count, rest - count, total)
            )
        yield share
        rest, total = rest - count, total - share
    yield total


@register("flare_exclude")
class ExcludeVars(DefenseSpec):
    """Some parameters are not sent at all (FLARE's `ExcludeVars`).

    ``names`` are those that FLARE takes as a list, ``pattern`` what it takes as a regular
    expression, which is searched for in each name. The server keeps its own values of what is
    missing, and knows what is. Nothing is guaranteed.
    """

    source = "NVIDIA FLARE 2.9, ExcludeVars"

    names: str | None = parameter(None, "names of parameters, joined by '-', or none")
    pattern: str | None = parameter(
        None, "regular expression of letters, digits, '_', '.' and '-', or none"
    )

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if self.names is not None and self.pattern is not None:
            raise ValueError("give names or pattern, not both")
        return self

    def excludes(self, name: str) -> bool:
        """Return True if a parameter is not sent."""
        if self.pattern is not None:
            return re.search(self.pattern, name) is not None
        return self.names is not None and name in self.names.split("-")

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        kept = {k: torch.zeros_like(v) if self.excludes(k) else v for k, v in update.items()}
        return self.encode_received(kept)

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode parameters, without values if they are excluded."""
        for name, value in update.items():
            if self.excludes(name) and value.any():
                raise ArtifactError(
                    f"{name}: its values are not zero, but defense {self} does not send it; "
                    "correct the names, or leave the defence out"
                )
        return {
            name: encode_sparse(value, np.zeros((len(value), value[0].numel()), dtype=bool))
            if self.excludes(name)
            else encode(value)
            for name, value in update.items()
        }

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        """Raise if a name or pattern has no parameter, or nothing is left to send.

        Raises:
            IncompatibleError: see above.
        """
        known = [name for name, _ in network.named_parameters()]
        missing = set((self.names or "").split("-")) - {*known, ""}
        fault = f"is named {', '.join(sorted(missing))}" if missing else ""
        if self.pattern is not None and not any(map(self.excludes, known)):
            fault = f"matches {self.pattern}"
        if fault:
            raise IncompatibleError(
                f"defense {self}: no parameter {fault}; the parameters of the network are "
                f"{', '.join(known)}"
            )
        if all(map(self.excludes, known)):
            raise IncompatibleError(
                f"defense {self}: all parameters are excluded, so nothing is sent; exclude fewer"
            )
