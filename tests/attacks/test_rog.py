"""Reconstruction from obfuscated gradients, on clients whose truth is at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.private import Private
from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.metrics.reconstruction.assignment import assign_samples, gather
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
CLIENT = "fedsgd+victims=2+batch_size=2+labels=unique"


def errors(found: np.ndarray, truth: Private) -> np.ndarray:
    placed = gather(found, assign_samples(truth.inputs, found), 0)
    return ((placed - truth.inputs) ** 2).mean((2, 3, 4))


def test_images_are_found_in_codes(make_case: Make) -> None:
    """A code is an image of 2 x 2 here: more than one grey for all."""
    attack = parse("attack", "rog+iterations=300")
    observation, truth = make_case(attack, client=CLIENT)
    blind = errors(np.full_like(truth.inputs, truth.inputs.mean()), truth)
    assert errors(attack.reconstruct(observation).inputs, truth).mean() < 0.6 * blind.mean()


def test_images_are_found_without_codes(make_case: Make) -> None:
    attack = parse("attack", "rog+iterations=500+code=pixels+labels=known")
    observation, truth = make_case(attack, client=CLIENT, model="lenet")
    assert errors(attack.reconstruct(observation).inputs, truth).mean() < 1e-3


def test_total_variation_makes_images_smooth(make_case: Make) -> None:
    rough, smooth = (
        parse("attack", f"rog+iterations=60+code=pixels+labels=known{tv}") for tv in ("", "+tv=100")
    )
    observation, _ = make_case(rough, client=CLIENT, model="lenet")
    variation = [
        np.abs(np.diff(attack.reconstruct(observation).inputs)).mean() for attack in (rough, smooth)
    ]
    assert variation[1] < 0.5 * variation[0]


def test_signs_are_matched_and_contrast_is_filled(make_case: Make) -> None:
    attack = parse(
        "attack",
        "rog+iterations=300+code=pixels+labels=known+distance=signs~gain=10000+finish=equalized",
    )
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
