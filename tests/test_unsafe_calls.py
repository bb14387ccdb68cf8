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


def unsafe(tree: ast.AST) -> Iterator[str]:
    """Imports and calls that could run code which stands in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = []
        yield from (n for n in names if n.partition(".")[0] in PICKLING)
        if isinstance(node, ast.Call) and not is_safe(node):
            yield ast.unparse(node)


def is_safe(call: ast.Call) -> bool:
    """Whether a call unpickles nothing, be it a library that would, of a file in its cache."""
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    function = ast.unparse(call.func)
    match function.split("."):
        case ["torch", "load"]:
            return named.get("weights_only") == "True"
        case ["lpips", "LPIPS"]:
            return (named.get("pretrained"), named.get("pnet_rand")) == ("False", "True")
        case [*_, name] if name.startswith("fetch_"):
            return named.get("data_home") == "fresh"
        case [*_, "hub" | "jit", "load"] | [*_, "load_state_dict_from_url" | "read_pickle"]:
            return False
    match function:
        case "yaml.load" | "yaml.load_all":
            return named.get("Loader") in ("yaml.SafeLoader", "_Loader")
        case "yaml.unsafe_load" | "yaml.full_load" | "eval" | "exec":
            return False
    return all(named.get(name, "False") == "False" for name in ("allow_pickle", "pretrained"))


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
        "torch.hub.load_state_dict_from_url(address, check_hash=True)",
        "torch.hub.load(repository, 'network')",
        "fetch_lfw_people(data_home=str(home))",
        "pd.read_pickle(path)",
        "models.vgg16(pretrained=True)",
        "lpips.LPIPS(net=net, verbose=False)",
        "lpips.LPIPS(net=net, pretrained=False)",
        "lpips.LPIPS(net=net, pnet_rand=True)",
        "lpips.LPIPS(net=net, pretrained=True, pnet_rand=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "def f():\n    import shelve",
    ],
)
def test_what_runs_is_found(code: str) -> None:
    assert list(unsafe(ast.parse(code)))
