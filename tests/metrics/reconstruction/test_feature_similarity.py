from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine
from torch import Tensor, nn

from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.knowledge.loading import load_knowledge
from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.reconstruction.feature_similarity import EmbeddingCosine, Jaccard, Lpips, shares
from gleak.metrics.reconstruction.pixel_similarity import LpipsOracleSign
from gleak.metrics.score import score
from gleak.metrics.score_table import read_scores
from gleak.runtime.hub_weights import DIGESTS, checkpoint_path
from gleak.runtime.perceptual import BACKBONES, Net, perceptual_network
from gleak.runtime.torchvision_ops import ensure_operators


def pair(channels: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    truth, estimate = np.random.default_rng(0).random((2, 1, 2, channels, side, side))
    return truth, estimate


@pytest.mark.usefixtures("random_weights")
def test_agrees_with_a_direct_call_and_with_the_formula_of_the_paper(make_comparison):
    truth, estimate = pair(3, 80)
    values = Lpips().measure(make_comparison(truth, estimate))
    images = [torch.tensor(batch[0]).float() for batch in (estimate, truth)]
    with torch.inference_mode():
        expected = perceptual_network()(*images, normalize=True).flatten()
        by_formula = lpips_of_features(perceptual_network(), *images)
    np.testing.assert_allclose(values[0], expected, rtol=1e-4)
    np.testing.assert_allclose(values[0], by_formula, rtol=1e-4)


@pytest.mark.usefixtures("random_weights")
def test_grey_images_are_repeated_to_three_channels(make_comparison):
    truth, estimate = pair(1, 70)
    grey = Lpips().measure(make_comparison(truth, estimate))
    colour = Lpips().measure(make_comparison(truth.repeat(3, axis=2), estimate.repeat(3, axis=2)))
    np.testing.assert_array_equal(grey, colour)


@pytest.mark.usefixtures("random_weights")
def test_small_images_are_enlarged_to_64_pixels(make_comparison):
    images = pair(3, 8)
    enlarged = [
        nn.functional.interpolate(torch.tensor(batch[0]), (64, 64), mode="bilinear").numpy()[None]
        for batch in images
    ]
    small, large = (Lpips().measure(make_comparison(*batches)) for batches in (images, enlarged))
    np.testing.assert_allclose(small, large, rtol=1e-4)


@pytest.mark.parametrize(
    ("net", "name"),
    [
        ("squeeze", "squeezenet1_1-b8a52dc0.pth"),
        ("alex", "alexnet-owt-7be5be79.pth"),
        ("vgg", "vgg16-397923af.pth"),
    ],
)
def test_missing_weights_are_never_replaced(
    make_comparison, no_weights: Path, net: Net, name: str
) -> None:
    with pytest.raises(MetricUnavailable, match=re.escape(str(no_weights))) as raised:
        Lpips(net=net).measure(make_comparison(*pair(3, 64)))
    assert str(raised.value).endswith(f"{name} is missing; download it with: gleak weights {name}")
    assert not no_weights.exists()
    assert BACKBONES[net].file == name in DIGESTS
    assert LpipsOracleSign(net=net).plain == Lpips(net=net)


def test_altered_weights_are_refused_before_they_are_parsed(
    random_weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_comparison,
) -> None:
    path = tmp_path / "hub" / "checkpoints" / random_weights.name
    path.parent.mkdir(parents=True)
    path.write_bytes(random_weights.read_bytes()[:-1])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("gleak.core.lazy.torch.load", lambda *_, **__: pytest.fail("it was parsed"))
    found, (expected,) = sha256(path.read_bytes()).hexdigest(), DIGESTS[path.name]
    with pytest.raises(MetricUnavailable) as raised:
        Lpips().measure(make_comparison(*pair(3, 64)))
    assert str(raised.value) == (
        f"{path}: altered or truncated: its SHA-256 is {found}, but should be {expected}; replace "
        f"it with: gleak weights {path.name}"
    )


def test_the_network_is_the_one_that_lpips_builds(random_weights: Path) -> None:
    """Its own loaders are called here, on a file that this test wrote."""
    import lpips

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = lpips.LPIPS(net="squeeze", verbose=False).state_dict()
    found = perceptual_network().state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def lpips_of_features(network: nn.Module, images: Tensor, others: Tensor) -> Tensor:
    """Zhang et al., equation 1: unit features, squared differences, linear weights, means."""
    differences: Tensor = torch.zeros(len(images))
    both = [network.net(network.scaling_layer(2 * batch - 1)) for batch in (images, others)]
    for layer, (one, other) in enumerate(zip(*both, strict=True)):
        units = [values / (values.norm(dim=1, keepdim=True) + 1e-10) for values in (one, other)]
        weighted = network.lins[layer].model[-1]((units[0] - units[1]) ** 2)
        differences = differences + weighted.mean(dim=(1, 2, 3))
    return differences


@pytest.mark.slow
@pytest.mark.parametrize(("net", "name"), [("alex", "alexnet"), ("vgg", "vgg16")])
def test_other_networks_are_read_from_their_own_files(
    make_comparison,
    net: Net,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published: Callable[[Path], None],
) -> None:
    """Dense layers, which LPIPS does not use, are zeros without storage, so the file is small."""
    ensure_operators()
    from torchvision import models

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda _: None)
    state = models.get_model(name, weights=None).state_dict()
    dense = {n: torch.zeros(()).expand(v.shape) for n, v in state.items() if "classifier" in n}
    path = checkpoint_path(BACKBONES[net].file)
    path.parent.mkdir(parents=True)
    torch.save({**state, **dense}, path)
    published(path)
    truth, estimate = pair(3, 64)
    values = Lpips(net=net).measure(make_comparison(truth, estimate))
    images = (torch.tensor(batch[0]).float() for batch in (estimate, truth))
    expected = lpips_of_features(perceptual_network(net), *images)
    np.testing.assert_allclose(values[0], expected.flatten(), rtol=1e-4)


@pytest.mark.usefixtures("random_weights")
def test_two_channels_are_refused(make_comparison):
    with pytest.raises(MetricUnavailable, match="2 channels"):
        Lpips().measure(make_comparison(*pair(2, 64)))


Make = Callable[..., Comparison]
TAGS = st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True)


@given(TAGS, TAGS)
def test_it_is_the_share_of_the_union_that_is_common(one: list[int], other: list[int]) -> None:
    expected = len({*one} & {*other}) / len({*one} | {*other})
    assert shares(np.array([one]), np.array([other])) == pytest.approx(expected)


def test_images_are_compared_by_what_the_tagger_sees(make_comparison: Make) -> None:
    """The stand-in sees the three brightest places: one, two or three of them are kept."""
    truth = np.zeros((1, 3, 1, 2, 3))
    truth[..., 0, :] = 1
    estimate = truth.copy()
    for sample, moved in ((1, 1), (2, 2)):
        estimate[0, sample, 0, 0, :moved] = 0
        estimate[0, sample, 0, 1, :moved] = 1
    found = Jaccard().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(found, [[3 / 3, 2 / 4, 1 / 5]])


def test_without_a_tagger_nothing_is_said(make_comparison: Make) -> None:
    images = np.zeros((1, 1, 1, 2, 3))
    comparison = replace(make_comparison(images, images), evaluators={})
    assert not Jaccard().applies(comparison)


@pytest.mark.usefixtures("no_weights")
def test_scores_are_by_the_file_of_the_tagger(
    images, learned: Callable[[str], Path], tmp_path: Path, columns, make_reconstruction
) -> None:
    tagger = learned("tagger")
    inputs = images.samples("test", slice(6)).reshape(2, 3, *images.shape)
    labels = np.zeros((2, 3), int)
    private = Private(inputs=inputs, labels=labels, indices=labels)
    found = make_reconstruction(inputs=1 - inputs, labels=labels)
    private.write(tmp_path / "private.h5")
    found.write(tmp_path / "reconstruction.h5")
    words = (tmp_path / "private.h5", tmp_path / "scores.csv", columns)
    score(*words, tmp_path / "reconstruction.h5", [Jaccard()])
    assert not len(read_scores([tmp_path / "scores.csv"]))
    table = score(*words, tmp_path / "reconstruction.h5", [Jaccard()], evaluators=[tagger])
    _, network = load_knowledge(tagger, images.shape)
    assert set(table["metric"]) == {"jaccard"}
    assert set(table["value"]) <= {0.0, 0.2, 0.5, 1.0}
    assert network.tags(torch.rand(2, *images.shape)).shape == (2, 3)
    known = images.samples("train", slice(6)).reshape(inputs.shape)
    replace(private, inputs=known).write(tmp_path / "private.h5")
    with pytest.raises(IncompatibleError, match=r"knowledge\.h5: trained on tiny, .* contains 6"):
        score(*words, None, evaluators=[tagger])


sizes = st.integers(1, 4)
COSINE = EmbeddingCosine()


def compared(truth: np.ndarray, found: np.ndarray) -> Any:
    """Comparison of one victim, as far as the metric reads it."""
    return SimpleNamespace(
        private=SimpleNamespace(embeddings=truth[None]),
        reconstruction=SimpleNamespace(embeddings=found[None]),
    )


@given(seed=st.integers(0, 2**32 - 1), samples=sizes, sources=sizes)
def test_no_other_assignment_has_a_greater_sum(seed: int, samples: int, sources: int):
    generator = np.random.default_rng(seed)
    truth, found = generator.normal(size=(samples, 5)), generator.normal(size=(sources, 5))
    (values,) = COSINE.measure(compared(truth, found))
    few, many = sorted([truth, found], key=len)
    sums = [
        sum(1 - cosine(one, many[other]) for one, other in zip(few, chosen, strict=True))
        for chosen in permutations(range(len(many)), len(few))
    ]
    assert np.nansum(values) == pytest.approx(max(sums))
    assert COSINE.matched(compared(truth, found)).sum() == min(samples, sources)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_neither_order_nor_scale_enters(seed: int, scale: float):
    generator = np.random.default_rng(seed)
    truth = generator.random((4, 6), dtype=np.float32)
    found = scale * truth[generator.permutation(4)]
    np.testing.assert_allclose(COSINE.measure(compared(truth, found)), 1, rtol=1e-6)


def test_the_wrong_sign_counts_as_wrong_and_zeros_as_nothing():
    truth = np.eye(2, 3)
    np.testing.assert_allclose(COSINE.measure(compared(truth[:1], -truth[:1])), -1)
    np.testing.assert_allclose(COSINE.measure(compared(truth, -truth)), 0)
    truth, found = np.array([[1.0, 1], [0, 0]]), np.array([[0.0, 0], [2, 2]])
    np.testing.assert_allclose(COSINE.measure(compared(truth, found)), [[1, 0]])


def test_embeddings_that_were_not_found_or_are_of_another_layer_are_not_compared():
    none = compared(np.ones((3, 2)), np.ones((0, 2)))
    assert COSINE.matched(none).tolist() == [[False] * 3]
    with pytest.raises(MetricUnavailable, match="4 numbers each, the reconstructed ones 3"):
        COSINE.measure(compared(np.ones((2, 4)), np.ones((2, 3))))
