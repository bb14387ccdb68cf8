"""Methods of computing many victims' gradients, compared with a loop of `torch.autograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.distances import L2, Cosine
from gleak.attacks.matching.gradients import (
    ClientTraining,
    Gradients,
    LoopedGradients,
    VmappedGradients,
)
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.core.registry import parse
from gleak.models.batch_norm import run_by_clients
from gleak.models.differentiation import sample_losses
from tests.attacks.matching.slopes import choose_gradients

SHAPE = (2, 7, 6)
CLASSES = 5
VICTIMS = 3
LOSSES = ["cross_entropy", "nll_raw"]
Formed = dict[str, Tensor]

convolutions = st.fixed_dictionaries(
    {
        "kernel_size": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "stride": st.integers(1, 2),
        "padding": st.integers(0, 2),
        "dilation": st.integers(1, 2),
        "bias": st.booleans(),
    }
)


def network(layers: Sequence[dict[str, object]], hidden: int, bias: bool) -> nn.Sequential:
    """Build convolutions, then two dense layers; weights fixed, in double precision."""
    modules: list[nn.Module] = []
    for number, options in enumerate(layers):
        modules += [nn.Conv2d(2 if number == 0 else 3, 3, **options), nn.Tanh()]
    features = nn.Sequential(*modules, nn.Flatten())
    width = features(torch.zeros(1, *SHAPE)).shape[1]
    dense = [nn.Linear(width, hidden, bias=bias), nn.Sigmoid(), nn.Linear(hidden, CLASSES)]
    return randomised(nn.Sequential(*features, *dense))


def randomised(model: nn.Module) -> nn.Module:
    stream = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=stream)
    for name, buffer in model.named_buffers():
        if "running" in name:
            nn.init.uniform_(buffer, 0.1, 2, generator=stream)
    return model.double().eval().requires_grad_(False)


def batch(samples: int, shape: tuple[int, ...] = SHAPE) -> tuple[Tensor, Tensor]:
    """Draw samples and soft labels of all victims, which require a gradient."""
    stream = torch.Generator().manual_seed(samples)
    inputs = torch.rand(VICTIMS, samples, *shape, generator=stream, dtype=torch.double)
    logits = torch.randn(VICTIMS, samples, CLASSES, generator=stream, dtype=torch.double)
    return inputs.requires_grad_(), logits.softmax(2).requires_grad_()


def training_of(
    model: nn.Module, shape: tuple[int, ...], loss: str = "cross_entropy"
) -> ClientTraining:
    """Return a training of one step of all parameters, in a cell of several victims."""
    trained = frozenset(name for name, _ in model.named_parameters())
    return ClientTraining(model, shape, CLASSES, trained, Protocol(loss=loss), several_victims=True)


def targets_of(model: nn.Module) -> Formed:
    stream = torch.Generator().manual_seed(7)
    return {
        name: 0.1 * torch.randn(VICTIMS, *value.shape, generator=stream, dtype=torch.double)
        for name, value in model.named_parameters()
    }


def formed(model: nn.Module, loss: str, inputs: Tensor, soft: Tensor) -> Formed:
    """Compute the gradients of each victim's mean loss, one victim after the other."""
    parameters = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    rows = []
    for samples, labels in zip(inputs, soft, strict=True):
        logits = torch.func.functional_call(model, parameters, (samples,))
        mean = sample_losses(loss, logits, labels).mean()
        rows.append(
            torch.autograd.grad(
                mean, list(parameters.values()), create_graph=True, materialize_grads=True
            )
        )
    return dict(zip(parameters, map(torch.stack, zip(*rows, strict=True)), strict=True))


def joined(values: Formed) -> Tensor:
    return torch.cat([value.flatten(1) for value in values.values()], 1)


def l2(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).square().sum(1)


def cosine(found: Tensor, wanted: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(found, wanted, dim=1)


def assert_matches(gradients: Gradients, model: nn.Module, loss: str, samples: int) -> None:
    """Compare both distances, and their gradients at inputs and labels."""
    shape = SHAPE if isinstance(next(model.children()), nn.Conv2d) else SHAPE[:1]
    inputs, soft = batch(samples, shape)
    observed = targets_of(model)
    expected = joined(formed(model, loss, inputs, soft))
    wanted = joined(observed)
    for distance, reference in [(L2(), l2), (Cosine(), cosine)]:
        found = distance.measure(gradients(inputs, soft, observed))
        value = reference(expected, wanted)
        torch.testing.assert_close(found, value)
        slopes = torch.autograd.grad(found.sum(), (inputs, soft))
        for slope, true in zip(
            slopes, torch.autograd.grad(value.sum(), (inputs, soft), retain_graph=True), strict=True
        ):
            torch.testing.assert_close(slope, true)


@pytest.mark.parametrize("way", [LayerwiseGradients, VmappedGradients, LoopedGradients])
@pytest.mark.parametrize("loss", LOSSES)
@given(
    layers=st.lists(convolutions, min_size=1, max_size=2),
    hidden=st.integers(1, 6),
    bias=st.booleans(),
    samples=st.integers(1, 3),
)
def test_objectives_and_slopes_are_those_of_formed_gradients(
    way: Callable[..., Gradients],
    loss: str,
    layers: list[dict[str, object]],
    hidden: int,
    bias: bool,
    samples: int,
):
    try:
        model = network(layers, hidden, bias)
    except RuntimeError:  # the kernel is larger than what is left of the image
        return
    assert_matches(way(training_of(model, SHAPE, loss)), model, loss, samples)


def test_dense_layers_on_many_positions_count_them_all():
    """A layer that maps rows of an image adds up over rows."""
    model = randomised(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 5)))
    inputs = torch.rand(VICTIMS, 2, 4, 2, dtype=torch.double)
    soft, observed = batch(2)[1], targets_of(model)
    pieces = LayerwiseGradients(training_of(model, (4, 2)))(inputs, soft, observed)
    expected = l2(joined(formed(model, "cross_entropy", inputs, soft)), joined(observed))
    torch.testing.assert_close(L2().measure(pieces), expected)


class Tangled(nn.Module):
    """Network in which `step` defines the layers between a first and a last dense layer."""

    def __init__(self, step: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(2, 4), nn.Linear(4, 4)
        self.last = nn.Linear(4, CLASSES)
        self.step = step

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.step(self, self.first(inputs)))


def tied() -> nn.Module:
    model = Tangled(lambda net, x: net.other(net.middle(x)))
    model.other = nn.Linear(4, 4)
    model.other.weight = model.middle.weight
    return model


def with_own_parameter() -> nn.Module:
    model = Tangled(lambda net, x: net.middle(x) * net.gain)
    model.gain = nn.Parameter(torch.ones(4))
    return model


TANGLED = {
    "used twice": lambda: Tangled(lambda net, x: net.middle(net.middle(x).tanh())),
    "used never": lambda: Tangled(lambda net, x: x.tanh()),
    "output overwritten": lambda: Tangled(lambda net, x: net.middle(x).relu_()),
    "weight shared": tied,
    "weight used beside its layer": lambda: Tangled(
        lambda net, x: functional.linear(x, net.middle.weight)
    ),
    "named argument": lambda: Tangled(lambda net, x: net.middle(input=x)),
    "parameter of no layer": with_own_parameter,
    "samples not in front": lambda: Tangled(
        lambda net, x: net.middle(torch.stack([x, x.tanh()])).sum(0)
    ),
    "normalised": lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)),
}


def convolutional(*norm: nn.Module, **options: object) -> nn.Module:
    convolution = nn.Conv2d(2, 4, 3, **{"padding": 1, **options})
    model = nn.Sequential(convolution, *norm, nn.Tanh(), nn.Flatten(), nn.LazyLinear(CLASSES))
    model(torch.zeros(2, *SHAPE))
    return model


CONVOLUTIONAL = {
    "groups": lambda: convolutional(groups=2),
    "same padding": lambda: convolutional(padding="same"),
    "valid padding": lambda: convolutional(padding="valid"),
    "circular padding": lambda: convolutional(padding_mode="circular"),
    "instance norm": lambda: convolutional(nn.InstanceNorm2d(4, affine=True)),
    "layer norm": lambda: convolutional(nn.LayerNorm(SHAPE[1:])),
    "group norm": lambda: convolutional(nn.GroupNorm(2, 4)),
    "batch statistics": lambda: convolutional(nn.BatchNorm2d(4, track_running_stats=False)),
    "not affine": lambda: convolutional(nn.BatchNorm2d(4, affine=False, track_running_stats=False)),
}


@pytest.mark.parametrize("case", [*TANGLED, *CONVOLUTIONAL])
def test_what_cannot_be_split_by_layers_is_vectorised(case: str):
    """Second derivatives of norms count the statistics, which depend on the samples too."""
    model = randomised({**TANGLED, **CONVOLUTIONAL}[case]())
    shape = SHAPE if case in CONVOLUTIONAL else SHAPE[:1]
    gradients = choose_gradients(training_of(model, shape))
    assert isinstance(gradients, VmappedGradients)
    assert_matches(gradients, model, "cross_entropy", 3)


@pytest.mark.parametrize(
    "name",
    [
        "resnet20",
        "resnet20+norm=none",
        "resnet20+activation=tanh",
        "resnet20+downsampling=false",
        "resnet20+activation=sigmoid",
        "lenet5",
        "lenet5+downsampling=stride",
        "vgg_small+activation=tanh+width=2+hidden=6",
        "vgg_small+activation=tanh+downsampling=stride+norm=batch+width=2+hidden=6",
    ],
)
def test_networks_are_split_by_layers_as_vectorised(name: str):
    """The squared distance, and its gradients at inputs and labels."""
    shape = SHAPE if name.startswith("resnet") else (2, 13, 12)
    model = randomised(parse("model", name).build(shape, CLASSES))
    (inputs, soft), observed = batch(2, shape), targets_of(model)
    outcomes = []
    for way in (LayerwiseGradients, VmappedGradients):
        pieces = way(training_of(model, shape))(inputs, soft, observed)
        assert {piece.name for piece in pieces} == observed.keys()
        distance = L2().measure(pieces)
        outcomes.append((distance, *torch.autograd.grad(distance.sum(), (inputs, soft))))
    for found, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected)


def normalised(**options: object) -> nn.Module:
    width = 3 * SHAPE[1] * SHAPE[2]
    layers = [nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3, **options), nn.Tanh(), nn.Flatten()]
    return randomised(nn.Sequential(*layers, nn.Linear(width, CLASSES)))


@pytest.mark.parametrize("options", [{}, {"eps": 0.1}, {"bias": False}, {"affine": False}])
@pytest.mark.parametrize("loss", LOSSES)
def test_batch_norm_by_running_statistics_is_split_by_victim(loss: str, options: dict[str, object]):
    model = normalised(**options)
    gradients = choose_gradients(training_of(model, SHAPE, loss))
    assert isinstance(gradients, LayerwiseGradients)
    assert_matches(gradients, model, loss, 3)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_batch_norm_of_clients_in_training_mode_is_that_of_torchs_training_mode(
    loss: str, affine: bool
):
    """The gradients and their derivatives depend on the statistics, which depend on all samples."""
    model = normalised(affine=affine)
    gradients = choose_gradients(training_of(run_by_clients(model, "training"), SHAPE, loss))
    assert isinstance(gradients, VmappedGradients)
    assert_matches(gradients, model.train(), loss, 3)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training_mode_is_not_split(affine: bool):
    model = normalised(affine=affine).train()
    before = model[1].running_mean.clone()
    gradients = choose_gradients(training_of(model, SHAPE))
    assert isinstance(gradients, LoopedGradients)
    assert torch.equal(model[1].running_mean, before)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2])
def test_convolutions_that_skip_positions_are_split(kernel: int, stride: int):
    """With a stride larger than the kernel some inputs do not affect any output."""
    options = {"kernel_size": kernel, "stride": stride, "bias": False}
    model = network([{"kernel_size": 1}, options], 3, True)
    gradients = choose_gradients(training_of(model, SHAPE))
    assert isinstance(gradients, LayerwiseGradients)
    assert_matches(gradients, model, "cross_entropy", 2)


def test_no_hook_is_left_behind():
    for model, shape in [
        (network([{"kernel_size": 3}], 4, True), SHAPE),
        (randomised(TANGLED["used twice"]()), SHAPE[:1]),
    ]:
        choose_gradients(training_of(model, shape))
        assert not any(layer._forward_hooks for layer in model.modules())
