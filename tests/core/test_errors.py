"""The messages of errors."""

from __future__ import annotations

import pytest

from gleak.core.errors import MissingExtraError, needs_extra


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    """It can be caught as an `ImportError`, as ``importorskip`` of pytest does."""
    with needs_extra("search"):
        import json  # noqa: F401
    with pytest.raises(ImportError) as caught, needs_extra("search"):
        import package_that_nobody_has  # noqa: F401
    assert isinstance(caught.value, MissingExtraError)
    assert "package_that_nobody_has" in str(caught.value)
    assert "pip install 'gleak[search]'" in str(caught.value)
