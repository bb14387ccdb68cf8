"""The plan of the house, checked against its source."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pytest

import gleak
import gleak.testing
from gleak.core.registry import PACKAGES, kinds_of, load

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("__version__", "core"),
    ("optimizers", "artifacts", "runtime"),
    ("data", "models"),
    ("clients", "defenses"),
    ("training", "crafting", "knowledge", "simulation"),
    ("attacks", "membership", "metrics"),
    ("studies",),
    ("rehearsal", "captures", "figures", "api", "testing"),
    ("assessment",),
    ("cli", "__main__"),
)
"""From the lowest to the highest, and in a layer from the left to the right."""
HEAVY = (
    "torch torchvision torchmetrics lpips pandas matplotlib seaborn sklearn skimage scipy optuna"
)
HEAVIEST_IMPORTS = tuple(HEAVY.split())
LONGEST_MODULE = 500
LONGEST_FUNCTION = 60  # without its docstring
SHARED_NAMES = {"__init__", "base"}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

MODULES = sorted((ROOT / "gleak").rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def unit(path: Path) -> str:
    """The package, or the module at the top, that a file belongs to."""
    first, *_ = path.relative_to(ROOT / "gleak").with_suffix("").parts
    return first


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Full names imported anywhere: at load time, in functions, and for hints."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> list[str]:
    return list(imported_names(parsed(path)))


def definitions(path: Path) -> Iterator[tuple[str, Definition]]:
    """Functions, classes and methods with their full names, not those inside functions."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
        for node in body:
            if isinstance(node, Definition):
                yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return walk(parsed(path).body, "")


def test_imports_run_one_way() -> None:
    """Packages import only those before them in `LAYERS`, for hints too, so there is no circle."""
    ranks = {name: rank for rank, name in enumerate(chain.from_iterable(LAYERS))}
    units = {path: unit(path) for path in MODULES if path != ROOT / "gleak" / "__init__.py"}
    assert {*units.values(), "__version__"} == set(ranks), "LAYERS names every package once"
    offenders = [
        f"{relative(path)} imports {imported}"
        for path, own in units.items()
        for imported in imports_of(path)
        if imported.startswith("gleak.")
        and (other := imported.split(".")[1]) != own
        and ranks[other] > ranks[own]
    ]
    assert offenders == []


MOST_IMPORTS_IN_FUNCTIONS = 60


def test_no_files_import_each_other() -> None:
    """Nor through others; imports in functions and for hints count."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    imports = {
        name: {
            target
            for imported in imports_of(path)
            for target in (imported, imported.rpartition(".")[0])
            if target in modules and target != name
        }
        for name, path in modules.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_few_imports_are_in_functions() -> None:
    places = {
        (path, node.lineno)
        for path in MODULES
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(places) <= MOST_IMPORTS_IN_FUNCTIONS


def test_code_is_imported_from_the_module_that_defines_it() -> None:
    """Not from a package, whose own file only imports; `gleak.__version__` stands in its file."""
    offenders = [
        f"{relative(path)} imports {imported}"
        for path in MODULES
        for imported in imports_of(path)
        if imported.startswith("gleak.") and not names_module(imported)
    ]
    assert offenders == []


def names_module(imported: str) -> bool:
    """Whether an imported name is a module, or stands in one."""
    place, module = (
        ROOT.joinpath(*parts) for parts in ([*imported.split(".")[:-1]], imported.split("."))
    )
    if not place.is_dir() or place == ROOT / "gleak":
        return True
    return module.is_dir() or module.with_suffix(".py").is_file()


def modules_that_import(package: str) -> set[str]:
    return {
        relative(path)
        for path in MODULES
        if package in {name.partition(".")[0] for name in imports_of(path)}
    }


def test_only_the_workflow_imports_snakemake() -> None:
    assert modules_that_import("snakemake") == set()


def test_only_their_own_modules_import_flower_and_flare_which_are_extras() -> None:
    names = ("flower", "flower_capture", "flower_classic", "flower_mods")
    assert modules_that_import("flwr") == {f"gleak/captures/frameworks/{name}.py" for name in names}
    assert modules_that_import("nvflare") == {"gleak/captures/frameworks/nvflare.py"}


UNLOCKED_EXTRAS = {"flower", "nvflare", "docs"}
"""Installed in environments of their own."""


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "envs/requirements.lock").read_text(), re.M)
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"]]
    needed += chain.from_iterable(extras[name] for name in set(extras) - UNLOCKED_EXTRAS)
    names = {re.match(r"[\w.-]+", text)[0] for text in needed} - {"gleak"}
    assert {plain(name) for name in names} <= {plain(name) for name in locked}


def plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_workflows_graph_is_built_without_heavy_imports() -> None:
    program = (
        "import sys, gleak.studies.study, gleak.cli.main\n"
        "from gleak.core.registry import PACKAGES, kinds_of, load\n"
        "for kind in PACKAGES: load(kind)\n"
        f"print(*sorted(set({HEAVIEST_IMPORTS}) & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert answer.stdout.split() == []


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def test_the_api_and_base_classes_are_documented() -> None:
    """What `gleak` and `gleak.testing` export, and public methods of specs and abstract classes."""
    exported = {*gleak.__all__, *dir(gleak.testing)}
    offenders = [
        f"{relative(path)}: {name}"
        for path in MODULES
        for name, node in [("module", parsed(path)), *definitions(path)]
        if (name == "module" or name.split(".")[0] in exported | base_classes(path))
        and is_public(name)
        and not ast.get_docstring(node)
        and not (isinstance(node, ast.FunctionDef) and is_documented(path, name))
    ]
    assert offenders == []


def base_classes(path: Path) -> set[str]:
    """Specs that are bases of others, and classes with abstract methods."""
    return {
        node.name
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        and (node.name.endswith("Spec") or "@abstractmethod" in ast.unparse(node))
    }


def is_documented(path: Path, name: str) -> bool:
    """Whether a function has a docstring, if need be that of a base class or implementation."""
    module = import_module(relative(path).removesuffix(".py").replace("/", "."))
    return inspect.getdoc(attrgetter(name)(module)) is not None


QUESTIONS = ("What", "Where", "How", "Which", "Whether", "As", "Of", "Those", "Who", "See")


def test_docstrings_open_with_a_statement() -> None:
    """In the imperative or with a noun; ruff's D401 checks functions for the imperative."""
    offenders = [
        f"{relative(path)}: {name}: {text.splitlines()[0]}"
        for path in MODULES
        for name, node in [("module", parsed(path)), *definitions(path)]
        if (text := ast.get_docstring(node)) and text.split()[0].rstrip(",") in QUESTIONS
    ]
    assert offenders == []


def lines_of(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def test_modules_and_functions_are_short() -> None:
    offenders = [
        relative(path) for path in MODULES if len(path.read_text().splitlines()) > LONGEST_MODULE
    ]
    lengths = {
        f"{relative(path)}: {name}": lines_of(node)
        - len((ast.get_docstring(node) or "").split("\n"))
        for path in MODULES
        for name, node in definitions(path)
        if not isinstance(node, ast.ClassDef)
    }
    offenders += [name for name, length in lengths.items() if length > LONGEST_FUNCTION]
    assert offenders == []


def test_modules_have_names_of_their_own() -> None:
    """No two have one name, or names that differ in the plural alone.

    Those of a name that is registered for two kinds may: the attack that belongs to a crafting.
    """
    names = Counter(path.stem for path in MODULES if path.stem not in SHARED_NAMES)
    twice = {name for name, count in names.items() if count > 1 and len(kinds_of(name)) < count}
    assert sorted(twice | {name for name in names if f"{name}s" in names}) == []


def test_packages_hold_imports_alone() -> None:
    offenders = []
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != ROOT / "gleak":
            _, *imports = parsed(path).body
            if not all(isinstance(node, ast.ImportFrom) for node in imports):
                offenders.append(relative(path))
    assert offenders == []


def test_every_registered_class_is_described() -> None:
    for kind in PACKAGES:
        for name, cls in load(kind).items():
            assert cls.kind == kind
            assert cls.__doc__, f"{kind} {name} has no docstring"
            for key, field in cls.model_fields.items():
                assert field.description, f"{kind} {name}: field {key} has no description"
