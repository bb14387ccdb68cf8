"""Command ``gleak demo``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gleak.cli.demo import PHOTOGRAPHS, Outcome, attack_photographs
from gleak.cli.main import main

SIZE = 16


@pytest.fixture(scope="module")
def recovered() -> Outcome:
    return attack_photographs("spear", SIZE)


def test_every_photograph_is_recovered_exactly(recovered: Outcome) -> None:
    images = np.stack(recovered.images)
    assert np.abs(images - recovered.inputs.numpy()).max() < 0.5 / 255
    assert recovered.exact_values == len(PHOTOGRAPHS) * 3 * SIZE**2


def test_the_photographs_differ_from_each_other_and_from_the_blind_control(
    recovered: Outcome,
) -> None:
    """Otherwise a high PSNR would not show that anything was recovered."""
    flat = recovered.inputs.flatten(1).numpy()
    distances = ((flat[:, None] - flat[None]) ** 2).mean(2)
    assert distances[~np.eye(len(flat), dtype=bool)].min() > 0.01
    assert recovered.blind.samples["psnr"].max() < 20


def test_an_attack_that_mixes_the_batch_recovers_little() -> None:
    mixed = attack_photographs("aono", SIZE)
    assert mixed.exact_values < 0.2 * mixed.inputs.numel()
    assert mixed.scores["psnr"] < 30


@pytest.mark.slow
def test_noise_of_the_client_leaves_nothing_to_recover_exactly(recovered: Outcome) -> None:
    defended = attack_photographs("spear", SIZE, defense="gaussian+std=1e-2")
    assert defended.exact_values < 0.2 * recovered.exact_values
    assert defended.scores["psnr"] < 20


def test_the_command_prints_scores_and_the_path_of_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.png"
    assert main(["demo", "--size", str(SIZE), "--output", str(output)]) == 0
    assert output.stat().st_mode & 0o777 == 0o600
    text = capsys.readouterr().out
    assert all(name in text for name in PHOTOGRAPHS)
    assert f"{6144:,} of {6144:,} 8-bit values" in text
    assert text.splitlines()[-1] == str(output)
    with Image.open(output) as picture:
        assert picture.width > picture.height > 0


@pytest.mark.parametrize(
    "options",
    [["--size", "4"], ["--attack", "mkor"], ["--attack", "speer"], ["--defense", "soteria"]],
)
def test_what_cannot_be_attacked_is_refused_before_the_attack(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.png"
    assert main(["demo", "--size", str(SIZE), "--output", str(output), *options]) == 1
    assert options[1] in capsys.readouterr().err
    assert not output.exists()
