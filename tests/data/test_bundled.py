from __future__ import annotations

import pytest

from gleak.core.errors import DataError
from gleak.data.bundled import open_bundled


def test_reads_a_file_of_a_package() -> None:
    with open_bundled("skimage/data/astronaut.png") as file:
        assert file.read(4) == b"\x89PNG"


def test_a_file_that_is_not_carried_is_named() -> None:
    unicorn = open_bundled("skimage/data/unicorn.png")
    with pytest.raises(DataError, match=r"skimage/data/unicorn\.png.*install"), unicorn:
        pass
