"""Deployments without files of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gleak.assessment.deployment import Deployment
from gleak.assessment.resolved import Resolved, resolve
from gleak.core.settings import Settings

Resolve = Callable[..., Resolved]


@pytest.fixture
def resolved(tmp_path: Path) -> Resolve:
    """A function that resolves a deployment of LeNet on digits with some other keys."""

    def build(**keys: Any) -> Resolved:
        deployment = Deployment(**{"model": "lenet", "data": "digits", **keys})
        settings = Settings(studies=[], data_dir=tmp_path / "data")
        return resolve(deployment, tmp_path, settings)

    return build
