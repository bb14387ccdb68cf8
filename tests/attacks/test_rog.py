"""Reconstruction from obfuscated gradients, for clients whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.observation import Observation
from gleak.attacks.rog import ROG
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

CLIENT = "fedsgd+victims=2+batch_size=2+labels=unique"


def test_images_are_found_in_codes(make_case: Make) -> None:
    """A code is an image of 2 x 2 here: more than one grey for all."""
    attack = parse("attack", "rog+iterations=300")
    observation, truth = make_case(attack, client=CLIENT)
    blind, found = np.full_like(truth.inputs, truth.inputs.mean()), attack.reconstruct(observation)
    assert psnr(truth.inputs, found.inputs).mean() > psnr(truth.inputs, blind).mean() + 2


@pytest.mark.slow
def test_images_are_found_without_codes(make_case: Make) -> None:
    attack = parse("attack", "rog+iterations=250+code=pixels+labels=known")
    observation, truth = make_case(attack, client=CLIENT, model="lenet")
    assert psnr(truth.inputs, attack.reconstruct(observation).inputs).mean() > 30


def test_signs_are_matched_and_contrast_is_filled(make_case: Make) -> None:
    signs = "distance=signs~gain=10000+finish=equalized"
    attack = parse("attack", f"rog+iterations=150+code=pixels+labels=known+{signs}")
    observation, _ = make_case(attack, client=CLIENT, model="lenet", defense="signsgd")
    found = attack.reconstruct(observation)
    assert (found.objective < 0.3).all()
    assert np.quantile(found.inputs, 0.9) > 0.85


class Halves(nn.Module):
    """Stands in for a codec: a code is the upper half of an image, shown twice."""

    def encode(self, images: Tensor) -> Tensor:
        return images[:, :, : images.shape[2] // 2].flatten(1)

    def decode(self, codes: Tensor) -> Tensor:
        upper = codes.unflatten(1, (3, 4, 8))
        return torch.cat([upper, upper], 2)


class Inverted(nn.Module):
    """Stands in for a postprocessor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(-1.0))

    def forward(self, images: Tensor) -> Tensor:
        return 1 + self.weight * images


def test_images_are_what_the_codec_decodes(make_case: Make) -> None:
    attack = parse("attack", "rog+iterations=3+codec=codec~size=96")
    observation, _ = make_case(attack, client=CLIENT)
    found = attack.reconstruct(replace(observation, knowledge={"codec": Halves()})).inputs
    np.testing.assert_array_equal(found[..., :4, :], found[..., 4:, :])
    assert found.std() > 0


@pytest.mark.parametrize("name", ["rog", "dlg", "invertgrad"])
def test_what_was_found_is_given_to_the_postprocessor(name: str, make_case: Make) -> None:
    plain = parse("attack", f"{name}+iterations=3")
    observation, _ = make_case(plain, client=CLIENT)
    attack = parse("attack", f"{name}+iterations=3+postprocessor=postprocessor")
    known = replace(observation, knowledge={"postprocessor": Inverted()})
    expected = 1 - plain.reconstruct(observation).inputs
    np.testing.assert_allclose(attack.reconstruct(known).inputs, expected, atol=1e-6)
    assert [spec.name for spec in attack.knowledge] == ["postprocessor"]


def test_images_have_one_code() -> None:
    with pytest.raises(SpecError, match="images have one code: leave out codec or code=pixels"):
        parse("attack", "rog+code=pixels+codec=codec")


SHORT = "rogs+iterations=5+generator_iterations=150+lpips=0"


@pytest.fixture
def seen(make_case: Make) -> Observation:
    return make_case(parse("attack", SHORT), client="fedsgd+batch_size=2+victims=3")[0]


def test_images_like_those_of_rog_are_generated(seen: Observation) -> None:
    """Closer to them than the codes that the search began with, and of their labels."""
    found, coarse = parse("attack", SHORT).reconstruct(seen), ROG(iterations=5).reconstruct(seen)
    like = coarse.inputs
    first, last = (np.square(found.snapshots[:, moment] - like).mean() for moment in (0, -1))
    assert last < 0.5 * first
    assert np.array_equal(found.labels, coarse.labels)
    norms = np.linalg.norm((found.inputs - like).reshape(3, 2, -1), axis=2).mean(1)
    np.testing.assert_allclose(found.objective, norms, rtol=1e-4)


def test_what_the_generator_cannot_make_is_not_found(seen: Observation) -> None:
    """A generator of one image gives that image, whatever the update says."""

    class Grey(torch.nn.Module):
        code_size, classes = 2, 4

        def generate(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return (0.25 + 0 * codes.sum(1))[:, None, None, None].expand(-1, 3, 8, 8)

    found = parse("attack", SHORT).reconstruct(replace(seen, knowledge={"generator": Grey()}))
    assert np.allclose(found.inputs, 0.25)


def test_codes_are_drawn_apart_from_what_rog_began_with(
    seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: set[int] = set()

    def note(seed: int, *words: object) -> torch.Generator:
        seeds.add(seed)
        return torch.Generator().manual_seed(0)

    monkeypatch.setattr("gleak.attacks.matching.engine.torch_stream", note)
    parse("attack", "rogs+iterations=1+generator_iterations=1+lpips=0").reconstruct(seen)
    assert len(seeds) == 2


def test_without_weights_the_perceptual_term_stops_before_any_search(
    seen: Observation, no_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ROG, "reconstruct", lambda *_: pytest.fail("a search was begun"))
    with pytest.raises(ArtifactError, match="is missing; download it with"):
        parse("attack", "rogs").reconstruct(seen)


def test_a_generator_of_other_classes_is_refused(seen: Observation) -> None:
    fault = "its generator has 4 classes, but the victims' data have 7"
    with pytest.raises(IncompatibleError, match=fault):
        parse("attack", SHORT).reconstruct(replace(seen, classes=7))


@pytest.mark.parametrize(
    ("text", "channels", "fault"),
    [
        ("rogs+l2=0+lpips=0", 3, "has no objective; give l2 or lpips a weight"),
        ("rogs", 2, r"takes 1 or 3 channels, but images of .* have 2; use lpips=0"),
    ],
)
def test_what_cannot_be_measured_is_refused(text: str, channels: int, fault: str) -> None:
    class Channels(type(parse("dataset", "photos"))):
        @property
        def shape(self) -> tuple[int, ...]:
            return (channels, 32, 32)

    others = parse("model", "lenet"), parse("client", "fedsgd")
    with pytest.raises(IncompatibleError, match=fault):
        parse("attack", text).check(Channels(), *others)
