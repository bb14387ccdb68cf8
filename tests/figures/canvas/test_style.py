from __future__ import annotations

import errno
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from gleak.core.errors import ArtifactError
from gleak.figures.canvas.style import colours_of, new_figure, save, save_numbers


def break_off(_: object, path: Path, **__: object) -> None:
    path.write_text("half")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_half_figure_and_no_half_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Figure, "savefig", break_off)
    monkeypatch.setattr(pd.DataFrame, "to_csv", break_off)
    with pytest.raises(ArtifactError, match=r"figure\.svg: could not be written.*No space left"):
        save(new_figure(1, 1), tmp_path / "figure")
    with pytest.raises(ArtifactError, match=r"figure\.csv: could not be written.*No space left"):
        save_numbers(pd.DataFrame({"a": [1]}), tmp_path / "figure")
    assert not list(tmp_path.iterdir())


def test_figures_which_may_show_samples_are_open_to_their_owner_alone(tmp_path: Path) -> None:
    save(new_figure(1, 1), tmp_path / "figure")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"figure.svg": 0o600, "figure.png": 0o600}


def test_a_dot_in_the_name_is_no_suffix(tmp_path: Path) -> None:
    save_numbers(pd.DataFrame({"a": [0.1]}), tmp_path / "noise.small")
    assert (tmp_path / "noise.small.csv").read_text() == "a\n0.1\n"


def test_an_attack_has_one_colour_in_all_figures() -> None:
    first, second = colours_of(["rog", "invertgrad"]), colours_of(["agic", "invertgrad", "dlg"])
    assert first[1] == second[1]
    assert len(set(first)) == 2 and len(set(second)) == 3


def test_two_lines_of_one_attack_differ_and_leave_the_colours_of_others() -> None:
    looks = colours_of(["mkor", "mkor", "invertgrad", "my_own_attack"])
    assert len(set(looks)) == 4
    assert looks[2] == colours_of(["invertgrad"])[0]


def test_conditions_are_written_below_a_figure(tmp_path: Path) -> None:
    heights = []
    for name, text in (("without", {}), ("with", dict.fromkeys(map(str, range(20)), "digits"))):
        figure = new_figure(3, 2)
        figure.add_axes((0.1, 0.1, 0.8, 0.8))
        save(figure, tmp_path / name, text)
        with Image.open(tmp_path / f"{name}.png") as picture:
            heights.append(picture.height)
    assert heights[1] > heights[0] + 50
