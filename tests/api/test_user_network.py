"""Settings of torch are a user's own: public functions compute with theirs, and restore them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import gleak

SHAPE, CLASSES, LR = (3, 4, 4), 4, 0.1
KNOWN = {"shape": SHAPE, "batch_size": 2}
IMAGES = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1))


def kernels() -> tuple[str, bool, bool]:
    cudnn = torch.backends.cudnn
    return cudnn.conv.fp32_precision, cudnn.allow_tf32, cudnn.deterministic


class Noting(nn.Sequential):
    """A network that notes with which kernels it is run."""

    seen: ClassVar[set[tuple[str, bool, bool]]] = set()

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.add(kernels())
        return super().forward(inputs)


@pytest.fixture
def model() -> Noting:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), nn.Sigmoid()
        return Noting(*layers, nn.Linear(8, CLASSES)).eval()


def attacked(model: nn.Module) -> gleak.AttackResult:
    return gleak.attack("invertgrad+iterations=1", model, gradients(model), **KNOWN)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return gleak.compute_update(model, IMAGES, [0, 2])


def measured(model: nn.Module) -> dict[str, float]:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    after = {name: value - LR * gradients(model).get(name, 0) for name, value in state.items()}
    return gleak.Gauge(model, SHAPE, 2, LR)(state, after, (IMAGES, [0, 2]))


CALLS: dict[str, Any] = {
    "attack": attacked,
    "audit": lambda model: gleak.audit(model, shape=SHAPE),
    "batch_norm_statistics": lambda model: gleak.batch_norm_statistics(model, IMAGES),
    "compute_update": gradients,
    "craft": lambda model: gleak.craft("fishing", model, SHAPE),
    "defend": lambda model: gleak.defend("gaussian", gradients(model)),
    "Gauge": measured,
    "score": lambda model: gleak.score(attacked(model), IMAGES, [0, 2]),
}


@pytest.mark.usefixtures("torch_defaults")
@pytest.mark.parametrize("name", CALLS)
def test_functions_compute_with_exact_kernels_and_restore_those_of_the_user(
    name: str, model: Noting
) -> None:
    Noting.seen.clear()
    CALLS[name](model)
    assert Noting.seen == {("ieee", False, True)}
    assert kernels() == ("tf32", True, False)


@pytest.mark.usefixtures("torch_defaults")
def test_kernels_are_restored_when_a_call_fails(model: Noting) -> None:
    with pytest.raises(gleak.GleakError):
        gleak.attack("aono", model, [IMAGES], **KNOWN)
    assert kernels() == ("tf32", True, False)
