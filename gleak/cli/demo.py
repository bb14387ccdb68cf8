"""Command ``gleak demo``: a batch of photographs recovered from one gradient."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gleak.api.attacking import AttackResult, attack
from gleak.api.client_update import defend
from gleak.api.scoring import Scores, score
from gleak.artifacts.atomic import atomic
from gleak.cli.catalog import align
from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.data.bundled import central_squares
from gleak.figures.canvas.image_grid import Tile, TileRow, draw_grid
from gleak.figures.canvas.style import DOTS_PER_INCH, theme
from gleak.metrics.reconstruction.assignment import UNASSIGNED
from gleak.metrics.reconstruction.pixel_similarity import PSNR_CAP
from gleak.runtime.seeding import drawing_from

PHOTOGRAPHS = ("astronaut", "cat", "coffee", "flower", "motorcycle", "retina", "rocket", "temple")
MODEL = "fc2"
TRAIN = "photos+size={size}+crops=8"
"""Dataset whose mean training image is the blind control."""
SIZES = range(8, 226)
BRIGHTEST = 255


def add_demo(command: ArgumentParser) -> None:
    text = "spec of the attack; default spear"
    command.add_argument("--attack", default="spear", metavar="SPEC", help=text)
    text = "spec of the defence; default none"
    command.add_argument("--defense", default="none", metavar="SPEC", help=text)
    text = "side of the photographs; default 224"
    command.add_argument("--size", type=int, default=224, metavar="PX", help=text)
    text, output = "default ./demo.png", Path("demo.png")
    command.add_argument("--output", type=Path, default=output, metavar="PNG", help=text)


def run_demo(arguments: Namespace) -> int:
    outcome = attack_photographs(arguments.attack, arguments.size, defense=arguments.defense)
    outcome.draw(arguments.output)
    print(f"{outcome}\n\n{arguments.output.resolve()}")
    return 0


@dataclass(frozen=True)
class Outcome:
    """Attack on a client of distributed SGD in the first round of training.

    Args:
        inputs: the client's batch, values in [0, 1]; Shape (N, 3, size, size).
        gradients: what the server receives, in the order of the network's parameters.
        defense: spec of the client's defence.
        result: what the attack recovered.
        scores: its metrics against the photographs.
        blind: metrics of the blind control.
    """

    inputs: Tensor
    gradients: tuple[Tensor, ...]
    defense: str
    result: AttackResult
    scores: Scores
    blind: Scores

    @property
    def images(self) -> list[np.ndarray | None]:
        """The recovered images in the order of the photographs; None where there is none."""
        return [
            None if place == UNASSIGNED else self.result.inputs[place].numpy()
            for place in self.scores.assignment
        ]

    @property
    def exact_values(self) -> int:
        """Number of 8-bit values of the photographs that are recovered without error."""
        pairs = zip(self.inputs.numpy(), self.images, strict=True)
        return sum(
            int((in_8_bits(truth) == in_8_bits(image)).sum())
            for truth, image in pairs
            if image is not None
        )

    @property
    def title(self) -> str:
        """The batch, the attack and its cost."""
        side, values = self.inputs.shape[-1], sum(gradient.numel() for gradient in self.gradients)
        return (
            f"{len(PHOTOGRAPHS)} photographs of {side} x {side} pixels, and what the attack "
            f"{self.result.spec} recovers from one gradient of the batch\n"
            f"(defence {self.defense}; {values:,} values; "
            f"{self.result.cost['cpu_seconds']:.0f} CPU-seconds)"
        )

    def draw(self, output: Path) -> None:
        """Draw the photographs above what was recovered, with the PSNR of each."""
        truths = zip(PHOTOGRAPHS, self.inputs.numpy(), strict=True)
        recovered = zip(self.images, self._psnr(), strict=True)
        rows = [
            TileRow("photographs\nof the client", [Tile(image, name) for name, image in truths]),
            TileRow(
                "recovered from\nthe gradient",
                [
                    Tile(image, below=f"{own} dB\nblind: {blind} dB")
                    for image, (own, blind) in recovered
                ],
            ),
        ]
        with theme(), atomic(output, private=True) as temporary:
            figure = draw_grid(rows)
            figure.text(0.5, 1.02, self.title.replace("\n", " "), ha="center", va="bottom")
            figure.savefig(temporary, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")

    def _psnr(self) -> list[tuple[str, str]]:
        """Return the PSNR of each photograph in dB: of the attack and of the blind control."""
        columns = (scores.samples["psnr"] for scores in (self.scores, self.blind))
        return [(f"{own:.1f}", f"{blind:.1f}") for own, blind in zip(*columns, strict=True)]

    def __str__(self) -> str:
        rows = [
            {"photograph": name, "PSNR (dB)": own, "blind (dB)": blind}
            for name, (own, blind) in zip(PHOTOGRAPHS, self._psnr(), strict=True)
        ]
        explanation = (
            f"The attack reads only the gradient and the network, {MODEL} as initialised.\n"
            f"Recovered exactly: {self.exact_values:,} of {self.inputs.numel():,} 8-bit "
            f"values. PSNR is capped at {PSNR_CAP:.0f} dB.\n"
            "Blind: the mean training image, a guess without the gradient."
        )
        return "\n\n".join([self.title, align(rows), explanation])


def in_8_bits(image: np.ndarray) -> np.ndarray:
    """Round intensities in [0, 1] to the levels of 8-bit images."""
    return np.rint(image * BRIGHTEST)


def attack_photographs(spec: str, size: int, *, defense: str = "none", seed: int = 0) -> Outcome:
    """Attack the gradient of a batch of photographs, whose sides have ``size`` pixels.

    The attack reads the gradient and the network alone. The blind control is the mean of training
    images of the same photographs.
    """
    if size not in SIZES:
        raise SpecError(f"--size {size}: use {SIZES[0]} to {SIZES[-1]} pixels")
    inputs = torch.from_numpy(central_squares(PHOTOGRAPHS, size)).float() / BRIGHTEST
    shape, classes = tuple(inputs.shape[1:]), len(PHOTOGRAPHS)
    with drawing_from(torch.Generator().manual_seed(seed)):
        model = parse("model", MODEL).build(shape, classes)
    # Each photograph is of a class of its own.
    loss = functional.cross_entropy(model(inputs), torch.arange(classes))
    plain = torch.autograd.grad(loss, list(model.parameters()))
    gradients = defend(defense, plain, seed=seed)
    seen: dict[str, Any] = {"shape": shape, "batch_size": len(inputs), "seed": seed}
    result = attack(spec, model, gradients, **seen)
    train = parse("dataset", TRAIN.format(size=size)).load(Path(), seed)
    mean = {"mean_input": torch.from_numpy(train.samples("train").mean(0))}
    blind = score(attack("blind", model, gradients, grants=mean, **seen), inputs)
    return Outcome(inputs, gradients, defense, result, score(result, inputs), blind)
