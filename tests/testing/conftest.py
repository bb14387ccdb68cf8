from __future__ import annotations

from collections.abc import Callable

import pytest

from gleak.core import registry
from gleak.core.spec import Spec


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Spec]], type[Spec]]:
    """Register a class under its name while the test runs."""

    def add(cls: type[Spec]) -> type[Spec]:
        registry.load(cls.kind)
        monkeypatch.setitem(registry._REGISTERED[cls.kind], cls.name, cls)
        return cls

    return add
