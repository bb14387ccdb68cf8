"""Networks of every form through the public functions: they work, or are refused before work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gleak
from gleak.api import attacking
from gleak.core.errors import ArtifactError, GleakError, IncompatibleError, SpecError
from gleak.core.registry import load, parse
from gleak.testing.attack_contract import shortened
from tests.zoo import CLASSES, FORMS, NETWORKS, REFUSED, SHAPE, WRAPPED, Build

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

EVERY = NETWORKS | WRAPPED | REFUSED
UNUSUAL = [*(name for form in FORMS.values() for name in form), *WRAPPED, *REFUSED]
ATTACKS, DEFENSES = sorted(load("attack")), sorted(load("defense"))
SAMPLES = 2
EXACT = {1: ["aono"], 4: ["spear", "cpa_edges"]}
FOUND = 25
"""PSNR in dB from which samples were found; the mean of random pixels reaches 11."""
STATED = (ArtifactError, IncompatibleError, SpecError)
SHARE = 9
"""Of the pairs of a network of an unusual form and a method, one in so many is tried quickly."""


def is_slow(name: str, number: int) -> bool:
    return name not in UNUSUAL or (UNUSUAL.index(name) + number) % SHARE != 0


def pairs(methods: list[str], names: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, method, marks=[pytest.mark.slow] if is_slow(name, number) else [])
        for name in names
        for number, method in enumerate(methods)
    ]


def built(build: Build, samples: int = SAMPLES) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network in evaluation mode, and a batch in its precision with labels."""
    torch.manual_seed(0)
    network = build().eval()
    inputs = torch.rand(samples, *SHAPE, dtype=torch.float32).to(next(network.parameters()))
    return network, inputs, torch.arange(samples)


def gradients_of(network: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    loss = functional.cross_entropy(network(inputs.clone()), labels)
    found = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
    return dict(zip(trained, found, strict=True))


def zero_gradients(network: nn.Module) -> dict[str, Tensor]:
    """Of networks that cannot be differentiated."""
    return {name: torch.zeros_like(value) for name, value in network.named_parameters()}


@pytest.fixture
def grants() -> dict[str, Tensor]:
    drawn = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    return {
        "mean_input": drawn[0],
        "class_sample": drawn[:SAMPLES],
        "auxiliary_inputs": drawn,
        "auxiliary_labels": torch.arange(4),
    }


@pytest.fixture
def only_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors of an attack that has begun fail the test."""
    work = attacking.reconstruct

    def watched(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except GleakError as error:
            raise AssertionError(f"refused after work began: {error}") from error

    monkeypatch.setattr(attacking, "reconstruct", watched)


def attacked(spec: str, network: nn.Module, gradients: Any, granted: dict[str, Tensor]) -> Any:
    """Run an attack with a small budget, and what it needs of the grants."""
    short = shortened(parse("attack", spec))
    needed = {name: value for name, value in granted.items() if name in short.grants}
    known = {"labels": torch.arange(SAMPLES)} if "labels" in short.grants else {}
    options = {"batch_size": SAMPLES, "grants": needed, "device": "cpu", **known}
    return gleak.attack(short, network, gradients, SHAPE, **options)


def check_result(found: Any) -> None:
    assert found.inputs.shape[1:] == SHAPE
    assert found.inputs.dtype == torch.float32
    assert found.inputs.isfinite().all()
    assert len(found.labels) == len(found.inputs)


def gauged(
    network: nn.Module, gradients: dict[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, float]:
    """Measure a step along the gradients."""
    before = {key: value.clone() for key, value in network.state_dict().items()}
    after = {k: v - 0.1 * gradients[k] if k in gradients else v for k, v in before.items()}
    gauge = gleak.Gauge(network, SHAPE, batch_size=len(inputs), local_lr=0.1)
    return gauge(before, after, (inputs, labels))


def works_or_is_refused(compute: Callable[[], None], named: str) -> None:
    """A stated error names the method, or what of the network it does not support."""
    try:
        compute()
    except STATED as error:
        assert any(each in str(error) for each in (named, "model", "network", "layer"))


@pytest.mark.usefixtures("only_refused_before_work")
@pytest.mark.parametrize(
    ("name", "attack"), pairs([each for each in ATTACKS if each != "best"], EVERY)
)
def test_attacks(name: str, attack: str, grants: dict[str, Tensor]) -> None:
    network, inputs, labels = built(EVERY[name])
    refused = name in REFUSED
    gradients = zero_gradients(network) if refused else gradients_of(network, inputs, labels)
    works_or_is_refused(lambda: check_result(attacked(attack, network, gradients, grants)), attack)


@pytest.mark.usefixtures("only_refused_before_work")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in UNUSUAL else [pytest.mark.slow]) for n in NETWORKS]
)
def test_best(name: str) -> None:
    """It is refused only where gradients cannot be matched; labels may have no rule."""
    network, inputs, labels = built(NETWORKS[name])
    gradients = gradients_of(network, inputs, labels)
    if name in FORMS["no graph"]:
        with pytest.raises(IncompatibleError, match=r"body\.\d' .* computes without a graph"):
            attacked("best", network, gradients, {})
    else:
        check_result(attacked("best", network, gradients, {}))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in UNUSUAL else [pytest.mark.slow]) for n in EVERY]
)
def test_gauge(name: str) -> None:
    network, inputs, labels = built(EVERY[name])
    if name in REFUSED:
        with pytest.raises(IncompatibleError):
            gleak.Gauge(network, SHAPE, batch_size=SAMPLES, local_lr=0.1)
        return
    measured = gauged(network, gradients_of(network, inputs, labels), inputs, labels)
    assert np.isfinite([*measured.values()]).all()


@pytest.mark.slow
@pytest.mark.parametrize("samples", EXACT)
@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in FORMS["no graph"]])
def test_best_and_gauge_find_what_an_exact_attack_finds(name: str, samples: int) -> None:
    network, inputs, labels = built(NETWORKS[name], samples)
    gradients = gradients_of(network, inputs, labels)
    scores = {}
    for spec in EXACT[samples]:
        with suppress(IncompatibleError):
            found = gleak.attack(spec, network, gradients, SHAPE, batch_size=samples)
            scores[spec] = gleak.score(found, inputs)
    scores = {spec: each for spec, each in scores.items() if each["psnr"] >= FOUND}
    if not scores:
        return
    best = gleak.attack("best+budget=20", network, gradients, SHAPE, batch_size=samples)
    psnr = gleak.score(best, inputs)["psnr"]
    assert psnr >= max(each["psnr"] for each in scores.values()) - 1
    recovered = gauged(network, gradients, inputs, labels)["gleak-recovered"]
    assert recovered >= max(each["success_content"] for each in scores.values())


@pytest.mark.parametrize(("name", "defense"), pairs(DEFENSES, NETWORKS | WRAPPED))
def test_defenses(name: str, defense: str) -> None:
    """What is sent has the names, shapes and precision of the network's parameters."""
    network, inputs, labels = built((NETWORKS | WRAPPED)[name])
    trained = {key for key, value in network.named_parameters() if value.requires_grad}

    def check_sent(sent: dict[str, Tensor]) -> None:
        assert sent.keys() == trained
        for key, value in sent.items():
            parameter = network.get_parameter(key)
            assert (value.shape, value.dtype) == (parameter.shape, parameter.dtype)
            assert value.isfinite().all()

    spec = "secure_aggregation+clients=2" if defense == "secure_aggregation" else defense
    works_or_is_refused(
        lambda: check_sent(gleak.compute_update(network, inputs, labels, defense=spec)), defense
    )
    own = {k: v.detach() for k, v in network.named_parameters() if k in trained}
    works_or_is_refused(lambda: check_sent(gleak.defend(spec, own)), defense)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_of_torch_change_nothing(name: str) -> None:
    """Names are those of the given model; those of the network inside serve, too."""
    network, inputs, labels = built(WRAPPED[name])
    inner = network.module if hasattr(network, "module") else network._orig_mod
    sent = gleak.compute_update(network, inputs, labels)
    assert list(sent) == [key for key, _ in network.named_parameters()]
    plain = gleak.compute_update(inner, inputs, labels)
    for one, other in zip(sent.values(), plain.values(), strict=True):
        assert torch.equal(one, other)
    for given in (sent, plain, list(plain.values())):
        found = attacked("invertgrad", network, given, {})
        assert torch.equal(found.inputs, attacked("invertgrad", inner, plain, {}).inputs)
    crafted = gleak.craft("fishing+target=1", network, SHAPE).model
    assert type(crafted) is type(network)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("script", r"'1' \(RecursiveScriptModule\)|compiled by torch.jit"),
        ("trace", "compiled by torch.jit.*give the module from which"),
        ("inference mode", r"not for training \(Inference tensors .*under torch.inference_mode"),
    ],
)
def test_what_cannot_be_examined_is_refused_with_a_remedy(name: str, message: str) -> None:
    network, inputs, labels = built(REFUSED[name])
    with pytest.raises(IncompatibleError, match=message):
        gleak.compute_update(network, inputs, labels)


@pytest.fixture
def double_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


SINGLE = ["attention", "LSTM", "batch norm", "transposed convolution", "heads"]


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("attack", ["best", "invertgrad+start=patterned", "cpl", "cpa_fi"])
def test_a_double_default_changes_no_result(
    name: str, attack: str, request: pytest.FixtureRequest
) -> None:
    network, inputs, labels = built(NETWORKS[name])
    gradients = gradients_of(network, inputs, labels)
    found: list[Any] = []

    def run() -> None:
        found.append(attacked(attack, network, gradients, {}).inputs)

    works_or_is_refused(run, attack.partition("+")[0])
    request.getfixturevalue("double_default")
    works_or_is_refused(run, attack.partition("+")[0])
    assert not found or torch.equal(*found)


@pytest.mark.usefixtures("double_default")
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ["grouped convolution", "double, dense"])
def test_attacks_under_a_double_default(name: str, attack: str, grants: dict[str, Tensor]) -> None:
    network, inputs, labels = built(NETWORKS[name])
    network = network if "double" in name else network.float()
    gradients = gradients_of(network, inputs.to(next(network.parameters())), labels)
    works_or_is_refused(lambda: check_result(attacked(attack, network, gradients, grants)), attack)


@pytest.mark.parametrize("attack", ["dlg_adam", "cpl+restarts=0"])
def test_double_precision_searches_from_the_same_start(attack: str) -> None:
    network, inputs, labels = built(NETWORKS["group norm"])
    single = attacked(attack, network, gradients_of(network, inputs, labels), {})
    network, inputs = network.double(), inputs.double()
    double = attacked(attack, network, gradients_of(network, inputs, labels), {})
    torch.testing.assert_close(single.inputs, double.inputs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("attack", ["aono", "spear", "matrix_completion", "cpa", "cpa_noisy"])
@pytest.mark.parametrize("name", ["frozen first weight", "frozen first bias"])
@pytest.mark.usefixtures("only_refused_before_work")
def test_the_frozen_parameter_that_is_read_is_named(attack: str, name: str) -> None:
    network, inputs, labels = built(NETWORKS[name])
    gradients = gradients_of(network, inputs, labels)
    message = rf"attack {attack}.*reads the gradient of 1\.{name.split()[-1]}, which is frozen"
    with pytest.raises(IncompatibleError, match=message):
        attacked(attack, network, gradients, {})


def test_soteria_names_what_it_cannot_protect() -> None:
    for name, layer in {"frozen first weight": "1", "weight norm": "3"}.items():
        network, inputs, labels = built(NETWORKS[name])
        with pytest.raises(IncompatibleError, match=rf"soteria changes .* of {layer}\.weight"):
            gleak.compute_update(network, inputs, labels, defense="soteria")
    network, inputs, labels = built(NETWORKS["features without a graph"])
    with pytest.raises(IncompatibleError, match=r"'body\.0' \(Conv2d\) computes without a graph"):
        gleak.compute_update(network, inputs, labels, defense="soteria")


class Odd(nn.Module):
    """A dense network with a parameter or a value of some kind."""

    def __init__(self, **extra: Any) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
        for name, value in extra.items():
            setattr(self, name, value)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs)


COMPLEX = nn.Parameter(torch.zeros(2, dtype=torch.cfloat))


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({"w": COMPLEX}, IncompatibleError, "w is complex"),
        ({"stream": (_ for _ in ())}, SpecError, "cannot be copied .*generator"),
    ],
)
def test_networks_with_values_of_other_kinds(extra: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        gleak.compute_update(Odd(**extra), torch.rand(SAMPLES, *SHAPE), torch.arange(SAMPLES))


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_refused_by_the_parameter(register: str) -> None:
    network = Odd()
    getattr(network.dense[1].weight, register)(lambda gradient: 2 * gradient)
    with pytest.raises(IncompatibleError, match=r"hook .* parameter dense\.1\.weight.*remove"):
        gleak.compute_update(network, torch.rand(SAMPLES, *SHAPE), torch.arange(SAMPLES))


class AsDouble(nn.Module):
    """Conversion to double precision."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.double()


def test_a_network_of_two_precisions_is_computed_in_double() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), AsDouble(), nn.Linear(6, CLASSES))
    network[-1].double()
    inputs, labels = torch.rand(SAMPLES, *SHAPE), torch.arange(SAMPLES)
    sent = gleak.compute_update(network, inputs, labels)
    assert {value.dtype for value in sent.values()} == {torch.float64}
    check_result(attacked("invertgrad", network, gradients_of(network, inputs, labels), {}))
