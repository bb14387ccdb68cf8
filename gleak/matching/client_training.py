"""What an attacker knows of the training that it repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from gleak.matching.parts import ClientModel
    from gleak.observation import Observation


@dataclass(frozen=True)
class ClientTraining:
    """A network and the local training of clients, as far as dummy gradients depend on it.

    Args:
        model: with the broadcast parameters.
        loss: see `gleak.models.losses`.
        input_shape: of a sample.
        classes: number of logits.
        trained: names of the parameters that are trained; the others are frozen.
        batch_size: samples behind an update.
        mini_batch: samples of a local step.
        local_steps: that an evaluation repeats.
        local_lr: learning rate of these steps.
        several_victims: whether there are others than the victims of one evaluation, of which its
            outcome is to be independent (see `gleak.matching.padding`).
    """

    model: nn.Module
    loss: str
    input_shape: tuple[int, ...]
    classes: int
    trained: frozenset[str]
    batch_size: int = 1
    mini_batch: int = 1
    local_steps: int = 1
    local_lr: float = 1.0
    several_victims: bool = False

    @classmethod
    def of(cls, observation: Observation, client_model: ClientModel) -> ClientTraining:
        """Return the training that an attacker repeats who has this model of the client."""
        return cls(
            model=observation.model,
            loss=observation.loss,
            input_shape=observation.input_shape,
            classes=observation.classes,
            trained=frozenset(observation.update),
            batch_size=observation.batch_size,
            mini_batch=observation.mini_batch,
            local_steps=repeated_steps(observation, client_model),
            local_lr=observation.local_lr,
            several_victims=observation.total_victims > 1,
        )


def repeated_steps(observation: Observation, client_model: ClientModel) -> int:
    """Return how many of the client's steps one evaluation goes through."""
    return observation.local_steps if client_model == "unrolled" else 1
