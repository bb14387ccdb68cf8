"""A module outside of the project that registers an attack, named in the configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gleak.metrics.score_table import read_scores
from tests.project import Project

PLUGIN = '''
import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.core.registry import register
from mine_shades import SHADE


@register("mine")
class Mine(AttackSpec):
    """Every sample in one shade."""

    def reconstruct(self, observation):
        shape = (observation.victims, observation.batch_size)
        return Reconstruction(
            inputs=np.full((*shape, *observation.input_shape), SHADE, np.float32),
            labels=np.zeros(shape, int),
            converged=np.ones(observation.victims, bool),
        )
'''


@pytest.fixture
def extended(project: Project, tmp_path: Path) -> Project:
    folder = tmp_path / "elsewhere" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "attacks.py").write_text(PLUGIN.replace("mine_shades", "mine.shades"))
    (folder / "shades.py").write_text("SHADE = 0.5\n")
    config = {**project.config, "plugins": "mine.attacks"}
    return replace(project, config=config, first_on_path=[folder.parent])


def test_a_plugin_is_run_scored_and_rerun_when_it_is_edited(extended: Project) -> None:
    target = extended.cell / "mine" / "scores.csv"
    extended.run(target)
    assert set(read_scores([target])["attack"]) == {"mine"}
    assert extended.jobs(target) == []
    shades = extended.first_on_path[0] / "mine/shades.py"
    shades.write_text("SHADE = 0.25\n")
    assert sorted(job.rule for job in extended.jobs(target)) == ["attack", "score"]


def test_a_plugin_that_is_missing_stops_with_one_line(extended: Project) -> None:
    result = extended.snakemake("--dry-run", plugins="elsewhere")
    assert result.code == 1
    (line,) = (line for line in result.text.splitlines() if line.startswith("gleak: "))
    assert "plug-in elsewhere" in line
    assert "PYTHONPATH" in line
