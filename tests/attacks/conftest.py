"""What an attacker is given of the tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gleak.artifacts.private import Private
from gleak.attacks.base import AttackSpec, Observation
from gleak.attacks.run import observe


@pytest.fixture
def make_case(simulate: Callable[..., Path]) -> Callable[..., tuple[Observation, Private]]:
    """What an attack of this spec observes, and the truth behind it; arguments as `simulate`."""

    def make(spec: AttackSpec, *choice: str, **choices: str) -> tuple[Observation, Private]:
        folder = simulate(*choice, **choices)
        granted = {grant: folder / "granted" / f"{grant}.h5" for grant in spec.grants}
        seen = observe(folder / "update.h5", folder / "model.h5", granted, seed=5, device="cpu")
        return seen, Private.read(folder / "private.h5")

    return make
