"""The commands of every make target, and an editable installation, made without the network."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

from gleak.cli.main import build_parser

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
(PHONY,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
TARGETS = PHONY.split()
OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS", "STUDY"}
MADE = {"docs/_build", "docs/_build/html", "benchmarks/latest.json"}


@cache
def dry_run(target: str) -> str:
    """What would be run in a fresh clone."""
    variables = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def commands_of(target: str) -> Iterator[list[str]]:
    """The words of each command."""
    for line in dry_run(target).splitlines():
        yield from (shlex.split(command) for command in line.split("&&"))


def arguments(target: str, program: str) -> Iterator[list[str]]:
    """What follows a program, in each command that names it."""
    for words in commands_of(target):
        for at, word in enumerate(words):
            if word.endswith(f"/bin/{program}"):
                yield words[at + 1 :]


@pytest.mark.parametrize("target", TARGETS)
def test_the_commands_of_a_target_are_whole(target: str) -> None:
    subprocess.run(["bash", "-n"], input=dry_run(target), text=True, check=True)
    for words in commands_of(target):
        for word in words:
            if re.match(r"(benchmarks|docs|envs|rules|tests)/", word) and word not in MADE:
                assert list(ROOT.glob(word)), word
    for words in arguments(target, "gleak"):
        build_parser().parse_args(words)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_installed_is_an_extra_or_locked(target: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    editable = [words[-1] for words in arguments(target, "pip") if "--editable" in words]
    for requirement in editable:
        found = re.fullmatch(r"\.(?:\[([\w,]+)\])?", requirement)
        assert found, requirement
        assert set((found[1] or "").split(",")) - {""} <= extras.keys()
    if target in ("test-flower", "test-all"):
        assert ".[flower,nvflare]" in editable


def test_the_help_names_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\bmake ([\w-]+)", told)) == {*TARGETS}


def test_python_finds_an_editable_installation_beside_the_clone(tmp_path: Path) -> None:
    """Not the folder of the clone, which Python takes for a namespace package of the same name."""
    clone, site = tmp_path / "gleak", tmp_path / "site"
    shutil.copytree(ROOT / "gleak", clone / "gleak", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    site.mkdir()
    build = (
        "from setuptools.build_meta import build_editable as build; import sys; build(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", build, site], cwd=clone, check=True, capture_output=True)
    (wheel,) = site.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    find = f"import site; site.addsitedir({str(site)!r}); import gleak; print(gleak.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", find],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(clone / "gleak" / "__init__.py")
