"""Every rule and every profile entry, as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from snakemake.cli import get_argument_parser

from gleak.studies.stages import STAGES

if TYPE_CHECKING:
    from tests.project import Project

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "profiles").glob("*/config.yaml"))
HEADER = re.compile(r"^ *(?:use )?rule (\w+)(?: as (\w+) with)?:$", re.MULTILINE)
NEEDED = {"output", "log", "benchmark", "resources", "script"}


def read_rules() -> dict[str, str]:
    """Name -> what stands below its header, after what it takes over from another rule."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "rules").glob("*.smk")):
        _, *parts = HEADER.split(path.read_text())
        for first, second, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[second or first] = found[first] + body if second else body
    return found


RULES = read_rules()
each_profile = pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.parent.name)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_what_it_does_and_needs_and_where_it_logs(rule: str) -> None:
    body = RULES[rule]
    assert body.lstrip().startswith('"""')
    assert set(re.findall(r"^ +(\w+):", body, re.MULTILINE)) >= NEEDED
    needs = re.search(r'resources\("(\w+)"', body)
    assert needs
    assert needs[1] in STAGES
    script = re.search(r'"\.\./workflow_scripts/(\w+)\.py"', body)
    assert script
    assert (ROOT / "workflow_scripts" / f"{script[1]}.py").exists()


def keys(content: Any) -> set[str]:
    """Every key of nested mappings."""
    if not isinstance(content, dict):
        return set()
    return set(content).union(*map(keys, content.values()))


@each_profile
def test_every_entry_of_a_profile_is_an_option_of_snakemake(path: Path) -> None:
    actions = get_argument_parser()._actions
    options = {option for action in actions for option in action.option_strings}
    assert {f"--{key}" for key in yaml.safe_load(path.read_text())} <= options


@each_profile
def test_every_entry_of_a_profile_is_commented(path: Path) -> None:
    text = path.read_text()
    for key in keys(yaml.safe_load(text)):
        assert re.search(rf"^ *{key}:.* # \w", text, re.MULTILINE), key


@each_profile
def test_what_a_profile_sets_by_rule_is_set_for_rules_there_are(path: Path) -> None:
    profile = yaml.safe_load(path.read_text())
    assert set(profile.get("set-resources", {})) <= set(RULES)


def test_the_profile_for_slurm_plans_a_run_and_no_other_profile_wins_over_it(
    planned: Project,
) -> None:
    command = re.search(
        r"^snakemake (--\S+) (profiles/slurm) ", (ROOT / "README.md").read_text(), re.M
    )
    run = planned.run("--dry-run", *command.groups(), studies="tiny")
    assert run.jobs
    assert "Using workflow specific profile profiles/slurm for setting default" in run.text


def test_the_linter_of_snakemake_finds_nothing(planned: Project) -> None:
    assert planned.run("--lint").text.endswith("your workflow is in a good condition!\n")
