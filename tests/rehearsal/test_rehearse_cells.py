"""Cells of the studies at the scale of the papers run on a virtual GPU; faults are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.models.base import ModelSpec
from gleak.models.parameters import trained_parameters
from gleak.rehearsal.rehearse_cells import Rehearsal
from gleak.rehearsal.rehearsed_stages import SingleSteps
from gleak.runtime.virtual_gpu import GIGABYTE
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.study import load_study

ROOT = Path(__file__).parents[2]
NOWHERE = Path("nowhere")
VICTIM = "mnist/mlp/untrained/honest/fedsgd+victims=3/none"
FLOAT = 4

CHEAP = (
    "lfw/lenet/untrained+init=uniform/honest/fedsgd+victims=6+repeats=3/none/cpl",
    "cifar10/mlp/untrained/honest/fedsgd+victims=100/none/aono",
    "tiny_imagenet/fc2/untrained/honest/fedsgd+victims=5+batch_size=8/none/cpa",
    "mnist/lenet5/untrained/mkor/fedsgd+victims=10+batch_size=100+loss=nll_raw/none/mkor",
    "mnist/lenet5/untrained/mkor/fedsgd+victims=10+loss=nll_raw/none/blind",
    "mnist/lenet+width=4/untrained/honest/fedsgd+victims=2/random_mask/best",
    "cifar10/lenet+precode=8/untrained/honest/fedsgd+victims=3/qsgd/"
    "invertgrad+draws=searched+distance=likelihood",
)
DEAR = (
    "mnist/mlp+hidden=64+activation=relu/untrained/honest/fedsgd+victims=2+batch_size=2/none/best",
    "cifar10/resnet20/untrained/honest/fedsgd+victims=2+batch_size=2/none/"
    "gradinversion+statistics=granted",
    "adult/mlp/untrained/honest/fedsgd+victims=1000+repeats=10/none/dlg",
    "cifar10/mlp/untrained/honest/fedsgd+victims=100+batch_size=4/none/melis",
    "cifar10/lenet/federated+rounds=3",
    "mnist/lenet5/untrained/fishing/fedsgd+victims=10+batch_size=10+loss=nll_raw/soteria/fishing",
    "mnist/lenet5/untrained/honest/fedavg+victims=2+local_steps=2/topk/rog+labels=known",
    "tiny_imagenet/fc2/untrained/honest/fedsgd+victims=5+batch_size=8/none/cpa_edges",
    "tiny_imagenet/fc2/untrained/honest/fedsgd+victims=5+batch_size=8/none/spear",
    "imagenet/vgg16/pretrained/honest/fedsgd+victims=5+batch_size=8/none/cpa_fi_gm",
    "cifar100/resnet20+width=4/untrained/honest/epochs+victims=1+batch_size=200+update_size=1/none/"
    "agic_epochs",
    "imagenet+size=128/lenet128+precode=256/untrained/honest/"
    "fedavg+victims=4+batch_size=16+local_steps=5+local_lr=5e-3/none/rog+codec=codec~size=512",
    "imagenet/resnet50/pretrained+weights=resnet50/honest/"
    "fedavg+victims=100+batch_size=4+labels=unique+local_steps=4+mini_batch=1/none/"
    "invertgrad+client_model=unrolled+labels=rows",
)


def cell_of(path: str) -> Cell:
    return Cell.parse(dict(zip(LEVELS, path.split("/"), strict=False)))


def bytes_of_an_update(cell: Cell) -> int:
    network = cell.model.build(cell.dataset.shape, cell.dataset.classes)
    return FLOAT * sum(value.numel() for value in trained_parameters(network).values())


def rehearsal(gigabytes: float = 80) -> Rehearsal:
    return Rehearsal(int(gigabytes * GIGABYTE), NOWHERE)


@pytest.mark.parametrize("path", [*CHEAP, *(pytest.param(p, marks=pytest.mark.slow) for p in DEAR)])
def test_a_cell_of_a_paper_runs(path: str) -> None:
    found = rehearsal().cell(cell_of(path))
    assert found.fault == ""
    assert found.bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("study", ["agic", "cpa", "cpl", "defences", "mkor", "rog"])
def test_the_first_cell_of_every_grid_runs(study: str) -> None:
    runs = rehearsal()
    grids = load_study(ROOT / f"studies/{study}.yaml").grids.values()
    first = [scales["paper"].cells[0] for scales in grids]
    assert {str(cell): runs.cell(cell).fault for cell in first} == {str(c): "" for c in first}


def test_memory_is_that_of_the_updates_of_all_victims_or_less_on_a_small_gpu() -> None:
    """Update, parameters and dummy samples; a batch of the same network takes little more."""
    cell = cell_of(f"{VICTIM}/invertgrad+labels=known".replace("victims=3", "victims=300"))
    update = 300 * bytes_of_an_update(cell)
    large, small = (rehearsal(gigabytes).cell(cell) for gigabytes in (80, 0.07))
    assert large.stage == "attack"
    assert update < large.bytes < 10 * update
    assert small.fault == ""
    assert small.bytes < large.bytes


def test_updates_of_several_rounds_stay_in_host_memory() -> None:
    client = "epochs+victims=3+batch_size=64+update_size=1"
    attack = "agic_epochs+iterations=1+matching_iterations=1"
    cell = cell_of(f"mnist/mlp/untrained/honest/{client}/none/{attack}")
    found = rehearsal().cell(cell)
    assert found.fault == ""
    updates = cell.client.rounds * cell.client.victims
    assert found.bytes < updates * bytes_of_an_update(cell) / 10


def test_a_cell_that_needs_more_than_the_gpu_has_is_a_fault() -> None:
    found = rehearsal(0.0001).cell(cell_of(f"{VICTIM}/invertgrad+labels=known"))
    assert "more than the 0.0001 GB of the GPU; use shards" in found.fault


class Faulty(AttackSpec):
    """Base class of attacks with a fault that only a GPU shows."""

    def reconstruct(self, observation: Observation) -> Reconstruction:
        raise NotImplementedError


class DrawsOnTheCpu(Faulty):
    """Adds noise that was not moved."""

    name: ClassVar[str] = "draws"

    def rehearse(self, observation: Observation) -> None:
        first = next(iter(observation.update.values()))
        first + torch.randn(first.shape)


class HidesIt(DrawsOnTheCpu):
    """Does something else where that fails, which a GPU would show as a slow attack."""

    name: ClassVar[str] = "hides"

    def rehearse(self, observation: Observation) -> None:
        try:
            super().rehearse(observation)
        except Exception:
            return


class WrongShape(Faulty):
    """Compares samples of another size."""

    name: ClassVar[str] = "misfits"

    def rehearse(self, observation: Observation) -> None:
        observation.model(torch.rand(2, 7, device=observation.update.popitem()[1].device))


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        (DrawsOnTheCpu, "aten.add.Tensor is given a tensor on the GPU and one of shape"),
        (HidesIt, "aten.add.Tensor is given a tensor on the GPU and one of shape"),
        (WrongShape, "RuntimeError: .*7"),
    ],
)
def test_a_fault_of_an_attack_is_found(attack: type[AttackSpec], fault: str) -> None:
    cell = cell_of(VICTIM)
    found = rehearsal().cell(Cell({**cell.specs, "attack": attack()}))
    assert found.stage == "attack"
    assert re.match(fault, found.fault)


class Constant(nn.Module):
    """Adds a constant that is no buffer, so that it stays on the CPU."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.ones(inputs.shape[1])


class WithConstant(type(parse("model", "mlp"))):  # type: ignore[misc]
    """A perceptron with that layer."""

    name: ClassVar[str] = "constant"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(super().build(shape, classes), Constant())


def test_a_layer_with_a_constant_on_the_cpu_is_found() -> None:
    model: ModelSpec = WithConstant()
    specs: dict[str, Any] = {**cell_of(VICTIM).upto("dataset").specs, "model": model}
    found = rehearsal().cell(Cell(specs))
    assert (found.stage, "on the CPU" in found.fault) == ("model", True)


def test_stages_with_equal_computations_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, ran = rehearsal(), []
    run = Rehearsal._run
    monkeypatch.setattr(
        Rehearsal, "_run", lambda self, stage: ran.append(stage) or run(self, stage)
    )
    for iterations in (10, 20):
        runs.cell(cell_of(f"{VICTIM}/invertgrad+iterations={iterations}+labels=known"))
    assert [stage.name for stage in ran] == ["model", "training", "client", "attack"]


@pytest.mark.parametrize("left", [0, 5])
def test_there_is_one_step_whatever_is_left(left: int) -> None:
    part = SingleSteps().part().part("nested")
    with part.stepping():
        assert len([*part.steps(lambda: left > 0, dict)]) == 1
    part.keep({"points": 1})
    assert part.stored == {}
