from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.update import Granted

VALUES = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(("shared", "expected"), [(False, VALUES[1:]), (True, VALUES[:1])])
def test_a_share_of_the_victims_reads_its_own_and_all_that_is_shared(
    shared: bool, expected: np.ndarray, tmp_path: Path
) -> None:
    stored = VALUES[:1] if shared else VALUES
    Granted(grant="labels", shared=shared, values=stored).write(tmp_path / "grant.h5")
    found = Granted.read(tmp_path / "grant.h5", victims=slice(1, 3))
    assert found.shared is shared
    assert np.array_equal(found.values, expected)
