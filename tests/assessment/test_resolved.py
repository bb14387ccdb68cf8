from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gleak.artifacts.encodings import Dense
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import Update
from gleak.assessment.resolved import Resolved
from gleak.core.errors import SpecError
from gleak.core.registry import parse

Resolve = Callable[..., Resolved]


def draw_images(folder: Path, classes: int = 2, each: int = 3) -> None:
    for name in range(classes):
        (folder / "test" / str(name)).mkdir(parents=True)
        for number in range(each):
            pixels = np.full((8, 8), 20 * number, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "test" / str(name) / f"{number}.png")


def capture(folder: Path, model: str = "lenet", name: str = "hand") -> None:
    """A capture without true samples, of clients with two local steps."""
    client = f"captured+victims=1+batch_size=2+local_steps=2+local_lr=0.1+capture={name}"
    spec = f"digits/{model}/captured+capture={name}/honest/{client}/none/invertgrad"
    target = folder / "data/captures" / name
    target.mkdir(parents=True)
    sent = {"weight": Dense(np.zeros((1, 1, 2), np.float32))}
    Update(spec=spec, update=sent, protocol=Protocol(batch_size=2, local_steps=2)).write(
        target / "update.h5"
    )


def test_simulated_clients_follow_a_capture(resolved: Resolve, tmp_path: Path) -> None:
    capture(tmp_path)
    found = resolved(captures=["hand"])
    assert str(found.specs["training"]) == "captured+capture=hand"
    simulated = "fedavg+batch_size=2+local_steps=2+local_lr=0.1+sends=weights"
    assert str(found.specs["client"]) == simulated
    assert not found.scored
    attack = parse("attack", "spear")
    assert [str(cell.attack) for cell in found.unscored([attack])] == ["spear"]
    (tmp_path / "data/captures/hand/private.h5").touch()
    told = resolved(captures=["hand"])
    assert told.scored and told.unscored([attack]) == ()


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"client": {"batch_size": 2}}, "client: captures say what their clients did"),
        ({"defense": "topk"}, "defense: captured updates contain their defence already"),
        ({"model": "fc2"}, "captures: 'hand' is a capture of model lenet on digits, not of fc2"),
    ],
)
def test_what_contradicts_a_capture_is_refused(
    resolved: Resolve, tmp_path: Path, keys: dict[str, Any], fault: str
) -> None:
    capture(tmp_path)
    with pytest.raises(SpecError, match=fault):
        resolved(captures=["hand"], **keys)


def test_five_lines_are_a_whole_cell(resolved: Resolve) -> None:
    found = resolved(client={"batch_size": 2}, defense="dp+sigma=0.1")
    texts = {level: str(spec) for level, spec in found.specs.items()}
    assert texts == {
        "dataset": "digits",
        "model": "lenet",
        "training": "untrained",
        "crafting": "honest",
        "client": "fedsgd+batch_size=2",
        "defense": "dp+sigma=0.1",
    }
    assert str(found.client(20)) == "fedsgd+victims=20+batch_size=2"
    assert list(map(str, found.thresholds)) == ["ssim ≥ 0.5"]


@pytest.mark.parametrize(
    "keys", [{"client": {"local_steps": 2}}, {"vary": {"local_steps": [1, 2]}}]
)
def test_local_steps_make_federated_averaging(resolved: Resolve, keys: dict[str, Any]) -> None:
    assert resolved(**keys).specs["client"].name == "fedavg"


def test_a_folder_of_images_is_data(resolved: Resolve, tmp_path: Path) -> None:
    draw_images(tmp_path / "xrays")
    found = resolved(data="xrays")
    assert str(found.specs["dataset"]) == "folder+folder=xrays"
    assert found.settings.data_dir == tmp_path
    assert found.settings.captures == tmp_path / "data/captures"
    sized = resolved(data={"folder": "xrays", "size": 16})
    assert str(sized.specs["dataset"]) == "folder+size=16+folder=xrays"


def test_tables_have_a_threshold_of_their_own(resolved: Resolve) -> None:
    found = resolved(model="mlp", data="breast_cancer")
    assert list(map(str, found.thresholds)) == ["mse ≤ 0.001"]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"model": "lennet"}, "model: unknown model 'lennet'; did you mean 'lenet'"),
        ({"model": "no_module.build"}, "model: .*no_module.*set PYTHONPATH"),
        ({"data": "digit"}, "data: 'digit' is neither .* did you mean 'digits'"),
        ({"training": "trained"}, "training: unknown training 'trained'"),
        ({"client": {"batchsize": 1}}, "client: .*'batchsize'.*did you mean 'batch_size'"),
        ({"client": {"batch_size": 10**6}}, "client: .*batch_size=1000000 is more than"),
        ({"client": {"victims": 4}}, "client: .*key victims"),
        ({"defense": "dpp"}, "defense: unknown defense 'dpp'"),
        ({"thresholds": {"sism": 1}}, "thresholds: unknown metric 'sism'; did you mean 'ssim'"),
        ({"thresholds": {"seconds": 1}}, "thresholds: seconds does not measure single samples"),
        ({"thresholds": {"lpips": 0.1}}, "thresholds: lpips needs the file"),
        ({"attacker": {"grants": ["all"]}}, "attacker.grants: unknown grant 'all'"),
        ({"captures": ["hand"]}, "captures: .*hand: no such capture"),
        ({"model": "mlp", "data": "breast_cancer", "thresholds": {"ssim": 1}}, "not defined for"),
        ({"data": {"size": 8}}, "data: key 'folder' is missing"),
    ],
)
def test_what_cannot_be_assessed_is_named_by_its_key(
    resolved: Resolve,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    keys: dict[str, Any],
    fault: str,
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(SpecError, match=fault):
        resolved(**keys)


def test_images_without_classes_are_refused(resolved: Resolve, tmp_path: Path) -> None:
    (tmp_path / "loose/test").mkdir(parents=True)
    with pytest.raises(SpecError, match=r"data: .*loose/test: .*no class folder"):
        resolved(data="loose")


def test_a_batch_larger_than_a_folder_is_refused(resolved: Resolve, tmp_path: Path) -> None:
    draw_images(tmp_path / "few")
    with pytest.raises(SpecError, match=r"client: .*batch_size=7 is more than the 6 samples"):
        resolved(data="few", client={"batch_size": 7})
