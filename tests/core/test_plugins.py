"""Modules of users that register specs: found by metadata, a variable or the configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTACK = '''
from gleak.attacks.blind import Blind
from gleak.core.registry import register


@register("{name}")
class {name}(Blind):
    """An attack of a user."""
'''
LIST = "import gleak; print([n for n in gleak.list_specs('attack') if n.startswith('mine')])"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two modules and the metadata of a package that declares a third."""
    for name in ("mine_one", "mine_two", "mine_packaged"):
        (tmp_path / f"{name}.py").write_text(ATTACK.replace("{name}", name))
    (tmp_path / "mine_faulty.py").write_text("import os\nimport no_such_module\n")
    (tmp_path / "mine_unparsed.py").write_text("import os\n\nclass Mine\n")
    (tmp_path / "mine_helped.py").write_text("import mine_helper\n")
    (tmp_path / "mine_helper.py").write_text("import json\njson.loads('{')\n")
    untyped = ATTACK.replace("{name}", "mine_untyped") + "    limit = 0.1\n"
    (tmp_path / "mine_untyped.py").write_text(untyped)
    (tmp_path / "mine_twice.py").write_text(ATTACK.replace("{name}", "cpl"))
    return tmp_path


def package(folder: Path, module: str) -> None:
    """Write the metadata of an installed package whose plug-in is this module."""
    information = folder / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[gleak.plugins]\nmine = {module}\n")


def run(folder: Path, program: str, plugins: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (folder, ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "GLEAK_PLUGINS": plugins}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.mark.parametrize(
    ("plugins", "names"),
    [
        ("", ["mine_packaged"]),
        ("mine_one", ["mine_one", "mine_packaged"]),
        ("mine_one,mine_two,mine_one", ["mine_one", "mine_packaged", "mine_two"]),
    ],
)
def test_packages_and_the_variable_name_plugins(
    folder: Path, plugins: str, names: list[str]
) -> None:
    package(folder, "mine_packaged")
    answer = run(folder, LIST, plugins=plugins)
    assert answer.stdout == f"{names}\n", answer.stderr


def test_commands_read_the_configuration(folder: Path) -> None:
    (folder / "config.yaml").write_text("studies: []\nplugins: [mine_two]\n")
    for words in (("list", "attack"), ("describe", "mine_two")):
        program = f"from gleak.cli.main import main; main({list(words)})"
        answer = run(folder, program)
        assert "An attack of a user." in answer.stdout, answer.stderr
        assert "mine_one" not in answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            "mine_faulty",
            "plug-in mine_faulty (plugins or GLEAK_PLUGINS) cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_module'; correct "
            "{folder}/mine_faulty.py, line 2, or remove the plug-in",
        ),
        ("mine_helped", "correct {folder}/mine_helper.py, line 2, or remove the plug-in"),
        ("mine_unparsed", "correct {folder}/mine_unparsed.py, line 3, or remove the plug-in"),
        ("mine_untyped", "correct {folder}/mine_untyped.py, line 7, or remove the plug-in"),
        ("mine_missing.inner", "No module named 'mine_missing'; add the folder of the module to "),
        ("mine_missing", "No module named 'mine_missing'; add the folder of the module to PYTHONP"),
        ("mine_twice", "attack 'cpl' is registered twice: by gleak.attacks."),
    ],
)
@pytest.mark.parametrize("packaged", [True, False])
def test_a_plugin_that_cannot_be_imported_is_named(
    folder: Path, module: str, text: str, packaged: bool
) -> None:
    if packaged:
        package(folder, module)
        text = text.replace("plugins or GLEAK_PLUGINS", "entry point mine")
    answer = run(folder, LIST, plugins="" if packaged else module)
    assert text.replace("{folder}", str(folder)) in answer.stderr
    assert "SpecError: plug-in" in answer.stderr


def test_plugins_of_a_process_are_those_of_the_processes_it_starts(folder: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "from gleak.core.plugins import use_plugins\n"
        "use_plugins(['mine_one'])\n"
        f"subprocess.run([sys.executable, '-c', {LIST!r}], check=True)"
    )
    answer = run(folder, program, plugins="mine_two")
    assert answer.stdout == "['mine_one', 'mine_two']\n", answer.stderr
