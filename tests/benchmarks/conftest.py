"""Scripts of the benchmarks, which import each other by their names in a folder."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def import_script() -> Callable[[str], ModuleType]:
    """Return a function that imports a script by its path in the folder of benchmarks."""

    def imported(path: str) -> ModuleType:
        script = BENCHMARKS / path
        with pytest.MonkeyPatch.context() as changed:
            changed.syspath_prepend(script.parent)
            return importlib.import_module(script.stem)

    return imported
