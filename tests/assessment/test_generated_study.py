from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gleak.assessment.generated_study import Effort, generate_study, study_of_size
from gleak.assessment.resolved import Resolved
from gleak.core.errors import SpecError
from gleak.studies.cell import Cell
from gleak.studies.machine import Machine
from gleak.studies.study import Study
from tests.assessment.test_attack_choice import hard

Resolve = Callable[..., Resolved]
SMALL = Effort(5, 100)


def study_of(resolved: Resolved, effort: Effort = SMALL) -> Study:
    return study_of_size("mine", resolved, effort, Machine()).study


def cells_of(study: Study, grid: str) -> list[Cell]:
    """The cells of a grid that `best` attacks."""
    return [cell for cell in study.grid(grid, "quick").cells if cell.attack.name == "best"]


@pytest.mark.parametrize(
    ("keys", "grids"),
    [
        (
            {"vary": {"rounds": [2], "model": ["fc2"]}},
            ["deployed", "varied_rounds", "varied_model", "members", "audit"],
        ),
        (
            {"defenses": ["topk", "dp+sigma=0.1"]},
            ["deployed", "defenses", "members", "canaries", "audit"],
        ),
        ({"attacker": {"kind": "crafting_server"}}, ["deployed", "crafted", "members", "audit"]),
        ({"model": "mlp", "data": "breast_cancer"}, ["deployed", "members", "audit"]),
    ],
)
def test_the_study_is_valid(resolved: Resolve, keys: dict[str, Any], grids: list[str]) -> None:
    assert list(study_of(resolved(**keys)).grids) == grids


def test_the_deployed_value_and_defence_are_among_those_compared(resolved: Resolve) -> None:
    keys = {"defense": "qsgd", "defenses": ["topk"], "vary": {"batch_size": [4, 2]}}
    study = study_of(resolved(**keys))
    varied = [cell.client.batch_size for cell in cells_of(study, "varied_batch_size")]
    compared = [cell.defense.name for cell in cells_of(study, "defenses")]
    assert (varied, compared) == ([1, 2, 4], ["none", "qsgd", "topk"])


def test_the_deployed_cell_is_part_of_every_varied_grid(resolved: Resolve) -> None:
    vary = {"batch_size": [2], "model": ["fc2"], "training": ["central"], "rounds": [2]}
    study = study_of(resolved(vary=vary))
    (deployed,) = cells_of(study, "deployed")
    for field in vary:
        cells = cells_of(study, f"varied_{field}")
        assert len(cells) == 2
        assert deployed in cells


def test_a_varied_model_is_attacked_with_what_fits_it(
    resolved: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "my_networks", SimpleNamespace(hard=hard))
    vary = {"model": ["my_networks.hard", "fc2"]}
    study = study_of(resolved(client={"batch_size": 2}, vary=vary))
    attacks: dict[str, list[str]] = {}
    for cell in study.grid("varied_model", "quick").cells:
        attacks.setdefault(str(cell.model), []).append(cell.attack.name)
    first = ["aono", "cpa_edges", "cpa_noisy", "matrix_completion", "set_membership"]
    first += ["singular_vectors", "spear"]
    assert {model: sorted({*found} - {"blind"}) for model, found in attacks.items()} == {
        "lenet": ["best"],
        "custom+factory=my_networks.hard": first,
        "fc2": ["best"],
    }
    assert all(found.count("blind") == 1 for found in attacks.values())


def test_metrics_of_thresholds_are_measured_with_their_fields(resolved: Resolve) -> None:
    study = study_of(resolved(thresholds={"success_content+threshold=9e-3": 1}))
    asked = {str(metric) for found in study.asked_metrics("quick").values() for metric in found}
    assert asked == {"success_content+threshold=9e-3", "auc", "tpr"}
    study = study_of(resolved(thresholds={"identified": 0.05, "tpr+fpr=0.001": 0.1}))
    asked = {str(metric) for found in study.asked_metrics("quick").values() for metric in found}
    rates = {"identified", "identified_by_chance", "tpr+fpr=1e-3"}
    assert asked == {"ssim", *rates, "auc", "tpr"}


def test_deployments_that_differ_in_one_field_share_cells(resolved: Resolve) -> None:
    first = study_of(resolved(defenses=["topk"])).grids
    second = study_of(resolved(defenses=["topk", "qsgd"])).grids
    cells = [
        {c for grid in study.values() for c in grid["quick"].cells} for study in (first, second)
    ]
    assert cells[0] < cells[1]


def test_who_took_part_is_inferred_of_the_clients_that_are_attacked(resolved: Resolve) -> None:
    study = study_of(resolved(defense="dp+sigma=0.1", defenses=["topk"]))
    cells = study.grid("members", "quick").cells
    methods = ["gradient_cosine+candidates=200", "regression+candidates=200"]
    assert [(str(cell.defense), str(cell.attack)) for cell in cells] == [
        (defense, method) for defense in ("none", "dp+sigma=0.1", "topk") for method in methods
    ]
    assert {cell.client for cell in cells} == {c.client for c in cells_of(study, "deployed")}
    (audited,) = study.grid("canaries", "quick").cells
    assert (str(audited.defense), audited.client.victims) == ("dp+sigma=0.1", 1)


def test_an_unknown_defence_is_named_by_its_key(resolved: Resolve) -> None:
    with pytest.raises(SpecError, match="defenses: unknown defense 'tok'; did you mean 'topk'"):
        study_of(resolved(defenses=["tok"]))


FILTERS = ["flower_clipping", "flare_exclude+names=fc.bias", "flare_percentile", "flare_svt"]
"""Of Flower's and FLARE's clients, beside `flower_local_dp`."""


def test_filters_of_frameworks_are_defences_of_a_deployment(resolved: Resolve) -> None:
    client = {"local_steps": 2, "local_lr": 0.1, "sends": "weights", "optimizer": "adam"}
    used = "flower_local_dp+epsilon=100"
    study = study_of(resolved(client=client, defense=used, defenses=FILTERS))
    assert {str(cell.defense) for cell in cells_of(study, "deployed")} == {used}
    assert [str(cell.defense) for cell in cells_of(study, "defenses")] == ["none", used, *FILTERS]


def size(resolved: Resolved) -> Effort:
    return generate_study("mine", resolved).effort


def test_a_larger_budget_buys_a_larger_assessment(resolved: Resolve) -> None:
    found = []
    for minutes in (0.2, 1, 100):
        generated = generate_study("mine", resolved(budget={"minutes": minutes}))
        assert 0 < generated.minutes <= minutes
        found.append((generated.effort.victims, generated.effort.iterations))
    assert found == sorted(found)
    assert found[0] < found[2] == (100, 4800)


def test_a_size_that_is_given_is_kept(resolved: Resolve) -> None:
    assert size(resolved(budget={"minutes": 100}, victims=7)) == Effort(7, 4800)
    assert size(resolved(budget={"minutes": 100}, iterations=250)) == Effort(100, 250)


def test_accuracy_is_measured_if_the_training_is_federated_and_the_budget_allows(
    resolved: Resolve,
) -> None:
    cases = {("federated", 100): True, ("federated", 0.25): False, ("untrained", 100): False}
    for (training, minutes), trained in cases.items():
        budget = {"minutes": minutes}
        deployment = resolved(defenses=["topk"], victims=5, budget=budget, training=training)
        assert size(deployment).trained == trained
    federated = resolved(defenses=["topk"], training="federated+rounds=5")
    study = study_of(federated, Effort(5, 100, trained=True))
    assert [str(cell.training) for cell in study.grid("accuracy", "quick").cells] == [
        "federated+rounds=5",
        "federated+rounds=5+defense=topk",
    ]


def test_a_scale_is_a_size_whatever_it_takes(resolved: Resolve) -> None:
    assert size(resolved(budget={"scale": "quick"})) == Effort(10, 1000)
    keys = {"defenses": ["topk"], "training": "federated", "victims": 7}
    assert size(resolved(budget={"scale": "small"}, **keys)) == Effort(7, 4800, trained=True)


def test_a_budget_that_is_too_small_is_refused_with_the_least(resolved: Resolve) -> None:
    deployment = resolved(budget={"minutes": 1e-4})
    with pytest.raises(SpecError, match=r"budget.minutes: 0.0001 is too little: .*2 clients, 5 "):
        generate_study("mine", deployment)
