"""Nothing that gleak reads can run code: no pickles, and of YAML plain values alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path for folder in ("gleak", "workflow_scripts") for path in (ROOT / folder).rglob("*.py")
)
PICKLING = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle", "jsonpickle"}
ALLOWED = {"pickle.UnpicklingError"}
"""What torch raises on a file that is none of its own."""


def unsafe(tree: ast.AST) -> Iterator[str]:
    """Imports and calls that could run code which stands in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = []
        yield from (n for n in names if n.partition(".")[0] in PICKLING and n not in ALLOWED)
        if isinstance(node, ast.Call) and not is_safe(node):
            yield ast.unparse(node)


def is_safe(call: ast.Call) -> bool:
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    match ast.unparse(call.func):
        case "torch.load":
            return named.get("weights_only") == "True"
        case "yaml.load" | "yaml.load_all":
            return named.get("Loader") in ("yaml.SafeLoader", "_Loader")
        case "yaml.unsafe_load" | "yaml.full_load" | "eval" | "exec":
            return False
    return named.get("allow_pickle", "False") == "False"


def test_no_module_runs_what_stands_in_a_file() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(unsafe(ast.parse(path.read_text(encoding="utf-8"))))
        for path in MODULES
    }
    assert not {path: calls for path, calls in found.items() if calls}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from dill import loads",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "def f():\n    import shelve",
    ],
)
def test_what_runs_is_found(code: str) -> None:
    assert list(unsafe(ast.parse(code)))
