from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.matching.starts import NoisyStart
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse

COLOURS = {
    "dark": (0.0, 0.0, 0.0),
    "light": (1.0, 1.0, 1.0),
    "grey": (0.5, 0.5, 0.5),
    "red": (1.0, 0.0, 0.0),
    "green": (0.0, 1.0, 0.0),
    "blue": (0.0, 0.0, 1.0),
}
RGB = ("red", "green", "blue")
NAMES = sorted(load("start"))
NOISY = sorted(name for name, cls in load("start").items() if issubclass(cls, NoisyStart))
SHAPES = [(2, 3, 8, 8), (1, 1, 7, 5), (3, 13)]


@dataclass
class Samples:
    """The properties of a dataset that starts use."""

    modality: str
    shape: tuple[int, ...]
    sizes: Mapping[str, int] | None = None

    def __str__(self) -> str:
        return "samples"


def dataset_of(shape: tuple[int, ...]) -> Samples:
    return Samples("image" if len(shape) == 4 else "tabular", shape[1:])


def granted(shape: tuple[int, ...]) -> dict[str, Tensor]:
    """Draw samples of the classes of a victim."""
    return {"class_sample": torch.rand(shape, generator=stream(9))}


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name in NAMES for shape in SHAPES if name not in RGB or shape[1] == 3],
)
def test_starts_have_the_samples_shape_and_follow_the_stream(name: str, shape: tuple[int, ...]):
    start = parse("start", name)
    first, again, other = (start.draw(shape, stream(seed), granted(shape)) for seed in (0, 0, 1))
    assert first.shape == shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 20))
def test_a_patterned_image_repeats_its_corner(tiles: int, height: int, width: int):
    image = parse("start", f"patterned+tiles={tiles}").draw((2, 3, height, width), stream(), {})
    down, across = math.ceil(height / tiles), math.ceil(width / tiles)
    repeated = image[..., torch.arange(height) % down, :][..., torch.arange(width) % across]
    assert torch.equal(image, repeated)
    assert len(image[0].unique()) == 3 * down * across


@given(st.integers(1, 4), st.integers(1, 40))
def test_a_patterned_row_repeats_its_beginning(tiles: int, columns: int):
    rows = parse("start", f"patterned+tiles={tiles}").draw((2, columns), stream(), {})
    period = math.ceil(columns / tiles**2)
    assert torch.equal(rows, rows[:, torch.arange(columns) % period])
    assert len(rows.unique()) == 2 * period


def test_samples_of_a_batch_differ():
    """Even where the setting grants the same sample for both."""
    same = {"class_sample": torch.rand(3, 8, 8, generator=stream()).expand(2, 3, 8, 8)}
    for name in NAMES:
        first, second = parse("start", name).draw((2, 3, 8, 8), stream(), same)
        assert not torch.equal(first, second)


def test_normal_and_uniform_values_are_those_of_torch():
    normal, natural, uniform = (
        parse("start", name).draw((3, 9), stream(), {}) for name in ("normal", "natural", "uniform")
    )
    assert torch.equal(normal, torch.randn(3, 9, generator=stream()))
    assert torch.equal(uniform, torch.rand(3, 9, generator=stream()))
    torch.testing.assert_close(natural, 0.47 + 0.24 * normal)


@given(st.sampled_from(NOISY), st.floats(0, 1), st.integers(0, 100))
def test_noise_moves_values_by_its_share_and_not_out_of_the_box(name: str, noise: float, seed: int):
    """Full noise is the uniform start itself."""
    shape = (2, 3, 4, 4)
    start = load("start")[name](noise=noise)
    values = start.draw(shape, stream(seed), granted(shape))
    clean = load("start")[name](noise=0.0).draw(shape, stream(seed), granted(shape))
    uniform = parse("start", "uniform").draw(shape, stream(seed), {})
    assert 0 <= values.min() <= values.max() <= 1
    torch.testing.assert_close(values, clean.lerp(uniform, noise))


@pytest.mark.parametrize("name", COLOURS)
def test_solid_colours_lie_beside_their_colour(name: str):
    colour = torch.tensor(COLOURS[name])[:, None, None]
    exact = parse("start", f"{name}+noise=0")
    assert torch.equal(exact.draw((2, 3, 4, 5), stream(), {}), colour.expand(2, 3, 4, 5).float())
    for shape in SHAPES if name not in RGB else ():
        exact.check(dataset_of(shape))
        assert torch.equal(exact.draw(shape, stream(), {}), torch.full(shape, COLOURS[name][0]))
    assert not exact.grants


@pytest.mark.parametrize("name", RGB)
def test_colours_need_three_channels(name: str):
    start = parse("start", name)
    start.check(dataset_of((1, 3, 8, 8)))
    shapes = {"images of 1 channel": (1, 1, 8, 8), "images of 4 channel": (1, 4, 8, 8)}
    for held, shape in {**shapes, "a table": (1, 3)}.items():
        fault = f"start {name} needs images of 3 .*samples holds {held}"
        with pytest.raises(IncompatibleError, match=fault):
            start.check(dataset_of(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_optimal_starts_at_what_is_granted(shape: tuple[int, ...]):
    exact, near = (parse("start", f"optimal{noise}") for noise in ("+noise=0", ""))
    samples = granted(shape)
    assert near.grants == {"class_sample"}
    assert torch.equal(exact.draw(shape, stream(), samples), samples["class_sample"])
    off = near.draw(shape, stream(), samples) - samples["class_sample"]
    assert 0 < off.abs().max() <= 0.01


def test_optimal_needs_training_samples():
    start = parse("start", "optimal")
    for sizes in (None, {"train": 1, "test": 0}):
        start.check(Samples("image", (1, 8, 8), sizes))
    fault = r"class_sample.* samples has no training samples; use"
    with pytest.raises(IncompatibleError, match=fault):
        start.check(Samples("image", (1, 8, 8), {"train": 0, "test": 5}))
    with pytest.raises(IncompatibleError, match="grant class_sample is empty"):
        start.draw((2, 13), stream(), {"class_sample": torch.empty(0, 13)})
