"""Command ``gleak demo``: a batch of photographs recovered from one gradient."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
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

PHOTOGRAPHS = ("astronaut", "cat", "coffee", "flower", "motorcycle", "retina", "rocket", "temple")
MODEL = "fc2"
TRAIN = "photos+size={size}+crops=8"
"""Dataset whose mean training image is the blind control."""
SIZES = range(8, 226)
BRIGHTEST = 255


def add_demo(command: ArgumentParser) -> None:
    """Add the options of ``gleak demo``."""
    text = "spec of the attack; default spear"
    command.add_argument("--attack", default="spear", metavar="SPEC", help=text)
    text = "spec of the defence; default none"
    command.add_argument("--defense", default="none", metavar="SPEC", help=text)
    text = "side of the photographs; default 224"
    command.add_argument("--size", type=int, default=224, metavar="PX", help=text)
    output = Path("demo.png")
    command.add_argument(
        "--output", type=Path, default=output, metavar="PNG", help="default ./demo.png"
    )


def run_demo(arguments: Namespace) -> int:
    """Run ``gleak demo [--attack SPEC] [--defense SPEC] [--size PX] [--output PNG]``."""
    outcome = attack_photographs(arguments.attack, arguments.size, defense=arguments.defense)
    outcome.draw(arguments.output)
    print(f"{outcome}\n\n{arguments.output.resolve()}")
    return 0


@dataclass(frozen=True)
class Client:
    """A client of distributed SGD in the first round of training.

    Args:
        inputs: its batch, values in [0, 1]; Shape (N, 3, size, size).
        model: network with the parameters that the server broadcast.
        gradients: what the server receives, in the order of ``model.parameters()``.
        defense: spec of the client's defence.
    """

    inputs: Tensor
    model: nn.Module
    gradients: tuple[Tensor, ...]
    defense: str

    @classmethod
    def with_photographs(cls, size: int, defense: str, seed: int) -> Client:
        """Return a client whose batch are the `PHOTOGRAPHS`, each of a class of its own."""
        inputs = torch.from_numpy(central_squares(PHOTOGRAPHS, size)).float() / BRIGHTEST
        classes = len(PHOTOGRAPHS)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = parse("model", MODEL).build(tuple(inputs.shape[1:]), classes)
        loss = functional.cross_entropy(model(inputs), torch.arange(classes))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        return cls(inputs, model, defend(defense, gradients, seed=seed), defense)

    @property
    def size(self) -> int:
        """Side of a photograph in pixels."""
        return self.inputs.shape[-1]

    @property
    def parameters(self) -> int:
        """Number of parameters of the network."""
        return sum(gradient.numel() for gradient in self.gradients)

    def attacked(self, spec: str, seed: int, **known: Tensor) -> AttackResult:
        """Run an attack that reads the gradients and the network alone, besides grants."""
        return attack(
            spec,
            self.model,
            self.gradients,
            shape=tuple(self.inputs.shape[1:]),
            batch_size=len(self.inputs),
            grants=known,
            seed=seed,
        )


@dataclass(frozen=True)
class Outcome:
    """Result of the attack on a client.

    Args:
        client: the client.
        found: what the attack recovered.
        scores: its metrics against the photographs.
        blind: metrics of the blind control.
    """

    client: Client
    found: AttackResult
    scores: Scores
    blind: Scores

    @property
    def images(self) -> list[np.ndarray | None]:
        """The recovered images in the order of the photographs; None where there is none."""
        return [
            None if place == UNASSIGNED else self.found.inputs[place].numpy()
            for place in self.scores.assignment
        ]

    @property
    def exact_values(self) -> int:
        """Number of 8-bit values of the photographs that are recovered without error."""
        pairs = zip(self.client.inputs.numpy(), self.images, strict=True)
        return sum(
            int((in_8_bits(truth) == in_8_bits(image)).sum())
            for truth, image in pairs
            if image is not None
        )

    @property
    def title(self) -> str:
        """The batch, the attack and its cost."""
        side, values = self.client.size, self.client.parameters
        return (
            f"{len(PHOTOGRAPHS)} photographs of {side} x {side} pixels, and what the attack "
            f"{self.found.spec} recovers from one gradient of the batch\n"
            f"(defence {self.client.defense}; {values:,} values; "
            f"{self.found.cost['cpu_seconds']:.0f} CPU-seconds)"
        )

    def draw(self, output: Path) -> None:
        """Draw the photographs above what was recovered, with the PSNR of each."""
        truths = zip(PHOTOGRAPHS, self.client.inputs.numpy(), strict=True)
        found = zip(self.images, self._psnr(), strict=True)
        rows = [
            TileRow("photographs\nof the client", [Tile(image, name) for name, image in truths]),
            TileRow(
                "recovered from\nthe gradient",
                [
                    Tile(image, below=f"{own} dB\nblind: {blind} dB")
                    for image, (own, blind) in found
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
        return "\n\n".join([self.title, align(rows), self._explanation()])

    def _explanation(self) -> str:
        return (
            f"The attack reads only the gradient and the network, {MODEL} as initialised.\n"
            f"Recovered exactly: {self.exact_values:,} of {self.client.inputs.numel():,} 8-bit "
            f"values. PSNR is capped at {PSNR_CAP:.0f} dB.\n"
            "Blind: the mean training image, a guess without the gradient."
        )


def in_8_bits(image: np.ndarray) -> np.ndarray:
    """Round intensities in [0, 1] to the levels of 8-bit images."""
    return np.rint(image * BRIGHTEST)


def attack_photographs(spec: str, size: int, *, defense: str = "none", seed: int = 0) -> Outcome:
    """Attack the gradient of a batch of photographs.

    The attack reads the gradient and the network alone. The blind control is the mean of training
    images of the same photographs.

    Args:
        spec: the attack.
        size: side of the photographs in pixels.
        defense: the client's defence.
        seed: seed of the network's parameters, of the defence and of the attack.

    Raises:
        GleakError: the attack or defence is unknown or cannot be used here, or the size is out of
            range.
    """
    if size not in SIZES:
        raise SpecError(f"--size {size}: use {SIZES[0]} to {SIZES[-1]} pixels")
    client = Client.with_photographs(size, defense, seed)
    found = client.attacked(spec, seed)
    train = parse("dataset", TRAIN.format(size=size)).load(Path(), seed)
    blind = client.attacked(
        "blind", seed, mean_input=torch.from_numpy(train.samples("train").mean(0))
    )
    scores = [score(each, client.inputs) for each in (found, blind)]
    return Outcome(client, found, *scores)
