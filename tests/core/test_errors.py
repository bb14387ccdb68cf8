"""The messages of errors."""

from __future__ import annotations

import pytest

from gleak.core.errors import MissingExtraError, needs_extra


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtraError) as caught, needs_extra("search"):
        import package_that_nobody_has  # noqa: F401
    assert "package_that_nobody_has" in str(caught.value)
    assert "pip install 'gleak[search]'" in str(caught.value)


def test_a_missing_extra_can_be_caught_as_a_missing_import() -> None:
    """So that trying to import an extra, and pytest's ``importorskip``, work."""
    with pytest.raises(ImportError), needs_extra("flower"):
        import package_that_nobody_has  # noqa: F401


def test_installed_packages_are_imported() -> None:
    with needs_extra("search"):
        import json
    assert json.dumps(1) == "1"
