"""A virtual GPU refuses what a GPU refuses, and counts the memory of tensors."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.core.errors import DeviceError
from gleak.models.stochastic import sampling_layers
from gleak.runtime.device import free_memory
from gleak.runtime.virtual_gpu import DEVICE, VirtualGPU

FLOAT = 4


@pytest.fixture
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU(1000) as gpu:
        yield gpu


def on_gpu(*shape: int) -> Tensor:
    return torch.empty(shape, device=DEVICE)


MIXED: dict[str, Callable[[], Tensor]] = {
    "sum": lambda: on_gpu(3) + torch.zeros(3),
    "product": lambda: on_gpu(3, 3) @ torch.zeros(3, 3),
    "layer": lambda: functional.linear(on_gpu(2, 3), torch.zeros(4, 3)),
    "convolution": lambda: functional.conv2d(on_gpu(1, 3, 5, 5), torch.zeros(2, 3, 3, 3)),
    "concatenation": lambda: torch.cat([on_gpu(3), torch.zeros(3)]),
    "indices on the GPU": lambda: torch.zeros(3)[on_gpu(2).long()],
    "generator": lambda: torch.rand(3, device=DEVICE, generator=torch.Generator()),
}


@pytest.mark.parametrize("operation", MIXED)
def test_two_devices_in_one_operation_are_refused(gpu: VirtualGPU, operation: str) -> None:
    with pytest.raises(DeviceError, match=r"move (it|the result) with \.to\(\)"):
        MIXED[operation]()
    on_gpu(3).sum()
    assert "aten" in str(gpu.fault), "it is kept if the program catches the error"


ALLOWED: dict[str, Callable[[], Tensor]] = {
    "number": lambda: on_gpu(3) * torch.tensor(2.0),
    "indices on the CPU": lambda: on_gpu(3)[torch.tensor([0, 2, 1])],
    "mask on the CPU": lambda: on_gpu(4)[torch.tensor([True, False, True, True])],
    "moved": lambda: on_gpu(3) + torch.zeros(3).to(DEVICE),
    "copied": lambda: on_gpu(3).copy_(torch.zeros(3)),
}


@pytest.mark.parametrize("operation", ALLOWED)
def test_what_a_gpu_accepts_is_accepted(gpu: VirtualGPU, operation: str) -> None:
    result = ALLOWED[operation]()
    assert (result.device, result.shape) == (DEVICE, (3,))
    assert gpu.fault is None


def test_what_depends_on_values_has_an_answer(gpu: VirtualGPU) -> None:
    values = on_gpu(4, 2)
    values[values > 0] = 1
    assert values.sum().item() == 0
    assert not (values > 0).any()
    assert values[values > 0].shape == values.flatten().shape
    assert (values > 0).nonzero().shape == (8, 2)
    assert torch.equal(values, values.view(4, 2))
    assert not torch.equal(values, values.clone())
    assert values.cpu().isfinite().all()
    assert torch.zeros(4, 2).copy_(values).any()


COUNTED: dict[str, tuple[Callable[[Tensor], object], int, int]] = {
    "sum": (lambda values: values + 1, 1, 0),
    "in place": (lambda values: values.mul_(2), 1, 0),
    "views": (lambda values: values.view(4, 1).T[:, :2].detach().expand(3, 2), 0, 0),
    "no values yet": (torch.empty_like, 0, 0),
    "number": (lambda values: float(values[0]), 1, 1),
    "to the CPU": (lambda values: values.cpu(), 1, 1),
    "from the CPU": (lambda values: values.copy_(torch.zeros(4)), 1, 1),
    "another type": (lambda values: values.double(), 1, 0),
    "mask": (lambda values: values[values > 0], 2, 1),
    "choice": (lambda values: torch.where(values > 0, values, 0), 3, 0),
    "indices": (lambda values: values[torch.zeros(4, device=DEVICE).long()], 3, 0),
    "indices on the CPU": (lambda values: values[torch.tensor([0, 1])], 1, 1),
}


@pytest.mark.parametrize("operation", COUNTED)
def test_launches_and_synchronisations_are_counted(gpu: VirtualGPU, operation: str) -> None:
    run, launches, synchronisations = COUNTED[operation]
    run(on_gpu(4))
    assert (gpu.launches, gpu.synchronisations) == (launches, synchronisations)


def test_memory_counts_what_is_alive(gpu: VirtualGPU) -> None:
    first = on_gpu(100)
    view = first[10:].view(9, 10)
    assert gpu.used == 100 * FLOAT
    second = first + 1
    assert gpu.used == gpu.peak == 200 * FLOAT
    del first, second
    assert gpu.used == 100 * FLOAT, "the view keeps the memory"
    del view
    assert (gpu.used, gpu.peak) == (0, 200 * FLOAT)


def test_free_memory_is_the_rest_and_outside_of_a_rehearsal_there_is_none() -> None:
    with VirtualGPU(1000):
        kept = on_gpu(100)
        assert free_memory(kept.device) == 1000 - 100 * FLOAT
    with pytest.raises(DeviceError, match="use 'cpu' or 'cuda'"):
        free_memory(DEVICE)


def test_layers_that_draw_are_found(gpu: VirtualGPU) -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 2)).to(DEVICE)
    assert sampling_layers(network.train(), on_gpu(2, 3)) == ("1",)
    assert sampling_layers(network.eval(), on_gpu(2, 3)) == ()


def test_memory_runs_out_as_on_a_gpu(gpu: VirtualGPU) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="more than the 1e-06 GB of the GPU"):
        on_gpu(251)
    assert gpu.used == 0
    on_gpu(250)


def test_a_large_copy_takes_no_memory_until_it_is_written() -> None:
    """Fifty copies of 200 MB."""
    before = peak_gigabytes()
    with VirtualGPU(10**12):
        copies = [on_gpu(100, 250_000).to("cpu", torch.double) for _ in range(50)]
    assert {(copy.shape, copy.dtype) for copy in copies} == {((100, 250_000), torch.double)}
    assert peak_gigabytes() - before < 0.5
    copies[0][1] += 1
    assert copies[0].sum() == 250_000


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
