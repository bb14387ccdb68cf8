from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.encodings import Dense
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.update import Update
from gleak.assessment.resolved import Resolved, Varying, with_victims
from gleak.core.errors import SpecError
from gleak.core.registry import parse
from tests.assessment.image_folder import draw_images

Resolve = Callable[..., Resolved]


def capture(
    folder: Path,
    model: str = "lenet",
    name: str = "hand",
    samples: int = 2,
    defense: str = "none",
) -> None:
    """A capture without true samples, of clients with two local steps."""
    client = f"captured+victims=1+batch_size={samples}+local_steps=2+local_lr=0.1+capture={name}"
    spec = f"digits/{model}/captured+capture={name}/honest/{client}/{defense}/invertgrad"
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


def test_clients_of_more_samples_than_the_test_split_has_are_of_training_samples(
    resolved: Resolve, tmp_path: Path
) -> None:
    sizes = parse("dataset", "digits").sizes
    capture(tmp_path, samples=sizes["test"] + 1)
    assert resolved(captures=["hand"]).specs["client"].split == "train"
    capture(tmp_path, name="large", samples=sizes["train"] + 1)
    with pytest.raises(SpecError, match=f"client: .* the {sizes['train']} samples in the train"):
        resolved(captures=["large"])


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"client": {"batch_size": 2}}, "client: captures say what their clients did"),
        ({"defense": "topk"}, "defense: captures were imported with none; assess"),
        ({"model": "fc2"}, "captures: 'hand' is a capture of model lenet on digits, not of fc2"),
    ],
)
def test_what_contradicts_a_capture_is_refused(
    resolved: Resolve, tmp_path: Path, keys: dict[str, Any], fault: str
) -> None:
    capture(tmp_path)
    with pytest.raises(SpecError, match=fault):
        resolved(captures=["hand"], **keys)


def test_the_defense_of_a_deployment_is_that_of_its_captures(
    resolved: Resolve, tmp_path: Path
) -> None:
    capture(tmp_path, defense="dp+sigma=0.1")
    for given in ({}, {"defense": "dp+sigma=0.1"}):
        found = resolved(captures=["hand"], **given)
        assert str(found.specs["defense"]) == str(found.captured[0].defense) == "dp+sigma=0.1"
    capture(tmp_path, name="other")
    with pytest.raises(SpecError, match=r"defense: .* were imported with dp\+sigma=0.1 and none;"):
        resolved(captures=["hand", "other"])


def test_five_lines_are_a_whole_cell(resolved: Resolve) -> None:
    found = resolved(client={"batch_size": 2}, defense="dp+sigma=0.1")
    cell = "digits/lenet/untrained/honest/fedsgd+batch_size=2/dp+sigma=0.1"
    assert "/".join(map(str, found.specs.values())) == cell
    assert str(with_victims(found.specs["client"], 20)) == "fedsgd+victims=20+batch_size=2"
    assert list(map(str, found.thresholds)) == ["ssim ≥ 0.5"]


def test_local_steps_make_federated_averaging(resolved: Resolve) -> None:
    assert resolved(client={"local_steps": 2}).specs["client"].name == "fedavg"
    assert resolved(vary={"local_steps": [1, 2]}).specs["client"].name == "fedavg"


def test_clients_have_an_optimizer_and_what_belongs_to_it(resolved: Resolve) -> None:
    fields = {"optimizer": "adam~beta1=0.8", "schedule": "cosine", "clip_norm": 1}
    client = resolved(client={**fields, "local_steps": 5}, vary={"local_lr": [0.1, 1]}).specs[
        "client"
    ]
    told = "optimizer=adam~beta1=0.8+schedule=cosine+clip_norm=1"
    assert str(client) == f"fedavg+local_steps=5+{told}"
    assert resolved(client={"optimizer": "adam"}).specs["client"].name == "fedavg"
    varied = resolved(client={"local_steps": 2}, vary={"optimizer": ["sgd", "adam"]})
    assert specs_of(varying(varied)) == {
        "sgd": "fedavg+local_steps=2",
        "adam": "fedavg+local_steps=2+optimizer=adam",
    }
    kept = resolved(client={"optimizer": "adam"}, vary={"state": ["zero", "kept"]})
    assert specs_of(varying(kept))["kept"] == "fedavg+optimizer=adam+state=kept"
    with pytest.raises(SpecError, match=r"client: .*unknown client_optimizer .adma.; did you mean"):
        resolved(client={"optimizer": "adma"})


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
        ({"client": {"batchsize": 1}}, "client: .*'batchsize'.*did you mean 'batch_size'"),
        ({"client": {"batch_size": 10**6}}, "client: .*batch_size=1000000 is more than"),
        ({"client": {"victims": 4}}, "client: .*key victims"),
        ({"thresholds": {"sism": 1}}, "thresholds: unknown metric 'sism'; did you mean 'ssim'"),
        (
            {"thresholds": {"seconds": 1}},
            "thresholds: seconds does not measure single recovered samples",
        ),
        ({"thresholds": {"tpr_at_1": 5}}, "thresholds: tpr_at_1: 5 is no share"),
        ({"thresholds": {"epsilon_measured": -1}}, "thresholds: epsilon_measured: -1 is no eps"),
        ({"thresholds": {"p_value": 0.1}}, "thresholds: p_value does not measure single recovered"),
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


def test_too_few_images_or_classes_are_refused(resolved: Resolve, tmp_path: Path) -> None:
    (tmp_path / "loose/test").mkdir(parents=True)
    with pytest.raises(SpecError, match=r"data: .*loose/test: .*no class folder"):
        resolved(data="loose")
    draw_images(tmp_path / "few")
    with pytest.raises(SpecError, match=r"client: .*batch_size=7 is more than the 6 samples"):
        resolved(data="few", client={"batch_size": 7})


def test_a_batch_smaller_than_a_steps_samples_is_one_step_of_all(resolved: Resolve) -> None:
    client = {"batch_size": 32, "mini_batch": 8, "local_steps": 4, "local_lr": 0.1}
    varied = varying(resolved(client=client, vary={"batch_size": [4, 16]}))
    assert {spec.batch_size: spec.mini_batch for spec in varied.specs} == {4: None, 16: 8, 32: 8}
    with pytest.raises(SpecError, match="mini_batch"):
        resolved(client={**client, "drop_last": True}, vary={"batch_size": [4]})


def test_a_client_of_fewer_steps_than_an_epoch_has_their_samples(resolved: Resolve) -> None:
    client = {"batch_size": 32, "mini_batch": 8, "local_steps": 8, "local_lr": 0.1}
    varied = varying(resolved(client=client, vary={"local_steps": [1, 4]}))
    assert {spec.local_steps: spec.batch_size for spec in varied.specs} == {1: 8, 4: 32, 8: 32}


def varying(resolved: Resolved) -> Varying:
    (only,) = resolved.varied
    return only


def specs_of(compared: Varying) -> dict[str, str]:
    return {compared.text(spec): str(spec) for spec in compared.specs}


def test_rounds_begin_where_the_deployment_does(resolved: Resolve) -> None:
    """The network of round 0 is the one whose federated training follows."""
    compared = varying(resolved(training="untrained+init=uniform", vary={"rounds": [5, 2, 5]}))
    assert (compared.level, compared.text(compared.deployed)) == ("training", "0")
    assert specs_of(compared) == {
        "0": "untrained+init=uniform",
        "2": "federated+init=uniform+rounds=2",
        "5": "federated+init=uniform+rounds=5",
    }


def test_other_fields_of_a_federated_training_are_kept(resolved: Resolve) -> None:
    training = "federated+init=kaiming+clients=10+rounds=5+lr=0.02"
    compared = varying(resolved(training=training, vary={"rounds": [0, 20]}))
    assert specs_of(compared) == {
        "0": "untrained+init=kaiming",
        "5": training,
        "20": "federated+init=kaiming+clients=10+rounds=20+lr=0.02",
    }
    assert [compared.number(spec) for spec in compared.specs] == [0, 5, 20]


def test_names_are_in_the_order_of_the_file_after_the_deployed_one(resolved: Resolve) -> None:
    models = varying(resolved(vary={"model": ["fc2", "lenet+width=24", "lenet"]}))
    assert list(specs_of(models)) == ["lenet", "fc2", "lenet+width=24"]
    trainings = varying(resolved(vary={"training": ["federated+rounds=2", "central"]}))
    assert list(specs_of(trainings)) == ["untrained", "federated+rounds=2", "central"]
    labels = varying(resolved(client={"labels": "unique"}, vary={"labels": ["random"]}))
    assert list(specs_of(labels)) == ["unique", "random"]


def test_clients_have_their_number_of_victims(resolved: Resolve) -> None:
    compared = varying(resolved(vary={"batch_size": [8, 2]}))
    sized = [str(with_victims(spec, 20)) for spec in compared.specs]
    assert sized == ["fedsgd+victims=20", *(f"fedsgd+victims=20+batch_size={n}" for n in (2, 8))]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"vary": {"batchsize": [1]}}, r"vary.batchsize: .*did you mean 'batch_size'"),
        ({"vary": {"batch_size": [0]}}, r"vary.batch_size: .*batch_size"),
        ({"vary": {"victims": [5]}}, r"vary.victims: .*key victims"),
        ({"vary": {"modle": ["fc2"]}}, r"vary.modle: .*did you mean 'model'\? valid: .*rounds"),
        ({"vary": {"defense": ["topk"]}}, "vary.defense: .*list others under the key defenses"),
        (
            {"model": "mlp", "data": "breast_cancer", "vary": {"model": ["lenet"]}},
            "vary.model: dataset breast_cancer: .*lenet",
        ),
        ({"vary": {"rounds": [-1]}}, "vary.rounds: .*'rounds' = -1"),
        ({"vary": {"batch_size": [10**6]}}, "vary.batch_size: .*batch_size=1000000 is more than"),
        (
            {"training": "central", "vary": {"rounds": [1]}},
            r"training central has no federated rounds; .*vary \{training: \[untrained, central\]",
        ),
    ],
)
def test_what_cannot_be_varied_is_named_with_a_remedy(
    resolved: Resolve, keys: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecError, match=fault):
        resolved(**keys)


@pytest.mark.parametrize(
    ("vary", "fault"),
    [
        ({"rounds": [1]}, "vary.rounds: .*list captures of several rounds under captures"),
        ({"model": ["fc2"]}, "vary.model: the captured parameters are those of model lenet"),
    ],
)
def test_a_captured_training_has_its_own_rounds_and_model(
    resolved: Resolve, tmp_path: Path, vary: dict[str, Any], fault: str
) -> None:
    capture(tmp_path)
    with pytest.raises(SpecError, match=fault):
        resolved(captures=["hand"], vary=vary)


def test_a_training_of_more_clients_than_images_is_refused(
    resolved: Resolve, tmp_path: Path
) -> None:
    draw_images(tmp_path / "few")
    (tmp_path / "few/train").symlink_to(tmp_path / "few/test")
    with pytest.raises(SpecError, match=r"vary.rounds: .*clients=100 is more than the 6 samples"):
        resolved(data="few", vary={"rounds": [1]})
    kept = resolved(data="few", training="federated+clients=3", vary={"rounds": [1]})
    assert len(varying(kept).specs) == 2
