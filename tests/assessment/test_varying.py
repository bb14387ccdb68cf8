from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gleak.assessment.resolved import Resolved
from gleak.assessment.varying import Axis
from gleak.core.errors import SpecError
from tests.assessment.test_resolved import capture, draw_images

Resolve = Callable[..., Resolved]


def axis_of(resolved: Resolved) -> Axis:
    (axis,) = resolved.axes
    return axis


def specs_of(axis: Axis) -> dict[str, str]:
    return {value.text: str(value.spec) for value in axis.values}


def test_rounds_begin_where_the_deployment_does(resolved: Resolve) -> None:
    """The network of round 0 is the one whose federated training follows."""
    axis = axis_of(resolved(training="untrained+init=uniform", vary={"rounds": [5, 2, 5]}))
    assert (axis.level, axis.deployed.text) == ("training", "0")
    assert specs_of(axis) == {
        "0": "untrained+init=uniform",
        "2": "federated+init=uniform+rounds=2",
        "5": "federated+init=uniform+rounds=5",
    }


def test_other_fields_of_a_federated_training_are_kept(resolved: Resolve) -> None:
    training = "federated+init=kaiming+clients=10+rounds=5+lr=0.02"
    axis = axis_of(resolved(training=training, vary={"rounds": [0, 20]}))
    assert specs_of(axis) == {
        "0": "untrained+init=kaiming",
        "5": training,
        "20": "federated+init=kaiming+clients=10+rounds=20+lr=0.02",
    }
    assert [value.number for value in axis.values] == [0, 5, 20]


def test_names_are_in_the_order_of_the_file_after_the_deployed_one(resolved: Resolve) -> None:
    models = axis_of(resolved(vary={"model": ["fc2", "lenet+width=24", "lenet"]}))
    assert list(specs_of(models)) == ["lenet", "fc2", "lenet+width=24"]
    trainings = axis_of(resolved(vary={"training": ["federated+rounds=2", "central"]}))
    assert list(specs_of(trainings)) == ["untrained", "federated+rounds=2", "central"]
    labels = axis_of(resolved(client={"labels": "unique"}, vary={"labels": ["random"]}))
    assert list(specs_of(labels)) == ["unique", "random"]


def test_clients_have_their_number_of_victims(resolved: Resolve) -> None:
    axis = axis_of(resolved(vary={"batch_size": [8, 2]}))
    sized = [str(value.sized(20)) for value in axis.values]
    assert sized == ["fedsgd+victims=20", *(f"fedsgd+victims=20+batch_size={n}" for n in (2, 8))]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"vary": {"modle": ["fc2"]}}, r"vary.modle: .*did you mean 'model'\? valid: .*rounds"),
        ({"vary": {"round": [1]}}, "vary.round: .*did you mean 'rounds'"),
        ({"vary": {"local_step": [1]}}, "vary.local_step: .*valid: "),
        ({"vary": {"defense": ["topk"]}}, "vary.defense: .*list others under the key defenses"),
        ({"vary": {"model": ["lennet"]}}, "vary.model: unknown model 'lennet'; .*'lenet'"),
        (
            {"model": "mlp", "data": "breast_cancer", "vary": {"model": ["lenet"]}},
            "vary.model: dataset breast_cancer: .*lenet",
        ),
        ({"vary": {"training": ["trained"]}}, "vary.training: unknown training 'trained'"),
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
    assert len(axis_of(kept).values) == 2
