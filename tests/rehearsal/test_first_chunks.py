"""The first chunk of a cell's victims is near what fits into a virtual GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gleak.attacks.matching import chunks, engine
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.search import Search
from gleak.rehearsal.rehearsed_stages import rehearse_attack
from gleak.runtime.checkpointing import Part
from gleak.runtime.virtual_gpu import GIGABYTE, VirtualGPU
from gleak.studies.cell import LEVELS, Cell

CELLS = {
    "cifar10/lenet/untrained/honest/fedsgd+victims=400/none/cpl": 1,
    "lfw/lenet/untrained+init=uniform/honest/fedsgd+victims=300+batch_size=8/none/dlg": 2,
    "mnist/lenet5/untrained/honest/fedsgd+victims=300+batch_size=9+loss=nll_raw/none/"
    "invertgrad": 0.5,
    "cifar10/mlp/untrained/honest/fedsgd+victims=300+batch_size=4/none/invertgrad": 0.3,
}
DEAR = {
    "cifar10/resnet20/untrained/honest/fedsgd+victims=200+batch_size=4/none/agic": 2,
    "cifar10/resnet20/untrained/honest/fedavg+victims=100+batch_size=4+local_steps=2/none/"
    "invertgrad+client_model=unrolled": 4,
    "imagenet/resnet50/pretrained+weights=resnet50/honest/fedsgd+victims=20+batch_size=4/none/"
    "invertgrad": 40,
    "imagenet+size=128/lenet128/untrained/honest/"
    "fedavg+victims=40+batch_size=16+local_steps=5+local_lr=5e-3/none/rog": 80,
    "imagenet/vgg16/pretrained/honest/fedsgd+victims=20+batch_size=8/none/cpa_fi_gm": 80,
}


class EndedError(Exception):
    """The first chunk of a search has ended."""


class FirstChunk:
    """First chunk of a cell's last search on a GPU, of a given size if that is not zero."""

    def __init__(self, path: str, gigabytes: float, size: int = 0) -> None:
        self.size, self.victims, self.fits = size, 0, True
        cell = Cell.parse(dict(zip(LEVELS, path.split("/"), strict=True)))
        with pytest.MonkeyPatch.context() as patch, VirtualGPU(int(gigabytes * GIGABYTE)):
            patch.setattr(engine, "in_chunks", self.run)
            with pytest.raises(EndedError):
                rehearse_attack(cell, cell.dataset.classes or 10, {})

    def run(
        self, victims: int, chunk: int, work: Callable[[slice], Any], part: Part, divide: Any
    ) -> None:
        self.victims, self.size = victims, self.size or chunk
        try:
            work(slice(0, self.size))
        except torch.OutOfMemoryError:
            self.fits = False
        raise EndedError


@pytest.fixture
def whole_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that have full histories, and at last take three quarters of the victims on."""
    begin, run = LBFGS.begin, Search.run

    def begin_grown(spec: LBFGS, points: torch.Tensor, iterations: int) -> Any:
        state: Any = begin(spec, points, iterations)
        missing = state.history - state.pairs.shape[2]
        state.pairs = torch.nn.functional.pad(state.pairs, (0, 0, 0, missing))
        return state

    def run_on(search: Search, *words: Any) -> Any:
        search_state = run(search, *words)
        left = torch.arange(3 * len(search.points) // 4, device=search.points.device)
        search.problem = search.problem.keep(left)
        search.optimizer.keep(left)
        return search_state

    monkeypatch.setattr(LBFGS, "begin", begin_grown)
    monkeypatch.setattr(Search, "run", run_on)


@pytest.mark.usefixtures("whole_searches")
@pytest.mark.parametrize(
    ("path", "gigabytes"),
    [*CELLS.items(), *(pytest.param(*one, marks=pytest.mark.slow) for one in DEAR.items())],
    ids=str,
)
def test_the_first_chunk_is_within_a_fifth_of_what_fits(
    path: str, gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CAUTION", 10**9)
    first = FirstChunk(path, gigabytes)
    assert first.fits
    assert 8 <= first.size < 0.8 * first.victims, "some fit and some do not"
    assert not FirstChunk(path, gigabytes, size=int(first.size / 0.8) + 1).fits
