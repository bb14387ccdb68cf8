"""Methods of computing many victims' gradients, compared with a loop of `torch.autograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from gleak.attacks.matching import kernels
from gleak.attacks.matching.distances import L2, Cosine
from gleak.attacks.matching.gradients import Gradients, LoopedGradients, VmappedGradients
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.core.registry import parse
from gleak.models.batch_norm import run_by_clients
from tests.attacks.matching import slopes
from tests.attacks.matching.slopes import Formed, choose_gradients, plain_gradients

SHAPE = (2, 7, 6)
CLASSES = 5
VICTIMS = 3
LOSSES = ["cross_entropy", "nll_raw"]
WAYS = [LayerwiseGradients, VmappedGradients, LoopedGradients]

convolutions = st.fixed_dictionaries(
    {
        "kernel_size": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "stride": st.integers(1, 3),
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
    return slopes.dummies(VICTIMS, samples, shape, CLASSES)


def training_of(
    model: nn.Module, shape: tuple[int, ...] = SHAPE, loss: str = "cross_entropy"
) -> slopes.ClientTraining:
    return slopes.training_of(model, shape, CLASSES, loss, several_victims=True)


def targets_of(model: nn.Module) -> Formed:
    stream = torch.Generator().manual_seed(7)
    return {
        name: 0.1 * torch.randn(VICTIMS, *value.shape, generator=stream, dtype=torch.double)
        for name, value in model.named_parameters()
    }


def joined(values: Formed) -> Tensor:
    return torch.cat([value.flatten(1) for value in values.values()], 1)


def l2(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).square().sum(1)


def cosine(found: Tensor, wanted: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(found, wanted, dim=1)


def assert_matches(gradients: Gradients, model: nn.Module, loss: str, samples: int) -> None:
    """Compare both distances, and their gradients at inputs and labels."""
    shape = SHAPE if isinstance(next(model.children()), nn.Conv2d) else SHAPE[:1]
    given = batch(samples, shape)
    observed = targets_of(model)
    expected, wanted = joined(plain_gradients(model, loss, *given)), joined(observed)
    for distance, reference in [(L2(), l2), (Cosine(), cosine)]:
        found = distance.measure(gradients(*given, observed))
        value = reference(expected, wanted)
        torch.testing.assert_close(found, value)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), given),
            torch.autograd.grad(value.sum(), given, retain_graph=True),
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", LOSSES)
@given(
    layers=st.lists(convolutions, min_size=1, max_size=2),
    hidden=st.integers(1, 6),
    bias=st.booleans(),
    samples=st.integers(1, 3),
    gpu=st.booleans(),
)
def test_objectives_and_slopes_are_those_of_formed_gradients(
    way: Callable[..., Gradients],
    loss: str,
    layers: list[dict[str, object]],
    hidden: int,
    bias: bool,
    samples: int,
    gpu: bool,
):
    """With the kernels for a CPU, and with those for a GPU on the CPU."""
    try:
        model = network(layers, hidden, bias)
    except RuntimeError:  # the kernel is larger than what is left of the image
        return
    with pytest.MonkeyPatch.context() as patch:
        if gpu:
            patch.setattr(kernels, "on_cpu", lambda _: False)
        assert_matches(way(training_of(model, loss=loss)), model, loss, samples)


def test_dense_layers_on_many_positions_count_them_all():
    """A layer that maps rows of an image adds up over rows."""
    model = randomised(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 5)))
    inputs = torch.rand(VICTIMS, 2, 4, 2, dtype=torch.double)
    soft, observed = batch(2)[1], targets_of(model)
    pieces = LayerwiseGradients(training_of(model, (4, 2)))(inputs, soft, observed)
    expected = l2(joined(plain_gradients(model, "cross_entropy", inputs, soft)), joined(observed))
    torch.testing.assert_close(L2().measure(pieces), expected)


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
    gradients = choose_gradients(training_of(model, loss=loss))
    assert isinstance(gradients, LayerwiseGradients)
    assert_matches(gradients, model, loss, 3)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_batch_norm_of_clients_in_training_mode_is_that_of_torchs_training_mode(
    loss: str, affine: bool
):
    """The gradients and their derivatives depend on the statistics, which depend on all samples."""
    model = normalised(affine=affine)
    gradients = choose_gradients(training_of(run_by_clients(model, "training"), loss=loss))
    assert isinstance(gradients, VmappedGradients)
    assert_matches(gradients, model.train(), loss, 3)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training_mode_is_not_split(affine: bool):
    model = normalised(affine=affine).train()
    before = model[1].running_mean.clone()
    gradients = choose_gradients(training_of(model))
    assert isinstance(gradients, LoopedGradients)
    assert torch.equal(model[1].running_mean, before)


BOTTLENECK, BETA = 3, 0.7
NAMES = ["fc2+hidden=5", "lenet+width=2", "lenet128+width=2+hidden=5", "vgg_small+width=2+hidden=5"]


def penalised(name: str, shape: tuple[int, ...]) -> nn.Module:
    fields = f"precode={BOTTLENECK}+beta={BETA}+activation=tanh"
    return randomised(parse("model", f"{name}+{fields}").build(shape, CLASSES))


def explicit_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Differentiate one victim's cross-entropy and divergence, from the encoder's outputs."""
    statistics: list[Tensor] = []
    (encoder,) = (layer for name, layer in model.named_modules() if name.endswith("encoder"))
    hook = encoder.register_forward_hook(lambda *passed: statistics.append(passed[2]))
    entropy = functional.cross_entropy(model(inputs), targets)
    hook.remove()
    means, values = statistics[0].split(BOTTLENECK, 1)
    divergence = kl_divergence(Normal(means, functional.softplus(values)), Normal(0.0, 1.0))
    loss = entropy + BETA * divergence.sum(1).mean()
    return torch.autograd.grad(loss, list(model.parameters()), create_graph=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_penalties_of_layers_are_differentiated_as_a_term_of_the_loss(
    name: str, way: Callable[..., Gradients]
):
    shape = (2, 16, 16)
    model, given = penalised(name, shape).requires_grad_(), batch(3, shape)
    rows = [explicit_gradients(model, *victim) for victim in zip(*given, strict=True)]
    names = [key for key, _ in model.named_parameters()]
    expected = dict(zip(names, map(torch.stack, zip(*rows, strict=True)), strict=True))
    observed = {key: 0.1 * torch.ones_like(value) for key, value in expected.items()}
    pieces = way(training_of(model, shape))(*given, observed)
    torch.testing.assert_close({one.name: one.formed().gradient for one in pieces}, expected)
    reference = sum((expected[key] - observed[key]).square().sum() for key in names)
    torch.testing.assert_close(
        torch.autograd.grad(L2().measure(pieces).sum(), given),
        torch.autograd.grad(reference, given),
    )


@pytest.mark.parametrize("name", [*NAMES, "resnet18+width=2", "resnet20"])
def test_networks_with_a_variational_block_are_split_by_layers(name: str):
    training = training_of(penalised(name, (2, 32, 32)), (2, 32, 32))
    assert isinstance(choose_gradients(training), LayerwiseGradients)
