from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gleak.assessment.member_choice import audited_defenses, choose_methods
from gleak.assessment.resolved import Resolved
from tests.assessment.image_folder import draw_images

Resolve = Callable[..., Resolved]


def names(resolved: Resolved, victims: int = 10) -> list[str]:
    return [method.name for method in choose_methods(resolved, victims).methods]


def test_candidates_are_a_thousand_of_all_clients_but_at_least_twenty_of_each(
    resolved: Resolve,
) -> None:
    found = resolved()
    numbers = [choose_methods(found, victims).methods[0].candidates for victims in (1, 10, 100)]
    assert numbers == [1000, 100, 20]
    (large, _) = choose_methods(resolved(client={"batch_size": 64}), 10).methods
    assert large.candidates == 128, "as many others as own samples"


def test_a_regression_is_for_one_step_and_gradients_that_fit_into_memory(
    resolved: Resolve,
) -> None:
    assert names(resolved()) == ["gradient_cosine", "regression"]
    steps = resolved(client={"local_steps": 5, "local_lr": 0.1})
    assert names(steps) == ["gradient_cosine"]
    assert "one step" in choose_methods(steps, 10).left_out["regression"]
    wide = resolved(model="lenet+width=64")
    assert names(wide, 1) == ["gradient_cosine"]


def test_clients_whose_samples_have_no_gradient_of_their_own_are_left_out_with_the_reason(
    resolved: Resolve,
) -> None:
    client = {"batch_size": 4, "batch_norm": "training"}
    clients = resolved(model="resnet20", data="photos", client=client)
    choice = choose_methods(clients, 10)
    assert choice.methods == ()
    assert "whole batch" in choice.left_out["gradient_cosine"]


@pytest.mark.parametrize(
    ("keys", "audited"),
    [
        ({}, []),
        ({"defenses": ["gaussian", "topk"]}, []),
        (
            {"defense": "dp+sigma=0.1", "defenses": ["topk", "fedcdp+sigma=1+snr=none"]},
            ["dp", "fedcdp"],
        ),
    ],
)
def test_only_defences_that_promise_an_epsilon_are_audited(
    resolved: Resolve, keys: dict[str, object], audited: list[str]
) -> None:
    assert [each.name for each in audited_defenses(resolved(**keys))] == audited


@pytest.mark.parametrize(("each", "left_out"), [(9, "18 samples in the test split"), (10, "")])
def test_fewer_samples_than_candidates_leave_all_methods_out_before_anything_runs(
    resolved: Resolve, tmp_path: Path, each: int, left_out: str
) -> None:
    draw_images(tmp_path / "xrays", each=each)
    choice = choose_methods(resolved(data="xrays", client={"batch_size": 1}), 4)
    assert bool(choice.methods) == (not left_out)
    assert left_out in choice.left_out.get("gradient_cosine", "")
