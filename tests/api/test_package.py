"""`import gleak`: names that are imported when they are used, and the examples of docstrings."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

import gleak
from gleak.core.errors import SpecError
from gleak.core.registry import PACKAGES, load

EXPORTED = [name for name in gleak.__all__ if name not in ("__version__", "testing")]


def test_import_is_light() -> None:
    program = "import sys, gleak; print(*{name.split('.')[0] for name in sys.modules})"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not {"torch", "numpy", "pydantic", "h5py"} & set(answer.stdout.split())


def test_every_name_is_exported_and_documented() -> None:
    assert {*gleak.__all__} <= {*dir(gleak)}
    for name in EXPORTED:
        assert getattr(gleak, name).__doc__, name
    assert callable(gleak.testing.check_model)
    with pytest.raises(AttributeError, match="no attribute 'attacks_'"):
        getattr(gleak, "attacks_")  # noqa: B009


@pytest.mark.parametrize("name", EXPORTED)
def test_examples_of_docstrings_give_what_they_say(name: str) -> None:
    value = getattr(gleak, name)
    module = import_module(value.__module__)
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(recurse=False).find(value, name, module, globs={}):
        assert not runner.run(test).failed
    if not isinstance(value, type):
        assert runner.summarize(verbose=False).attempted, f"{name} has no example"


@pytest.mark.slow
def test_nothing_needs_the_workflow() -> None:
    """Neither Snakemake nor Optuna, which are extras."""
    program = (
        "import sys\n"
        "for name in ('snakemake', 'optuna', 'matplotlib', 'seaborn'): sys.modules[name] = None\n"
        f"import gleak\nfor name in {EXPORTED}: getattr(gleak, name)\n"
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(6, 3))\n"
        "found = gleak.attack('aono', model, [torch.ones(3, 6), torch.ones(3)], (6,))\n"
        "print(gleak.score(found, found.inputs)['mse'])\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "0.0\n", answer.stderr


def test_registered_names_are_listed_by_kind() -> None:
    assert gleak.list_specs("attack") == sorted(load("attack"))
    assert list(gleak.list_specs()) == list(PACKAGES)
    with pytest.raises(SpecError, match="unknown kind 'attacks'; did you mean 'attack'"):
        gleak.list_specs("attacks")
