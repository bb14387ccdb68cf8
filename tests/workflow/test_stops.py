"""Runs that cannot go on: they say why in one line, before any work where that can be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.reconstruction import Reconstruction

if TYPE_CHECKING:
    from tests.project import Project

MODEL = "lenet/untrained/honest"
OWN = "folder+size=16+folder=mine"
GREYS = {"dark": 40, "light": 200}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"studies": "nothing"}, r"studies/nothing\.yaml: no study file; .*valid: .*cpl"),
        ({"scal": "quick"}, "config: unknown key 'scal'; did you mean 'scale'"),
        ({"scale": "huge"}, "config: scale = 'huge'.*'quick', 'small', 'headline' or 'paper'"),
    ],
)
def test_a_bad_configuration_stops_with_one_line(
    planned: Project, config: dict[str, object], message: str
) -> None:
    check_stop(planned, [], config, message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"artifacts/digts/{MODEL}/fedsgd/none/cpl/scores.csv", "'digts'; did you mean 'digits'"),
        (f"artifacts/digits/{MODEL}/fedsgd/none/cpl+alfa=1/reconstruction.h5", "'alfa'.*alpha"),
        (
            f"artifacts/digits/{MODEL}/fedsgd+victims=08/none/update.h5",
            "write it as .*/fedsgd/none/update.h5$",
        ),
        (
            f"artifacts/digits/{MODEL}/none/fedsgd/cpl/scores.csv",
            "'none' is a defense, not a client; .*write it as .*/fedsgd/none/cpl/scores.csv$",
        ),
        (f"artifacts/digits/{MODEL}/fedsgd/none/cpl/score.csv", "write it as .*cpl/scores.csv$"),
        (
            f"../digits/{MODEL}/fedsgd/none/cpl/scores.csv",
            "write it as results/artifacts/digits/.*/scores.csv$",
        ),
        ("artifacts/digits+size=16/dataset.h5", "write it as results/artifacts/digits/dataset.h5$"),
        (f"artifacts/breast_cancer/{MODEL}/fedsgd/none/update.h5", "lenet takes image data"),
        (f"artifacts/digits/{MODEL}/fedsgd+batch_size=999/none/update.h5", "more than the 450"),
        (
            f"artifacts/digits/{MODEL}/fedsgd+batch_size=11+labels=unique/none/update.h5",
            "11 samples with unique labels",
        ),
        (
            "artifacts/digits/lenet/central+epochs=20/scores.csv",
            "write it as .*/central/scores.csv$",
        ),
        (
            "artifacts/digits/lenet/federated+clients=1348/scores.csv",
            "clients=1348 is more than the 1347 samples",
        ),
        (
            "knowledge/digits/codec+size=064/knowledge.h5",
            r"write it as .*/codec\+size=64/knowledge.h5$",
        ),
        ("knowledge/digits/codec+public=photos/knowledge.h5", "public dataset 'digits': write it"),
        ("knowledge/breast_cancer/codec/knowledge.h5", "needs images, but breast_cancer contains"),
        ("knowledge/digits/codec/knowledge.h5", "not shorter than images of 256"),
        ("studies/tiny/quick/grids/nothing.csv", "unknown file 'grids/nothing.csv'; .*grids/"),
    ],
)
def test_a_file_that_cannot_be_stops_with_one_line(
    planned: Project, path: str, message: str
) -> None:
    check_stop(planned, [f"results/{path}"], {}, message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "told/honest/captured+capture=told/topk/update.h5",
            "imported with defense none, not topk",
        ),
        (
            "told/honest/captured+capture=bare/none/update.h5",
            r"requires training captured\+capture=bare",
        ),
        ("tolt/model.h5", r"no such capture; did you mean 'told'\? .*data_dir"),
        (
            "bare/honest/captured+capture=bare/none/cpl/scores.csv",
            r"'bare' has no true samples.*--truth",
        ),
        ("bare/honest/captured+capture=bare/none/truth/scores.csv", "'bare' has no true samples"),
        (
            "bare/honest/captured+capture=bare/none/blind/reconstruction.h5",
            "'bare' has no true samples, which scores and grants need",
        ),
    ],
)
def test_a_capture_that_does_not_serve_stops_with_one_line(
    planned: Project, captures: Path, path: str, message: str
) -> None:
    words = [f"results/artifacts/digits/lenet/captured+capture={path}"]
    check_stop(planned, words, {"data_dir": captures}, message)


def check_stop(project: Project, words: list[str], config: dict[str, object], message: str) -> None:
    result = project.snakemake(*words, **config)
    assert result.code == 1
    (line,) = re.findall("^gleak: .*$", result.text, re.MULTILINE)
    assert re.search(message, line)
    assert result.text.endswith(f"{line}\n")
    assert not re.search('traceback|exception|File "', result.text, re.IGNORECASE)
    assert not project.results.exists()


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (OWN, "neither .*/mine/train nor .*; put images into .*/mine/train/<class>/"),
        ("adult", r"/adult/adult\.data: no such file; put adult\.data"),
        ("cifar10", "neither .*/cifar10 nor a download .* add --config download=true"),
    ],
)
def test_missing_data_stop_a_dry_run_and_are_told(
    planned: Project, captures: Path, dataset: str, message: str
) -> None:
    words = ["--dry-run", f"results/artifacts/{dataset}/dataset.h5"]
    check_stop(planned, words, {"data_dir": captures}, message)


def test_a_data_folder_is_never_made(planned: Project) -> None:
    nowhere = planned.root / "nowhere"
    message = rf"config: data_dir = {nowhere}: no such folder, .*cifar10.*mkdir -p {nowhere}"
    words = ["results/artifacts/cifar10/dataset.h5"]
    check_stop(planned, words, {"data_dir": nowhere}, message)
    assert not nowhere.exists()
    assert planned.jobs("results/artifacts/digits/dataset.h5", data_dir=nowhere)


def test_a_factory_that_is_not_there_stops_a_dry_run(project: Project) -> None:
    cell = "digits/custom+factory=no_such.build/untrained/honest/fedsgd/none"
    words = ["--dry-run", str(project.results / "artifacts" / cell / "update.h5")]
    message = r"model custom\+factory=no_such.build: No module named 'no_such'; set PYTHONPATH"
    check_stop(project, words, {}, message)


def test_images_of_ones_own_run_from_and_to_folders_elsewhere(
    project: Project, tmp_path: Path
) -> None:
    data, results = tmp_path / "pictures", tmp_path / "elsewhere"
    for split in ("train", "test"):
        for label, grey in GREYS.items():
            folder = data / "mine" / split / label
            folder.mkdir(parents=True)
            Image.new("RGB", (16, 16), (grey, grey, grey)).save(folder / "0.png")
    before = sorted(data.rglob("*"))
    table = results / "studies/own/quick/grids/own.csv"
    project.run(table, studies="own", data_dir=data, results_dir=results)
    dataset = Dataset.read(results / "artifacts" / OWN / "dataset.h5")
    assert dataset.class_names.tolist() == list(GREYS)
    (found,) = results.rglob("reconstruction.h5")
    mean = np.mean(list(GREYS.values())) / 255
    np.testing.assert_allclose(Reconstruction.read(found).inputs, mean, atol=1e-6)
    assert table.exists()
    assert sorted(data.rglob("*")) == before
    other = tmp_path / "other"
    other.mkdir()
    config = {"studies": "own", "data_dir": other, "results_dir": results}
    refused = project.snakemake("--dry-run", table, "--forceall", **config)
    assert refused.code == 1
    assert f"was made from data_dir = {data}, but data_dir is {other} now" in refused.text
    assert not project.results.exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["os.getpid()", "-os.getpgrp()"], ids=["job", "run"])
def test_what_is_killed_half_way_is_made_again(project: Project, killed: str) -> None:
    """Killed just before its file gets its name: the job alone, or Snakemake with it."""
    target = project.results / "artifacts/digits/dataset.h5"

    def edit(text: str) -> str:
        kill = f'os.kill({killed}, 9) if path.suffix == ".h5" else temporary.replace(path)'
        return text.replace("temporary.replace(path)", kill)

    with project.edited("gleak/artifacts/atomic.py", edit=edit):
        assert project.snakemake(target).code != 0
    assert list(target.parent.glob(".*.partial"))
    assert not list(target.parent.glob("*.h5"))
    project.run("--unlock")
    project.run(target)
    assert len(Dataset.read(target).train_inputs) == 1347
