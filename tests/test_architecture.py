"""The plan of the house, checked against its source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gleak.registry import PACKAGES, load

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("__version__", "errors"),
    ("spec", "settings", "written"),
    ("registry",),
    ("artifacts", "runtime"),
    ("data",),
    ("models",),
    ("crafting", "defenses", "knowledge"),
    ("clients",),
    ("training",),
    ("matching",),
    ("unmixing",),
    ("attacks",),
    ("metrics",),
    ("figures",),
    ("cell",),
    ("captures", "flower", "own_models", "searches"),
    ("refusals",),
    ("grid",),
    ("study",),
    ("plan", "catalog", "adopt", "testing", "validation"),
    ("audit_report",),
    ("cli",),
)
HEAVY = (
    "torch torchvision torchmetrics lpips pandas matplotlib seaborn sklearn skimage scipy optuna"
)
HEAVIEST_IMPORTS = tuple(HEAVY.split())
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

MODULES = sorted((ROOT / "gleak").rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_module = pytest.mark.parametrize("path", MODULES, ids=relative)


def unit(path: Path) -> str:
    """The package, or the module at the top, that a file belongs to."""
    first, *_ = path.relative_to(ROOT / "gleak").with_suffix("").parts
    return first


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def running_imports(tree: ast.AST) -> Iterator[str]:
    """Full names imported when the code runs, in functions too, those for hints left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not is_type_checking(node):
            yield from running_imports(node)


def imports_of(path: Path) -> list[str]:
    return list(running_imports(ast.parse(path.read_text())))


def definitions(path: Path) -> Iterator[tuple[str, Definition]]:
    """Functions, classes and methods with their full names, not those inside functions."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
        for node in body:
            if isinstance(node, Definition):
                yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return walk(ast.parse(path.read_text()).body, "")


@each_module
def test_imports_run_one_way(path: Path) -> None:
    rank = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    if path == ROOT / "gleak" / "__init__.py":
        assert not imports_of(path)
        return
    own = unit(path)
    assert own in rank, f"{own} has no place in LAYERS"
    for imported in imports_of(path):
        package, _, rest = imported.partition(".")
        other = rest.partition(".")[0]
        if package != "gleak" or other == own:
            continue
        allowed = rank[other] < rank[own] or {own, other} == {"artifacts", "runtime"}
        assert allowed, f"{relative(path)} imports {imported}, which stands above it"


@each_module
def test_code_is_imported_from_the_module_that_defines_it(path: Path) -> None:
    """Not from a package, whose own file only imports; `gleak.__version__` stands in its file."""
    for imported in imports_of(path):
        place = ROOT.joinpath(*imported.split(".")[:-1])
        if imported.startswith("gleak.") and place.is_dir() and place != ROOT / "gleak":
            module = ROOT.joinpath(*imported.split("."))
            assert module.is_dir() or module.with_suffix(".py").is_file(), imported


def test_only_the_workflow_knows_snakemake() -> None:
    for path in MODULES:
        found = [name for name in imports_of(path) if name.partition(".")[0] == "snakemake"]
        assert not found, relative(path)


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "envs/requirements.lock").read_text(), re.M)
    needed = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.match(r"[\w.-]+", text)[0] for text in needed}
    assert {plain(name) for name in names} <= {plain(name) for name in locked}


def plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_one_module_knows_flower_which_is_an_extra() -> None:
    found = {
        relative(path)
        for path in MODULES
        if "flwr" in {name.partition(".")[0] for name in imports_of(path)}
    }
    assert found == {"gleak/flower.py"}


def test_the_workflows_graph_is_built_without_heavy_imports() -> None:
    program = (
        "import sys, gleak.study, gleak.cli\n"
        "from gleak.registry import PACKAGES, load\n"
        "for kind in PACKAGES: load(kind)\n"
        f"print(*sorted(set({HEAVIEST_IMPORTS}) & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert answer.stdout.split() == []


@each_module
def test_everything_public_is_documented(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{relative(path)} has no docstring"
    for name, node in definitions(path):
        if not any(part.startswith("_") for part in name.split(".")):
            assert ast.get_docstring(node), f"{relative(path)}: {name} has no docstring"


@each_module
def test_modules_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE
    for name, node in definitions(path):
        if not isinstance(node, ast.ClassDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{relative(path)}: {name} has {length} lines"


@each_module
def test_packages_hold_imports_alone(path: Path) -> None:
    if path.name != "__init__.py" or path.parent.name == "gleak":
        return
    docstring, *imports = ast.parse(path.read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert all(isinstance(node, ast.ImportFrom) for node in imports)


@pytest.mark.parametrize("kind", PACKAGES)
def test_every_registered_thing_is_described(kind: str) -> None:
    for name, cls in load(kind).items():
        assert cls.name == name
        assert cls.kind == kind
        assert cls.__doc__, f"{kind} {name} has no docstring"
        for key, field in cls.model_fields.items():
            assert field.description, f"{kind} {name}: field {key} has no description"


@pytest.mark.parametrize("kind", PACKAGES)
def test_one_registered_thing_is_one_file_and_one_import_line(kind: str) -> None:
    package = PACKAGES[kind]
    modules = [cls.__module__ for cls in load(kind).values()]
    assert all(module.startswith(f"{package}.") for module in modules)
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    lines = [
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(f"{package}.{line}" for line in lines) == sorted(modules)
