from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import parse
from gleak.training.base import test_accuracy as accuracy

Save = Callable[..., Path]
State = dict[str, Tensor]
LAST = ("7.weight", "7.bias")


def lenet(classes: int = 4, width: int = 4) -> nn.Module:
    return parse("model", f"lenet+width={width}").build((3, 8, 8), classes)


def load(network: nn.Module, dataset: Dataset, name: str = "own.pth", seed: int = 3) -> list[float]:
    training = parse("training", f"pretrained+weights={name}")
    return training.train(network, dataset, seed).test_accuracy


def without(state: State, name: str) -> State:
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize("counters", [True, False])
def test_parameters_and_buffers_are_those_of_the_file(
    save: Save, images: Dataset, counters: bool
) -> None:
    """Without counters of batches, as in older files, and in half precision, too."""
    theirs, ours = (parse("model", "resnet20").build(images.shape, 4) for _ in range(2))
    theirs(torch.rand(8, 3, 8, 8))
    state = theirs.state_dict()
    if not counters:
        state = {name: state[name].half() for name in state if "_batches_tracked" not in name}
        assert len(state) < len(theirs.state_dict())
    save(state)
    assert load(ours, images) == accuracy(ours, images)
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in state.items())


def test_the_last_layer_of_other_classes_stays_as_initialised(
    save: Save, images: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    state = lenet(classes=9).state_dict()
    save(state)
    first, other, untrained = (lenet() for _ in range(3))
    for network, seed in ((first, 3), (other, 4)):
        load(network, images, seed=seed)
    parse("training", "untrained").train(untrained, images, 3)
    assert torch.equal(first.get_parameter("0.weight"), state["0.weight"])
    for name in LAST:
        same, initial, another = (n.get_parameter(name) for n in (first, untrained, other))
        assert torch.equal(same, initial)
        assert not torch.equal(same, another)
    assert "layer 7 keeps its random initialisation: it has 9 outputs in the file and 4" in (
        caplog.text
    )


FAULTS: dict[str, tuple[Callable[[State], State], str]] = {
    "shape": (lambda s: s | {"2.weight": torch.zeros(4, 4, 3, 3)}, r"2\.weight .* \(4, 4, 3, 3\)"),
    "other features before the last layer": (
        lambda s: s | {"7.weight": torch.zeros(9, 99)},
        r"7\.weight has shape \(9, 99\), but in the network it has \(4, 16\)",
    ),
    "half of the last layer": (
        lambda s: s | {"7.weight": torch.zeros(9, 16)},
        r"7\.weight has .*9",
    ),
    "missing": (lambda s: without(s, "4.bias"), r"4\.bias has shape None"),
    "no last layer": (lambda s: without(without(s, LAST[0]), LAST[1]), r"7\.weight has shape None"),
    "unknown": (lambda s: s | {"9.weight": torch.zeros(2)}, r"9\.weight .* it has None"),
    "not finite": (
        lambda s: s | {"0.bias": torch.tensor([0, 1, torch.nan, 2])},
        r"0\.bias contains values that are NaN",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_of_another_network_is_refused_with_its_key(
    saved: Path, save: Save, images: Dataset, fault: str
) -> None:
    change, message = FAULTS[fault]
    save(change(torch.load(saved, weights_only=True)))
    network = lenet()
    with pytest.raises(ArtifactError, match=message) as raised:
        load(network, images)
    assert str(raised.value).startswith(f"{saved}: ")


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


CONTENTS: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-300]),
    "more than tensors": lambda path: torch.save({"epoch": 3, "state_dict": {}}, path),
    "a network": lambda path: torch.save(lenet(), path),
    "code": lambda path: torch.save(Touch(path.with_name("sprung")), path),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_what_holds_more_or_less_than_tensors_is_refused_and_no_code_is_run(
    saved: Path, images: Dataset, content: str
) -> None:
    CONTENTS[content](saved)
    with pytest.raises(ArtifactError, match=r"own\.pth: (truncated, or|not a mapping)"):
        load(lenet(), images)
    assert not saved.with_name("sprung").exists()


@pytest.mark.parametrize("named", ["right", "wrong", "not"])
def test_the_digest_is_logged_and_compared_with_the_name(
    saved: Path, images: Dataset, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    name = {"right": f"lenet-{digest[:8]}.pth", "wrong": "lenet-0123abcd.pth", "not": "own.pth"}
    path = saved.rename(saved.with_name(name[named]))
    refused = pytest.raises(ArtifactError, match=rf"SHA-256 is {digest}, but .* 0123abcd;")
    with caplog.at_level(logging.INFO), refused if named == "wrong" else nullcontext():
        load(lenet(), images, path.name)
    assert f"{path}: sha256 {digest}" in caplog.text


@pytest.mark.parametrize(
    ("model", "weights", "fits"),
    [
        ("vgg16", "vgg16-397923af.pth", True),
        ("resnet50", "resnet50", True),
        ("resnet50", "vgg16-397923af.pth", False),
        ("resnet18", "resnet34-b627a593.pth", False),
        ("resnet50", "mine.pth", True),
    ],
)
def test_weights_of_another_network_are_refused_from_the_specs(
    model: str, weights: str, fits: bool
) -> None:
    network = weights.partition("-")[0]
    refused = pytest.raises(IncompatibleError, match=rf"torchvision's {network}.*weights={model}")
    with nullcontext() if fits else refused:
        parse("training", f"pretrained+weights={weights}").check_model(parse("model", model))
