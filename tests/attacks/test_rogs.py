from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.attacks.rog import ROG, ROGS
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import parse
from gleak.observation import Observation

Look = Callable[..., Observation]
CLIENT = "fedsgd+batch_size=2+victims=3"
SHORT = "rogs+iterations=5+generator_iterations=150+lpips=0"


@pytest.fixture
def seen(simulate: Callable[..., Path], look: Look) -> Observation:
    return look(simulate(client=CLIENT), parse("attack", SHORT))


def coarse(seen: Observation) -> np.ndarray:
    return ROG(iterations=5).reconstruct(seen).inputs


def test_images_like_those_of_rog_are_generated(seen: Observation) -> None:
    """Closer to them than the codes that the search began with, and of their labels."""
    found, like = parse("attack", SHORT).reconstruct(seen), coarse(seen)
    first, last = (np.square(found.snapshots[:, moment] - like).mean() for moment in (0, -1))
    assert last < 0.5 * first
    assert np.array_equal(found.labels, ROG(iterations=5).reconstruct(seen).labels)
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


def test_known_labels_are_those_that_are_generated(
    simulate: Callable[..., Path], look: Look
) -> None:
    spec = parse("attack", f"{SHORT}+labels=known")
    seen = look(simulate(client=CLIENT), spec)
    assert np.array_equal(spec.reconstruct(seen).labels, seen.granted["labels"])


def test_codes_are_drawn_apart_from_what_rog_began_with(
    seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def note(seed: int, *words: object) -> torch.Generator:
        seeds.append(seed)
        return torch.Generator().manual_seed(0)

    monkeypatch.setattr("gleak.matching.engine.torch_stream", note)
    parse("attack", "rogs+iterations=1+generator_iterations=1+lpips=0").reconstruct(seen)
    assert len(set(seeds)) == 2


def test_without_weights_the_perceptual_term_stops_before_any_search(
    seen: Observation, no_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ROG, "reconstruct", lambda *_: pytest.fail("a search was begun"))
    with pytest.raises(ArtifactError, match="is missing; fetch it with"):
        parse("attack", "rogs").reconstruct(seen)


def test_a_generator_of_other_classes_is_refused(seen: Observation) -> None:
    with pytest.raises(
        IncompatibleError, match="its generator has 4 classes, but the victims' data have 7"
    ):
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


def test_it_is_told_as_two_searches() -> None:
    said = ROGS().traits()
    assert said.losses == ("l2", "norm and LPIPS of images")
    assert ROGS(lpips=0).traits().losses[1] == "norm of images"
    assert said.labels == ROG().traits().labels
