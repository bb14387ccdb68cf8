"""Speed of a machine, measured by a short attack, and the time it takes to start jobs.

`gleak plan` estimates in seconds of a reference machine, one core of an Intel Xeon with AVX-512.
``gleak plan --measure`` writes the speed of this one, relative to that, into `speed_file`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gleak.artifacts.atomic import atomic
from gleak.core.errors import DataError
from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.runtime.forkserver import SUPPORTED
from gleak.runtime.user_cache import cache_path, check_home, exists

if TYPE_CHECKING:
    from gleak.attacks.observation import Observation

REFERENCE_SECONDS = 0.0332
"""CPU seconds of one evaluation of `_attack_seconds` on the reference machine."""
VICTIMS, SAMPLES, SHAPE, CLASSES = 16, 4, (3, 32, 32), 10
SHORT, LONG, REPEATS = 5, 25, 3
"""Evaluations of two attacks, whose difference has no fixed costs; runs of each, least counts."""
STARTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "fork": {
            "prepare_dataset": 0.16,
            "train_model": 0.2,
            "take_captured_model": 0.2,
            "train_knowledge": 0.2,
            "craft_parameters": 0.12,
            "simulate_clients": 0.19,
            "take_captured_update": 0.1,
            "take_captured_truth": 0.19,
            "attack": 0.22,
            "attack_shard": 0.22,
            "gather_shards": 0.1,
            "score": 0.1,
            "score_truth": 0.1,
            "score_model": 0.09,
            "score_parameters": 0.21,
            "search": 0.22,
            "tabulate": 0.1,
            "draw": 0.55,
            "judge": 0.5,
        },
        "spawn": {
            "prepare_dataset": 1.3,
            "train_model": 2.5,
            "take_captured_model": 2.5,
            "train_knowledge": 3.0,
            "craft_parameters": 1.7,
            "simulate_clients": 1.7,
            "take_captured_update": 0.6,
            "take_captured_truth": 1.7,
            "attack": 2.5,
            "attack_shard": 2.5,
            "gather_shards": 0.6,
            "score": 2.1,
            "score_truth": 2.1,
            "score_model": 0.5,
            "score_parameters": 2.6,
            "search": 3.0,
            "tabulate": 0.5,
            "draw": 2.2,
            "judge": 1.1,
        },
    }
)
"""Start method -> CPU seconds of a job of each stage with little work, on the reference machine.

Forked jobs were measured after the first of their stage. Those that no quick study has are taken
for the most similar stage.
"""


class Speed(BaseModel):
    """Content of the speed file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speed: float = Field(gt=0, allow_inf_nan=False, description="1 for the reference machine")
    host: str
    measured: date

    def __str__(self) -> str:
        return f"{self.speed:.2g} times the reference machine's ({self.host}, {self.measured})"


@dataclass(frozen=True)
class Machine:
    """Properties of a machine that estimates depend on.

    Args:
        start_method: how jobs are started.
        speed: as measured; None for that of the reference machine.
    """

    start_method: Literal["fork", "spawn"] = "fork"
    speed: Speed | None = None

    @property
    def relative_speed(self) -> float:
        """Speed in units of that of the reference machine."""
        return self.speed.speed if self.speed else 1.0

    @property
    def starts(self) -> Mapping[str, float]:
        """CPU seconds of a job of each stage with little work, on the reference machine."""
        return STARTS[self.start_method]

    @classmethod
    def configured(cls, settings: Settings, file: Path | None = None) -> Machine:
        """Return this machine, as the configuration uses it.

        Args:
            settings: configuration of the workflow.
            file: speed file; default `speed_file`.

        Raises:
            DataError: the file is damaged.
        """
        forked = settings.start_method == "fork" and settings.device != "cuda" and SUPPORTED
        return cls("fork" if forked else "spawn", read_speed(file or speed_file()))


def speed_file() -> Path:
    """Return the path of the speed file, in the user's cache folder; it need not exist."""
    return cache_path("speed.json")


def read_speed(file: Path) -> Speed | None:
    """Return the content of a speed file; None if there is none.

    Raises:
        DataError: the file is damaged.
    """
    if not exists(file):
        return None
    try:
        return Speed.model_validate_json(file.read_text())
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        fault = " ".join(str(error).split())
        raise DataError(f"{file}: {fault}; measure again with gleak plan --measure") from None


def write_speed(speed: Speed, file: Path) -> None:
    """Write a speed file.

    Raises:
        ArtifactError: it could not be written, or the user has no home folder.
    """
    with atomic(check_home(file)) as temporary:
        temporary.write_text(f"{speed.model_dump_json(indent=2)}\n")


def measure_speed() -> Speed:
    """Measure the speed of one core of this machine in CPU seconds; takes about five of them."""
    from gleak.runtime.device import prepare_cpu

    prepare_cpu(1)
    observation = _observe()
    seconds = {
        evaluations: min(_attack_seconds(observation, evaluations) for _ in range(REPEATS))
        for evaluations in (SHORT, LONG)
    }
    each = (seconds[LONG] - seconds[SHORT]) / (LONG - SHORT)
    return Speed(
        speed=float(f"{REFERENCE_SECONDS / each:.3g}"), host=platform.node(), measured=date.today()
    )


def _observe() -> Observation:
    """Return what a server observes of random samples in an untrained LeNet."""
    import numpy as np
    import torch

    from gleak.attacks.observation import Observation

    generator = torch.Generator().manual_seed(0)
    network = parse("model", "lenet").build(SHAPE, CLASSES).eval()
    client = parse("client", f"fedsgd+victims={VICTIMS}+batch_size={SAMPLES}")
    labels = torch.randint(CLASSES, (VICTIMS, SAMPLES), generator=generator)
    inputs = torch.rand(VICTIMS, SAMPLES, *SHAPE, generator=generator)
    sent = [client.compute(network, *batch) for batch in zip(inputs, labels, strict=True)]
    return Observation(
        update={name: torch.stack([update[name].detach() for update in sent]) for name in sent[0]},
        sent={},
        model=network.requires_grad_(False),
        modality="image",
        input_shape=SHAPE,
        classes=CLASSES,
        protocol=client.protocol,
        granted={"labels": labels},
        victim_ids=np.arange(VICTIMS),
        seed=0,
    )


def _attack_seconds(observation: Observation, evaluations: int) -> float:
    """Return the CPU seconds of an attack with this number of evaluations."""
    attack = parse("attack", f"invertgrad+iterations={evaluations}+labels=known")
    began = time.process_time()
    attack.reconstruct(observation)
    return time.process_time() - began
