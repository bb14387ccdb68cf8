"""Flower's mods and strategies for differential privacy, on differences of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import model_validator

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.protocol import Clipping
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, GaussianMechanism, Memory, encode, per_round
from gleak.defenses.secure_aggregation import ClientGroup
from gleak.models.parameters import Tensors, trained_parameters
from gleak.runtime.seeding import numpy_stream

NORM = "largest L2 norm of an update; longer ones are scaled to it"


class ClippedDifference(DefenseSpec):
    """Base of defences that scale a difference of weights to a norm, unseen by the server."""

    @property
    def takes_differences(self) -> bool:
        return True

    @property
    def clipping(self) -> Clipping:
        return "update"


@register("flower_clipping")
class FlowerClipping(ClippedDifference):
    """A longer update is scaled to a norm, as by the clipping mods of Flower's clients.

    This is what the server receives from clients with `fixedclipping_mod` or
    `adaptiveclipping_mod`, whose norm is that of the round. Flower's strategies
    (`DifferentialPrivacyClientSideFixedClipping`, `...AdaptiveClipping`) add noise to the mean, not
    to what clients send, so the server receives no noise and nothing is guaranteed against it.
    Under server-side clipping it receives the plain update (defence ``none``). Who only receives
    the next global model is the attacker of `flower_central_dp`.

    Equal to Flower 1.40 in every bit of the clipped difference. A client adds it to the parameters,
    which rounds it, as for any difference of weights. Parameters without axes count in the norm,
    but Flower does not scale them. It counts running statistics of normalisation as well, which
    are no part of an update here.
    """

    source = "Flower 1.40, fixedclipping_mod and adaptiveclipping_mod; McMahan et al. 2018"

    norm: float = parameter(1.0, NORM, unit="value sent", gt=0)

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {name: encode(value) for name, value in clipped(update, self.norm).items()}


@register("flower_local_dp")
class FlowerLocalDP(ClippedDifference):
    """The update is clipped, and Gaussian noise is added to every value (Flower's `LocalDpMod`).

    The deviation of the noise is sensitivity sqrt(2 ln(1.25 / delta)) / epsilon, the classical
    Gaussian mechanism. Flower takes the sensitivity from its user. That of a client's batch is
    twice the clipping norm if neighbours are any two batches, as for `dp`; the metrics
    ``epsilon_rdp``, ``epsilon_prv`` and ``reconstruction_bound`` compute the guarantee for it. The
    ``epsilon`` stated to Flower (metric `epsilon_stated`) is one round's at ``delta``, holds for
    the sensitivity given, and is proven for epsilon below 1 only; rounds add up.

    Numbers are those of a difference of weights: choose clients with ``sends=weights``. Equal to
    Flower 1.40 in every bit for equal draws of numpy, up to the rounding of the parameters to which
    clients add the difference and the noise. Flower leaves parameters without axes as they are, so
    they are not protected.
    """

    source = "Flower 1.40, LocalDpMod; Dwork and Roth 2014, Theorem A.1"

    clipping_norm: float = parameter(1.0, NORM, unit="value sent", gt=0)
    sensitivity: float = parameter(
        2.0, "change of an update between neighbours, for which the noise is made", ge=0
    )
    epsilon: float = parameter(1.0, "stated epsilon of one round", gt=0)
    delta: float = parameter(1e-5, "stated delta of one round", gt=0, lt=1)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise."""
        return self.sensitivity * np.sqrt(2 * np.log(1.25 / self.delta)) / self.epsilon

    @property
    def mechanism(self) -> GaussianMechanism:
        return GaussianMechanism(self.clipping_norm, float(self.deviation))

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"sensitivity": 0.0})

    @property
    def remedy(self) -> str:
        return "choose a larger epsilon, or a smaller sensitivity, which costs privacy"

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        super().check_network(network, shape)
        check_axes(self, network)

    def stated_epsilon(self, size: int) -> float:
        return self.epsilon

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        bounded = clipped(update, self.clipping_norm)
        noisy = with_noise(bounded, self.deviation, numpy_stream(generator))
        sent = {name: noisy[name] if value.ndim > 1 else value for name, value in bounded.items()}
        return {name: encode(value) for name, value in sent.items()}


@register("flower_central_dp")
class FlowerCentralDP(ClippedDifference, ClientGroup):
    """Updates are clipped, and noise is added to their mean, which is all that is observed.

    These are Flower's strategies for central differential privacy, with clipping by clients or by
    the server, as seen by an attacker who receives the next global model: another client, or anyone
    to whom it is released. For the server itself see `flower_clipping`. A victim is a group of
    clients with equal shares of its samples, as under `secure_aggregation`.

    The deviation of the noise is noise_multiplier norm / clients; in federated training the number
    of clients is that of a round's updates. With a ``quantile`` the norm is
    adapted: after the round it is multiplied by exp(-rate (b - quantile)), where b is the share of
    clients that were clipped, with noise of deviation ``count_deviation`` in their count, and the
    multiplier is raised to (z^-2 - (2 count_deviation)^-2)^(-1/2), so that both together count as z
    (Andrew et al. 2021). In federated training the norm stays that of the first round. Flower makes
    the noise with the new norm, although updates were clipped to the old one, so this epsilon is
    not guaranteed, and none is given here.

    With a fixed norm a client's batch is protected by noise of noise_multiplier / 2 times the
    sensitivity of the mean, for any two batches as neighbours (``epsilon_rdp``, ``epsilon_prv``).
    Flower's accountant takes adding or removing a client, which is half of that. Equal to Flower
    1.40 in every bit for equal draws, up to the rounding of means.
    """

    source = "Flower 1.40, DifferentialPrivacy...Clipping; McMahan et al. 2018; Andrew et al. 2021"

    noise_multiplier: float = parameter(
        1.0, "deviation of the noise of the sum, in units of norm", ge=0
    )
    norm: float = parameter(0.1, f"{NORM} (that of the round)", unit="value sent", gt=0)
    quantile: float | None = parameter(
        None, "share of clipped clients to which the norm adapts; none: it is fixed", ge=0, le=1
    )
    rate: float = parameter(0.2, "learning rate of the norm", source="Andrew et al. 2021", gt=0)
    count_deviation: float | None = parameter(
        None, "deviation of the noise in the count of clipped clients; none: clients / 20", ge=0
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if message := self._fault_of(self.clients):
            raise ValueError(message)
        return self

    def check_members(self, members: int) -> None:
        if message := self._fault_of(members):
            raise IncompatibleError(f"defense {self}, of {members} updates: {message}")

    def _fault_of(self, members: int) -> str:
        """Return what is wrong with the noise of so many clients; empty if nothing is."""
        adapts, noise = self.quantile is not None, self.noise_multiplier
        if not adapts or noise == 0 or noise < 2 * self._count_deviation(members):
            return ""
        return (
            f"noise_multiplier={noise} needs a count_deviation of more than half of it, by default "
            "clients / 20; raise that, or clients"
        )

    @property
    def mechanism(self) -> GaussianMechanism | None:
        if self.quantile is not None:
            return None
        return GaussianMechanism(self.norm / self.clients, self._deviation(self.norm, self.clients))

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"noise_multiplier": 0.0})

    @property
    def remedy(self) -> str:
        return "choose a smaller noise_multiplier, which costs privacy, or more clients"

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        super().check_network(network, shape)
        check_axes(self, network)

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {name: encode(value) for name, value in clipped(update, self.norm).items()}

    def protect_mean(
        self, mean: Tensors, computed: Sequence[Tensors], generator: torch.Generator
    ) -> Tensors:
        """Adapt the norm, if it is to be, and add the noise; Shape (R, *shape)."""
        random, norm, members = numpy_stream(generator), self.norm, len(computed)
        if self.quantile is not None:
            count = sum(scaling(one, self.norm)[0] < 1 for one in computed)
            share = float(random.normal(count, self._count_deviation(members))) / float(members)
            norm *= math.exp(-self.rate * (share - self.quantile))
        return with_noise(mean, self._deviation(norm, members), random)

    def _count_deviation(self, members: int) -> float:
        if self.count_deviation is not None:
            return self.count_deviation
        return members / 20 if self.noise_multiplier > 0 else 0.0

    def _deviation(self, norm: float, members: int) -> float:
        """Return the deviation of the noise of the mean of so many clients."""
        multiplier = self.noise_multiplier
        if self.quantile is not None and multiplier > 0:
            multiplier = (multiplier**-2 - (2 * self._count_deviation(members)) ** -2) ** -0.5
        return float((multiplier * norm) / members)


def check_axes(defense: DefenseSpec, network: torch.nn.Module) -> None:
    """Raise if a trained parameter has no axes: Flower sends it as it is, so nothing is guaranteed.

    Raises:
        IncompatibleError: names the parameter.
    """
    for name in trained_parameters(network):
        if not network.get_parameter(name).ndim:
            raise IncompatibleError(
                f"defense {defense}: parameter {name!r} has no axes, and Flower leaves such "
                "parameters as they are, so that their values are not protected; give it the shape "
                "(1,), or freeze it"
            )


def scaling(update: Tensors, norm: float) -> list[float]:
    """Compute by what Flower multiplies the update of each round, in its precision; R factors.

    It is 1 for an update of zeros, for which Flower's code divides by zero and the client fails.
    """
    factors = []
    for rows in zip(*(value.numpy() for value in update.values()), strict=True):
        norms = [np.linalg.norm(np.ravel(value)) for value in rows]
        length = float(np.sqrt(sum(each**2 for each in norms)))
        factors.append(min(1.0, norm / length) if length else 1.0)
    return factors


def clipped(update: Tensors, norm: float) -> Tensors:
    """Scale longer updates to a norm, each round by itself, but no parameter without axes."""
    factors = torch.tensor(scaling(update, norm), dtype=torch.float64)
    return {
        name: value * per_round(factors, value).to(value.dtype) if value.ndim > 1 else value
        for name, value in update.items()
    }


def with_noise(update: Tensors, deviation: float, random: np.random.RandomState) -> Tensors:
    """Add Gaussian noise as numpy draws it, parameter by parameter of each round."""
    rounds = len(next(iter(update.values())))
    noisy = {name: value.clone() for name, value in update.items()}
    for number in range(rounds):
        for value in noisy.values():
            row = value[number].numpy()
            row += random.normal(0, deviation, row.shape).astype(row.dtype)
    return noisy
