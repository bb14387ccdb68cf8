from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gleak.core.errors import GleakError
from gleak.runtime import source_digest as module
from gleak.runtime.source_digest import source_digest

PACKAGE = {
    "__init__.py": '"""A package."""\nfrom toy import unrelated\n',
    "start.py": """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        import numpy as np
        from toy.middle import halve
        from toy.inner import leaf
        if TYPE_CHECKING:
            from toy.hints import Hint
        else:
            from toy.fallback import Hint

        def run(value: int) -> int:
            return halve(value) + leaf.SIZE
    """,
    "middle.py": """
        def halve(value):
            from .inner import constants as numbers
            return value // numbers.TWO
    """,
    "inner/__init__.py": "import toy.unrelated\n",
    "inner/leaf.py": "from . import sibling\nfrom ..other import *\nSIZE = 3\n",
    "inner/sibling.py": "X = 1\n",
    "inner/constants.py": "TWO = 2\n",
    "other.py": "import toy.start\n",
    "fallback.py": "Hint = int\n",
    "hints.py": "Hint = int\n",
    "unrelated.py": "X = 1\n",
    "whole.py": "from toy.inner import anything\n",
}
FOLLOWED = ["start", "middle", "fallback", "other"]
FOLLOWED += ["inner/leaf", "inner/sibling", "inner/constants"]
ELSEWHERE = ["hints", "unrelated", "whole", "__init__", "inner/__init__"]


def forget() -> None:
    importlib.invalidate_caches()
    for cached in (source_digest, module._source, module._follows, module._locate, module._kept):
        cached.cache_clear()


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``toy`` on the path."""
    for name, text in PACKAGE.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines()
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "KEPT", tmp_path / "cache" / "sources.json")
    forget()
    yield tmp_path / "toy"
    forget()


@pytest.mark.parametrize("name", [*FOLLOWED, *ELSEWHERE])
def test_a_change_of_code_in_what_is_followed_changes_the_digest(toy: Path, name: str) -> None:
    before = source_digest("toy.start")
    with (toy / f"{name}.py").open("a") as file:
        file.write("ADDED = 1\n")
    forget()
    assert (source_digest("toy.start") != before) == (name in FOLLOWED)
    assert "toy" not in sys.modules


def test_a_package_counts_where_something_of_it_is_imported(toy: Path) -> None:
    assert module._reachable(("toy.whole",)) == {"toy.whole", "toy.inner", "toy.unrelated"}


PLAIN = "def run(a: int, b=(1, 2)):\n    return {'a': a, 'b': b}\n\n\nclass C:\n    x: int = 1\n"
SAME = {
    "comments": "# why\n" + PLAIN.replace("return", "# here\n    return"),
    "layout": PLAIN.replace("(a: int, b=(1, 2))", "(\n    a: int,\n    b=(1,2),\n)").replace(
        "'", '"'
    ),
    "docstrings": '"""Module."""\n'
    + PLAIN.replace("    return", '    """Function."""\n    return').replace(
        "    x: int = 1", '    """Class."""\n\n    x: int = 1\n    """Attribute."""'
    ),
}
OTHER = {
    "value": PLAIN.replace("(1, 2)", "(1, 3)"),
    "annotation": PLAIN.replace("a: int", "a: float"),
    "string": PLAIN.replace("'a'", "'c'"),
    "name": PLAIN.replace("class C", "class D"),
}


@pytest.mark.parametrize("change", [*SAME, *OTHER])
def test_code_counts_and_looks_do_not(toy: Path, change: str) -> None:
    (toy / "start.py").write_text(PLAIN)
    before = source_digest("toy.start")
    forget()
    (toy / "start.py").write_text({**SAME, **OTHER}[change])
    assert (source_digest("toy.start") != before) == (change in OTHER)


def test_the_order_of_the_modules_does_not_count(toy: Path) -> None:
    assert source_digest("toy.start", "toy.whole") == source_digest("toy.whole", "toy.start")
    assert source_digest("toy.start") != source_digest("toy.whole")


def test_a_users_module_is_followed_into_gleak_and_what_is_beside_it(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import json, beside, elsewhere, numpy, toy.hints\n"
        "from gleak.core.errors import GleakError\n"
    )
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/elsewhere.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "other")
    forget()
    assert module._reachable(("mine",)) == {"mine", "beside", "toy.hints", "gleak.core.errors"}
    before = source_digest("mine")
    (tmp_path / "beside.py").write_text("VALUE = 2\n")
    forget()
    assert source_digest("mine") != before


def test_modules_are_read_once_and_by_content(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest("toy.start")
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(module, "ast", None)
        assert source_digest("toy.start") == before
    module.KEPT.write_text("damaged")
    forget()
    assert source_digest("toy.start") == before


def test_a_cache_that_cannot_be_written_is_no_fault(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = source_digest("toy.start")
    (toy / "file").touch()
    monkeypatch.setattr(module, "KEPT", toy / "file" / "sources.json")
    forget()
    assert source_digest("toy.start") == before


def test_the_cache_keeps_the_latest_entries(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    source_digest("toy.start")
    assert len(json.loads(module.KEPT.read_text())) == 2


def test_a_module_that_is_not_there_is_reported(toy: Path) -> None:
    for name in ("toy.nowhere", "nowhere.at.all"):
        with pytest.raises(GleakError, match=f"module '{name}' has no source file"):
            source_digest(name)


def test_digesting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gleak.runtime.source_digest import source_digest; "
        "source_digest('gleak.artifacts.store', 'gleak.runtime.seeding'); "
        "print(sorted({'torch', 'numpy', 'h5py', 'gleak.artifacts.store'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
