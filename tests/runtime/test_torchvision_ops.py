"""Operators are process-wide, so each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

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
