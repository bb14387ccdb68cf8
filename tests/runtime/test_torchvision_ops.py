"""Operators are process-wide, so each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest


def run(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.slow
def test_torchvision_imports_after_the_operators_are_ensured():
    output = run("""
        import gc
        from gleak.runtime.torchvision_ops import ensure_operators
        ensure_operators()
        gc.collect()
        assert ensure_operators() is ensure_operators()
        import torchvision, torch
        assert hasattr(torch.ops.torchvision, "nms")
        print(torchvision.models.squeezenet1_1(weights=None).num_classes)
    """)
    assert output == "1000"


def test_operators_of_any_name_are_loaded(tmp_path: Path):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"_C_stable{EXTENSION_SUFFIXES[-1]}").touch()
    (package / "_C_notes.txt").touch()
    output = run(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch
        from gleak.runtime.torchvision_ops import ensure_operators
        torch.ops.load_library = lambda path: print(path)
        ensure_operators()
    """)
    assert output == str(package / f"_C_stable{EXTENSION_SUFFIXES[-1]}")


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [["nms"], ["nms", "qnms"]])
def test_compiled_operators_are_not_declared_again(compiled: list[str]):
    output = run(f"""
        import torch
        from gleak.runtime.torchvision_ops import SCHEMAS, ensure_operators
        library = torch.library.Library("torchvision", "FRAGMENT")
        loaded = []
        def load_library(path):
            loaded.append(path)
            for name in {compiled}:
                library.define(SCHEMAS[name])
        torch.ops.load_library = load_library
        declared = ensure_operators()
        assert len(loaded) == 1 and "torchvision" in loaded[0], loaded
        assert all(hasattr(torch.ops.torchvision, name) for name in SCHEMAS)
        print(declared is None)
    """)
    assert output == str(compiled == ["nms", "qnms"])
