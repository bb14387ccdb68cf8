"""Digests of source code, so that results are recomputed when the code that made them changes.

A rule's parameters contain the digest of the modules its work needs. Source is read, never
imported: the workflow's graph is built without torch.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from gleak.artifacts.atomic import atomic
from gleak.core.errors import ArtifactError, GleakError
from gleak.runtime.user_cache import cache_path, check_home

HOME = "gleak"
KEPT = cache_path("sources.json")
"""Digests and imports of modules by their content, of this and earlier processes."""
MOST_KEPT = 5000


@cache
def source_digest(*modules: str) -> str:
    """Compute a digest of modules and of everything they import, directly or indirectly.

    Imports inside functions are followed; those under ``if TYPE_CHECKING`` are not, nor those of
    packages other than gleak, the module's own and what stands beside it in a user's folder.
    Comments, docstrings and layout do not count. The code of a package's ``__init__.py`` counts
    only if something is imported from it, not on the way to a submodule.

    Args:
        *modules: full names, of gleak or of a user's own package.

    Raises:
        GleakError: a module without source file.
    """
    for name in modules:
        if _locate(name) is None:
            raise GleakError(f"module {name!r} has no source file; is it installed or on the path?")
    known = len(_kept())
    parts = [f"{name} {_source(name)[0]}" for name in sorted(_reachable(modules))]
    if len(_kept()) > known:
        latest = dict(list(_kept().items())[-MOST_KEPT:])
        # Without permission or space they are computed again next time.
        with suppress(ArtifactError), atomic(check_home(KEPT)) as temporary:
            temporary.write_text(json.dumps(latest))
    return _hash("\n".join(parts).encode())


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


@cache
def _kept() -> dict[str, tuple[str, list[str]]]:
    """Return the entries of `KEPT`, to which new ones are added; none if it cannot be read."""
    with suppress(OSError, ValueError):
        return dict(json.loads(KEPT.read_bytes()))
    return {}


def _reachable(modules: tuple[str, ...]) -> set[str]:
    reached: set[str] = set()
    waiting = set(modules)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= _source(name)[1] - reached
    return reached


@cache
def _source(name: str) -> tuple[str, frozenset[str]]:
    """Return the digest of a module's code, and the names of the modules it imports."""
    path = _locate(name)
    assert path is not None, name
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    content = path.read_bytes()
    key = f"{_reader()} {package} {_hash(content)}"
    if key not in _kept():
        tree = ast.parse(content)
        imports = {imported for node in _run_nodes(tree) for imported in _imported(node, package)}
        _kept()[key] = _hash(_normal_form(tree).encode()), sorted(imports)
    digest, imported = _kept()[key]
    names = [module for module in imported if _follows(name, module.partition(".")[0])]
    return digest, frozenset(map(_module, names)) - {""}


@cache
def _follows(name: str, imported: str) -> bool:
    """Return True if a module's import of a top-level name is followed."""
    own = name.partition(".")[0]
    if imported in (HOME, own, "") or own == HOME:
        return imported in (HOME, own)
    places = [path for path in (_locate(own), _locate(imported)) if path is not None]
    roots = {path.parents[path.name == "__init__.py"] for path in places}
    return len(places) == 2 and len(roots) == 1 and not roots.pop().name.endswith("-packages")


@cache
def _reader() -> str:
    """Return a digest of all that entries depend on besides the module: this one and Python."""
    return _hash(Path(__file__).read_bytes() + sys.version.encode())


@cache
def _locate(name: str) -> Path | None:
    """Return the file of a module, found without importing its parents; None if there is none."""
    top, *inner = name.split(".")
    found = find_spec(top)
    if found is None:
        return None
    folders = [Path(root, *inner) for root in found.submodule_search_locations or ()]
    candidates = [folder / "__init__.py" for folder in folders]
    if inner:
        candidates += [folder.with_name(f"{folder.name}.py") for folder in folders]
    elif not folders and found.origin:
        candidates = [Path(found.origin)]
    return next((path for path in candidates if path.suffix == ".py" and path.is_file()), None)


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every node below this one except those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _run_nodes(other)
        else:
            yield from _run_nodes(child)


def _imported(node: ast.AST, package: str) -> list[str]:
    """Return the full names that a node imports, modules or their members."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*parents, *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def _module(imported: str) -> str:
    """Return ``a.b`` if it is a module, else ``a``; "" if neither is."""
    names = (imported, imported.rpartition(".")[0])
    return next((name for name in names if name and _locate(name)), "")


def _normal_form(tree: ast.Module) -> str:
    """Return the tree as text, without docstrings and other bare strings."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                kept = [child for child in block if not _is_bare_string(child)]
                setattr(node, field, kept)
    return ast.dump(tree)


def _is_bare_string(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
