from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.data.prepare import prepare_dataset
from gleak.knowledge.degradation import degrade
from gleak.knowledge.load import load_knowledge
from gleak.knowledge.postprocessor import Postprocessor
from gleak.knowledge.postprocessor_network import patch_discriminator
from gleak.knowledge.train import train_knowledge


@pytest.mark.parametrize(
    ("side", "deepest"), [(8, 4), (16, 4), (32, 4), (64, 4), (128, 8), (100, 7)]
)
def test_four_halvings_where_the_side_allows_them(side: int, deepest: int) -> None:
    plan = Postprocessor(width=2).plan((3, side, side))
    assert plan.sides[-1] == (deepest, deepest)
    assert len(plan.sides) <= 5


def test_before_training_images_stay_as_they_are() -> None:
    images = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(Postprocessor(width=2).build((3, 16, 16), 4)(images), images)


@pytest.mark.parametrize("side", [8, 16, 37, 128])
def test_the_discriminator_judges_patches(side: int) -> None:
    plan = Postprocessor(width=2).plan((1, side, side))
    judge = patch_discriminator(plan)
    logits = judge(torch.rand(2, 1, side, side))
    assert logits.shape[:2] == (2, 1)
    assert 4 <= min(logits.shape[2:]) <= max(logits.shape[2:]) <= max(4, side // 2)


def test_both_networks_learn_from_each_other() -> None:
    trainer = Postprocessor(width=4, lr=1e-3).trainer((1, 16, 16), 4)
    trainer.network.last.weight.data.normal_(0, 0.01)
    before = {name: value.clone() for name, value in trainer.named_parameters()}
    trainer.learn(torch.rand(4, 1, 16, 16), torch.arange(4), torch.Generator().manual_seed(0))
    still = {name for name, value in trainer.named_parameters() if torch.equal(value, before[name])}
    parts = {name.partition(".")[0] for name in before}
    assert parts == {"network", "discriminator"}
    assert all(name.endswith("bias") for name in still)  # those that a normalisation takes out


def test_degraded_digits_become_better(tmp_path: Path) -> None:
    digits = parse("dataset", "digits")
    prepare_dataset(digits, tmp_path, 0, tmp_path / "dataset.h5")
    output = tmp_path / "knowledge.h5"
    spec = Postprocessor(width=8, lr=2e-3, steps=80, blur=1.0)
    train_knowledge(spec, tmp_path / "dataset.h5", output, seed=0, device="cpu")
    _, network = load_knowledge(output, digits.shape)
    held_out = digits.load(tmp_path, 0).samples("test", slice(60))
    clear = torch.from_numpy(held_out)
    random = torch.Generator().manual_seed(0)
    coarse = degrade(clear, random, scale=4, noise=0.1, blur=1.0)
    with torch.no_grad():
        error = (network(coarse) - clear).abs().mean()
    assert error < 0.8 * (coarse - clear).abs().mean()


def test_images_too_small_are_refused() -> None:
    with pytest.raises(
        IncompatibleError, match=r"needs images of 8 pixels or more, not \(1, 7, 9\)"
    ):
        Postprocessor().check_shape((1, 7, 9))
    with pytest.raises(IncompatibleError, match="needs images of 12 pixels or more"):
        Postprocessor(scale=12).check_shape((1, 8, 8))
