from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.knowledge.biggan import ATTENTION_REDUCTION, CODE, IMAGE, BigGAN, attention
from gleak.knowledge.loading import load_knowledge
from gleak.knowledge.networks import BigGANDeep, SelfAttention, StoredNormalisation
from gleak.knowledge.train_knowledge import train_knowledge

CLASSES = 3
TINY = BigGAN(weights="own.bin", width=4)


@cache
def build() -> BigGANDeep:
    """Build a network with random parameters, statistics and attention, after power iterations."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TINY.build(IMAGE, CLASSES)
        for part in network.modules():
            if isinstance(part, StoredNormalisation):
                part.running_means.normal_(0, 0.1)
                part.running_vars.uniform_(0.5, 2)
            if isinstance(part, SelfAttention):
                part.gamma.data.fill_(0.7)
    with torch.no_grad():
        for _ in range(8):
            network.train().generate(*drawn(1))
    return network.eval()


def drawn(count: int = 2) -> tuple[Tensor, Tensor]:
    codes = torch.randn(count, CODE, generator=torch.Generator().manual_seed(1))
    return codes, torch.arange(count) % CLASSES


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes ``knowledge.h5`` from tensors in a file in torch's folder."""
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def make(**changes: Tensor) -> Path:
        torch.save({**build().state_dict(), **changes}, folder / TINY.weights)
        Dataset(
            spec="large",
            train_inputs=np.zeros((0, *IMAGE), np.uint8),
            train_labels=np.zeros(0, int),
            test_inputs=np.zeros((CLASSES, *IMAGE), np.uint8),
            test_labels=np.arange(CLASSES),
            class_names=np.array(list("abc")),
        ).write(tmp_path / "dataset.h5")
        output = tmp_path / "knowledge.h5"
        train_knowledge(TINY, tmp_path / "dataset.h5", output, seed=1, device="cpu")
        return output

    return make


def test_costs_are_those_of_the_network(count_multiply_adds: Callable[..., int]) -> None:
    """Brock et al. (2019), Table 1: 50.4 million parameters at 128 x 128."""
    assert BigGAN().parameters(IMAGE, 1000) == pytest.approx(50.4e6, rel=0.01)
    network = TINY.build(IMAGE, CLASSES)
    assert TINY.multiply_adds(IMAGE, CLASSES) == count_multiply_adds(network, *drawn(1))
    counted = sum(part.numel() for part in network.parameters())
    assert TINY.parameters(IMAGE, CLASSES) == counted


def test_tensors_have_the_names_and_shapes_of_published_files() -> None:
    """At the paper's width, on the meta device."""
    with torch.device("meta"):
        state = BigGAN().build(IMAGE, 1000).state_dict()
    shapes = {
        "embeddings.weight": (128, 1000),
        "generator.gen_z.weight_orig": (16 * 16 * 128, 256),
        "generator.gen_z.bias": (16 * 16 * 128,),
        "generator.layers.0.bn_0.running_means": (51, 2048),
        "generator.layers.0.bn_0.scale.weight_orig": (2048, 256),
        "generator.layers.0.bn_3.offset.weight_u": (512,),
        "generator.layers.3.conv_3.weight_orig": (1024, 512, 1, 1),
        "generator.layers.8.gamma": (1,),
        "generator.layers.8.snconv1x1_g.weight_orig": (128, 256, 1, 1),
        "generator.layers.10.conv_3.weight_orig": (128, 64, 1, 1),
        "generator.bn.weight": (128,),
        "generator.conv_to_rgb.weight_orig": (128, 128, 3, 3),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    normalisations, convolutions = 40 * (2 + 2 * 3), 40 * 4
    attending, ends = 1 + 4 * 3, 1 + 4 + 4 + 4
    assert len(state) == normalisations + convolutions + attending + ends


def test_images_follow_from_code_and_class_each_for_itself() -> None:
    network, (codes, labels) = build(), drawn(3)
    with torch.no_grad():
        images = network.generate(codes, labels)
        alone = network.generate(codes[1:2], labels[1:2])
        others = network.generate(codes, (labels + 1) % CLASSES)
        moved = network.generate(codes + 0.1, labels)
    assert images.shape == (3, *IMAGE)
    assert 0 <= images.min() <= images.max() <= 1
    torch.testing.assert_close(alone[0], images[1], rtol=1e-4, atol=1e-5)
    for different in (others, moved):
        assert ((different - images).abs().amax((1, 2, 3)) > 1e-4).all()


def test_attention_is_that_of_the_library() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = SelfAttention(attention(16)).eval()
    layer.gamma.data.fill_(1.0)
    features = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = layer(features, torch.zeros(0))
        queries = layer.snconv1x1_theta(features).flatten(2).mT
        keys, values = (
            functional.max_pool2d(part(features), 2).flatten(2).mT
            for part in (layer.snconv1x1_phi, layer.snconv1x1_g)
        )
        gathered = functional.scaled_dot_product_attention(queries, keys, values, scale=1.0)
        expected = features + layer.snconv1x1_o_conv(gathered.mT.unflatten(2, (8, 8)))
    assert queries.shape[2] == 16 // ATTENTION_REDUCTION
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("truncation", "row"), [(0.4, 20), (1.0, 50), (0.013, 1)])
def test_statistics_are_those_nearest_to_the_truncation(truncation: float, row: int) -> None:
    layer = StoredNormalisation(2, truncation)
    layer.running_means[row] = 5.0
    assert layer.normalised(torch.full((1, 2, 3, 3), 5.0)).abs().max() < 1e-6


@pytest.mark.slow
def test_a_files_weights_are_what_attacks_are_given(convert: Callable[..., Path]) -> None:
    path = convert()
    stored = Knowledge.read(path)
    assert stored.knowledge == str(TINY)
    assert not len(stored.loss_step) and not stored.losses
    name, network = load_knowledge(path, IMAGE)
    assert name == "biggan"
    with torch.no_grad():
        assert torch.equal(network.generate(*drawn()), build().generate(*drawn()))


def test_a_file_of_another_network_is_refused_with_its_key(convert: Callable[..., Path]) -> None:
    fault = r"embeddings\.weight has shape \(128, 1000\), but in the network it has \(128, 3\)"
    with pytest.raises(ArtifactError, match=rf"own\.bin: .*{fault}"):
        convert(**{"embeddings.weight": torch.zeros(CODE, 1000)})


def test_other_images_and_other_folders_are_refused_and_rogs_takes_it() -> None:
    with pytest.raises(IncompatibleError, match=r"of shape \(3, 128, 128\), not \(3, 64, 64\)"):
        BigGAN().check_shape((3, 64, 64))
    with pytest.raises(SpecError, match="weights"):
        parse("knowledge", "biggan+weights=..")
    spec = parse("attack", "rogs+generator=biggan~truncation=0.5")
    assert [known.name for known in spec.knowledge] == ["biggan"]
    spec.check_knowledge(parse("dataset", "imagenet+size=128"), parse("client", "fedsgd"))
