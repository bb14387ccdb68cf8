from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.update import Update
from gleak.assessment.deployment import Deployment
from gleak.assessment.resolved import resolve
from gleak.cli.main import main
from gleak.core.settings import Settings
from tests.assessment.test_resolved import draw_images
from tests.commands import Capture, fails


@pytest.fixture
def states(tmp_path: Path) -> Path:
    """State dicts of an `fc2` for digits before and after, the gradient, and a pickle."""
    import torch
    from safetensors.torch import save_file

    from gleak.core.registry import parse

    network = parse("model", "fc2+hidden=8").build((1, 16, 16), 10)
    before = network.state_dict()
    gradient = {name: torch.ones_like(value) for name, value in before.items()}
    after = {name: value - 0.5 * gradient[name] for name, value in before.items()}
    for name, state in {"before": before, "after": after, "gradient": gradient}.items():
        save_file(state, tmp_path / f"{name}.safetensors")
    torch.save(before, tmp_path / "before.pt")
    samples = {"inputs": torch.zeros(2, 1, 16, 16), "labels": torch.zeros(2, dtype=torch.long)}
    save_file(samples, tmp_path / "truth.safetensors")
    (tmp_path / "data").mkdir()
    return tmp_path


def importing(*words: str) -> list[str]:
    specs = ["--dataset", "digits", "--model", "fc2+hidden=8", "--batch-size", "2"]
    return ["import", "mine", *specs, *words]


@pytest.mark.parametrize(
    ("sent", "content", "value"),
    [
        (["--after", "after.safetensors", "--local-lr", "0.5"], "difference", -0.5),
        (["--gradients", "gradient.safetensors"], "gradient", 1),
    ],
)
def test_import(
    study_folder: Path, states: Path, capsys: Capture, sent: list[str], content: str, value: float
):
    assert main(importing("--before", "before.safetensors", *sent)) == 0
    printed = capsys.readouterr().out
    assert f"data/captures/mine: 1 clients of 2 samples, {content}s" in printed
    assert "without true samples" in printed
    assert re.search(r"^snakemake results/artifacts/digits/\S+/reconstruction.h5$", printed, re.M)
    update = Update.read(study_folder / "data/captures/mine/update.h5")
    assert update.protocol.content == content
    for sent_values in update.update.values():
        np.testing.assert_allclose(sent_values.decode(), value, atol=1e-6)


def test_import_into_another_folder(study_folder: Path, states: Path, capsys: Capture):
    sent = ["--before", "before.safetensors", "--after", "after.safetensors", "--local-lr", "0.5"]
    for option, folder in (("data", "other/captures"), ("captures", "other")):
        words = importing(*sent, f"--{option}-dir", "other")
        if option == "data":
            assert "other: no such folder for captures" in fails(capsys, *words)
            assert not Path("other").exists()
            Path("other").mkdir()
        assert main(words) == 0
        assert capsys.readouterr().out.endswith(f" --config {option}_dir=other\n")
        assert (study_folder / folder / "mine/model.h5").is_file()


def test_an_update_that_the_truth_contradicts_is_imported_with_a_warning(
    study_folder: Path, states: Path, capsys: Capture
):
    sent = ["--gradients", "gradient.safetensors", "--truth", "truth.safetensors"]
    assert main(importing("--before", "before.safetensors", *sent)) == 3
    assert "\nwarning: 1 of 1 updates differ from those computed" in capsys.readouterr().out
    assert Path("data/captures/mine/private.h5").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["before.pt", "--gradients", "gradient.safetensors"], "a pickle.*convert it: python -c"),
        (["before.safetensors", "--after", "after.safetensors"], "--local-lr is missing"),
        (["before.safetensors", "--gradients", "none"], "none: no such file"),
        (["gradient.safetensors", "--gradients", "gradient.safetensors", "--config", "x"], "x: no"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line(
    study_folder: Path, states: Path, capsys: Capture, words: list[str], message: str
):
    assert re.search(message, fails(capsys, *importing("--before", *words)))
    assert not (study_folder / "data/captures").exists()


@pytest.fixture
def captured_round(states: Path) -> Path:
    """A round as `gleak.capture` writes it, whose learning rate is that of `states`."""
    from safetensors.torch import load_file, save_file

    folder = states / "round"
    folder.mkdir()
    save_file(load_file(states / "before.safetensors"), folder / "before.safetensors")
    recorded = {"batch_size": "2", "local_steps": "1", "local_lr": "0.5"}
    save_file(load_file(states / "after.safetensors"), folder / "client-0.safetensors", recorded)
    return folder


ROUND = ["import", "mine", "--dataset", "digits", "--model", "fc2+hidden=8", "--round", "round"]


def test_a_round_is_imported_without_further_options(
    study_folder: Path, captured_round: Path, capsys: Capture
):
    assert main(ROUND) == 0
    printed = capsys.readouterr().out
    assert "1 clients of 2 samples, differences" in printed
    assert "captured+victims=1+batch_size=2+local_lr=0.5/none" in printed


@pytest.fixture
def training(captured_round: Path) -> Path:
    """Two captured rounds; only in the second one did two clients take part."""
    folder = captured_round.parent / "training"
    for number in (2, 10):
        shutil.copytree(captured_round, folder / f"round-{number}")
    second = folder / "round-10"
    shutil.copy(second / "client-0.safetensors", second / "client-1.safetensors")
    return folder


ROUNDS = [*ROUND[:-2], "--rounds", "training"]


def test_every_round_of_a_training_is_a_capture(
    study_folder: Path, training: Path, capsys: Capture
):
    assert main(ROUNDS) == 0
    printed = capsys.readouterr().out
    captures = re.findall(r"^data/captures/(\S+): (\d) clients", printed, re.MULTILINE)
    assert captures == [("mine-2", "1"), ("mine-10", "2")]
    for name, clients in captures:
        assert Update.read(study_folder / f"data/captures/{name}/update.h5").victims == int(clients)


def test_no_round_is_imported_if_one_cannot_be(study_folder: Path, training: Path, capsys: Capture):
    (training / "round-10/client-1.safetensors").write_text("no state")
    assert "client-1.safetensors: not a complete" in fails(capsys, *ROUNDS)
    assert not Path("data/captures").exists()
    shutil.rmtree(training / "round-10")
    assert main(ROUNDS) == 0
    capsys.readouterr()
    shutil.copytree(training / "round-2", training / "round-1")
    assert "mine-2 already exists" in fails(capsys, *ROUNDS)
    assert not Path("data/captures/mine-1").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*ROUNDS, "--before", "before.safetensors"], "--before: the folder of a round contains"),
        ([*ROUNDS, "--truth", "truth.safetensors"], "is beside each client"),
        ([*ROUND, "--local-lr", "0.4"], "is 0.4, but round/client-0.safetensors was recorded"),
    ],
)
def test_options_that_contradict_a_round_are_named(
    study_folder: Path, training: Path, capsys: Capture, words: list[str], message: str
):
    assert message in fails(capsys, *words)


def test_what_neither_file_nor_option_says_is_missing(
    study_folder: Path, states: Path, capsys: Capture
):
    specs = ["import", "mine", "--dataset", "digits", "--model", "fc2+hidden=8"]
    sent = ["--after", "after.safetensors"]
    assert "--before is missing" in fails(capsys, *specs, *sent)
    sent += ["--before", "before.safetensors"]
    assert "--batch-size is missing" in fails(capsys, *specs, *sent)


NETWORK = """
from math import prod
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
"""


def test_dataset_and_model_are_those_of_a_deployment_and_need_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    """An image folder that is a link keeps its name."""
    import torch
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "ward_networks.py").write_text(NETWORK)
    draw_images(tmp_path / "photographs")
    (tmp_path / "ward").symlink_to(tmp_path / "photographs")
    (tmp_path / "data").mkdir()
    state = {"1.weight": torch.zeros(2, 3 * 32 * 32), "1.bias": torch.zeros(2)}
    save_file(state, "before.safetensors")
    save_file({name: torch.ones_like(value) for name, value in state.items()}, "sent.safetensors")
    words = "import mine --dataset ward --model ward_networks.build --batch-size 2"
    sent = ["--before", "before.safetensors", "--gradients", "sent.safetensors"]
    assert main([*words.split(), *sent]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert command.startswith("PYTHONPATH=. snakemake results/artifacts/folder+folder=ward/custom+")
    assert command.endswith(f" --config data_dir={tmp_path} captures_dir=data/captures")
    found = Update.read(Path("data/captures/mine/update.h5")).spec
    deployment = Deployment(model="ward_networks.build", data="ward", captures=["mine"])
    resolved = resolve(deployment, tmp_path, Settings())
    assert found.startswith("/".join(str(resolved.specs[level]) for level in ("dataset", "model")))


def test_what_speaks_against_the_training_is_a_finding_without_the_truth(
    study_folder: Path, states: Path, capsys: Capture
):
    """Magnitudes of one step of Adam, of both signs; then as what they are."""
    import torch
    from safetensors.torch import load_file, save_file

    before = load_file("before.safetensors")
    signs = {name: torch.randn_like(value).sign() for name, value in before.items()}
    save_file({name: before[name] - 0.01 * signs[name] for name in before}, "after.safetensors")
    sent = ["--before", "before.safetensors", "--after", "after.safetensors"]
    assert main(importing(*sent, "--local-lr", "0.5")) == 3
    printed = capsys.readouterr().out
    assert "warning: 100% of the values have the magnitude 0.01, as after one step" in printed
    told = ["--optimizer", "adam", "--local-lr", "0.01", "--replace"]
    assert main(importing(*sent, *told)) == 0
    update = Update.read(study_folder / "data/captures/mine/update.h5")
    assert str(update.protocol.optimizer) == "adam"


def test_an_option_for_what_was_recorded_must_agree(
    study_folder: Path, states: Path, capsys: Capture
):
    from safetensors.torch import load_file

    from gleak.captures.round_folder import RoundFolder, write_state

    files = RoundFolder(Path("round"))
    fields = {"local_steps": "1", "local_lr": "0.5", "optimizer": "sgd~momentum=0.9"}
    files.path.mkdir()
    write_state(files.before, load_file("before.safetensors"))
    write_state(files.client("0"), load_file("after.safetensors"), fields)
    round_ = ["--round", "round", "--optimizer"]
    message = fails(capsys, *importing(*round_, "adam"))
    assert (
        "--optimizer is adam, but round/client-0.safetensors was recorded with sgd~mom" in message
    )
    assert main(importing(*round_, "sgd~momentum=0.9")) == 0
