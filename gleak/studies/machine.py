"""Speed of a machine, measured by a short attack.

`gleak plan` estimates in seconds of a reference machine, one core of an Intel Xeon with AVX-512.
``gleak plan --measure`` writes the speed of this one, relative to that, into `speed_file`.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gleak.artifacts.atomic import atomic
from gleak.attacks.observation import Observation
from gleak.core.errors import DataError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.runtime.device import prepare_cpu
from gleak.runtime.forkserver import SUPPORTED
from gleak.runtime.user_cache import cache_path, check_home, exists

REFERENCE_SECONDS = 0.0332
"""CPU seconds of one evaluation of `_attack_seconds` on the reference machine."""
VICTIMS, SAMPLES, SHAPE, CLASSES = 16, 4, (3, 32, 32), 10
START_SECONDS = {"fork": 0.3, "spawn": 2.2}
"""CPU seconds of a job with little work on the reference machine, by how jobs are started."""


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
    """A machine: how it starts jobs, and its speed; None: that of the reference machine."""

    start_method: Literal["fork", "spawn"] = "fork"
    speed: Speed | None = None

    @property
    def relative_speed(self) -> float:
        """Speed in units of that of the reference machine."""
        return self.speed.speed if self.speed else 1.0

    @classmethod
    def configured(cls, settings: Settings, file: Path | None = None) -> Machine:
        """Return this machine, with its speed from a file, by default `speed_file`."""
        forked = settings.start_method == "fork" and settings.device != "cuda" and SUPPORTED
        return cls("fork" if forked else "spawn", read_speed(file or speed_file()))


def speed_file() -> Path:
    """Return the path of the speed file, in the user's cache folder; it need not exist."""
    return cache_path("speed.json")


def read_speed(file: Path) -> Speed | None:
    """Return the content of a speed file; None if there is none."""
    if not exists(file):
        return None
    try:
        return Speed.model_validate_json(file.read_text())
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        fault = " ".join(str(error).split())
        raise DataError(f"{file}: {fault}; measure again with gleak plan --measure") from None


def write_speed(speed: Speed, file: Path) -> None:
    with atomic(check_home(file)) as temporary:
        temporary.write_text(f"{speed.model_dump_json(indent=2)}\n")


def measure_speed() -> Speed:
    """Measure the speed of one core of this machine in CPU seconds; takes about five of them.

    The difference between a short and a long attack has no fixed costs.
    """
    prepare_cpu(1)
    observation = _observe()
    short, long = (min(_attack_seconds(observation, n) for _ in range(3)) for n in (5, 25))
    speed = float(f"{REFERENCE_SECONDS / ((long - short) / 20):.3g}")
    return Speed(speed=speed, host=platform.node(), measured=date.today())


def _observe() -> Observation:
    """Return what a server observes of random samples in an untrained LeNet."""
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
    attack = parse("attack", f"invertgrad+iterations={evaluations}+labels=known")
    began = time.process_time()
    attack.reconstruct(observation)
    return time.process_time() - began
