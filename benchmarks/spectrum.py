"""How much a gradient tells of its samples: singular values of its Jacobian at the true samples.

    python benchmarks/spectrum.py --data DIR --output docs/results/spectrum CELL ...

A cell is a model, an initialisation, the size of the images of CIFAR-100 and the batch size:
lenet,uniform,16,2. Its rows of spectrum.csv and directions.csv are replaced, and spectrum.png is
drawn from all cells in the files. DIR holds the image folder cifar100.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional

from gleak.core.registry import parse
from gleak.figures.canvas.style import NEUTRAL, PAGE, PANEL, new_figure, save, save_numbers, theme
from gleak.models.parameters import trained_parameters
from gleak.runtime.device import prepare_cpu
from gleak.simulation.simulate import draw_batches
from gleak.training.base import initialise

SEED = 0
BOUND = 0.5
"""Of the uniform initialisation, as in CPL's study."""
ROUNDING = 2.0**-24 / 3**0.5
"""Standard deviation of the rounding errors of float32, relative to a power of two."""
AT_ONCE = 96
"""Directions that are differentiated at once."""
POINTS = 101
"""Directions of a cell in directions.csv, evenly spaced from the strongest to the weakest."""
ACCURACY = 1e-7
"""Singular values below this share of the largest are not resolved by double precision."""
LEAST_DRAWN = 1e-2
STYLES = ("-", "--", "-.", ":", (0, (4, 1, 1, 1, 1, 1)))
"""Of lines, one for each network."""
KEYS = ["model", "init", "size", "samples"]
Gradient = Callable[[Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class Cell:
    """Setting of one client."""

    model: str
    init: str
    size: int
    samples: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        model, init, size, samples = text.split(",")
        return cls(model, init, int(size), int(samples))


@dataclass(frozen=True)
class Client:
    """A network in double precision and a batch.

    Args:
        network: in evaluation mode.
        inputs: Shape (N, C, H, W).
        labels: Shape (N).
    """

    network: nn.Module
    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, cell: Cell, data: Path) -> Client:
        """The first victim of the study, from the test split."""
        dataset = parse("dataset", f"cifar100+size={cell.size}").load(data, SEED)
        network = parse("model", cell.model).build(tuple(dataset.shape), len(dataset.class_names))
        initialise(network, cell.init, BOUND, SEED)
        labels = dataset.labels("test")
        client = parse("client", f"fedsgd+victims=1+batch_size={cell.samples}")
        (chosen,) = draw_batches(client, labels, SEED)
        inputs = torch.from_numpy(dataset.samples("test", chosen)).double()
        return cls(network.double().eval(), inputs, torch.from_numpy(labels[chosen]).long())

    def gradient(self, row: int) -> Gradient:
        """Part of a sample in the mean gradient, as a function of its values, Shape (C, H, W)."""
        parameters = {k: v.detach() for k, v in trained_parameters(self.network).items()}

        def loss(weights: dict[str, Tensor], sample: Tensor) -> Tensor:
            logits = functional_call(self.network, weights, (sample[None],))
            return functional.cross_entropy(logits, self.labels[row, None]) / len(self.labels)

        return lambda sample: grad(loss)(parameters, sample)


@dataclass(frozen=True)
class Rows:
    """Isometric coordinates of all changes of a gradient, relative to its rounding errors.

    The gradient of a dense layer is D^T A with a row for each sample; its changes dD^T A + D^T dA
    lie in the span of the columns of D^T and of the rows of A, which has far fewer dimensions than
    the layer has weights.

    Args:
        noise: by parameter, the standard deviation of its rounding errors.
        spans: by weight of a dense layer, orthonormal bases of both; Shapes (out, N) and (in, N).
    """

    noise: dict[str, float]
    spans: dict[str, tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, parts: list[dict[str, Tensor]]) -> Rows:
        """The coordinates at a batch, from the samples' parts in the gradient."""
        total = {name: sum(part[name] for part in parts) for name in parts[0]}
        noise = {
            name: ROUNDING * float(value.square().mean().sqrt()) for name, value in total.items()
        }
        dense = [name for name, value in total.items() if value.ndim == 2]
        return cls(noise, {name: _spans([part[name] for part in parts]) for name in dense})

    def __call__(self, change: dict[str, Tensor]) -> Tensor:
        """Coordinates of a change; Shape (R)."""
        return torch.cat([self._of_one(*item) / self.noise[item[0]] for item in change.items()])

    def _of_one(self, name: str, change: Tensor) -> Tensor:
        if name not in self.spans:
            return change.flatten()
        left, right = self.spans[name]
        beside = change @ right
        return torch.cat(
            [(left.T @ change).flatten(), (beside - left @ (left.T @ beside)).flatten()]
        )


def _spans(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Orthonormal bases of the columns and rows of matrices of rank one."""
    outer = [torch.linalg.svd(part, full_matrices=False) for part in parts]
    left = torch.stack([u[:, 0] for u, _, _ in outer], 1)
    right = torch.stack([v[0] for _, _, v in outer], 1)
    return torch.linalg.qr(left)[0], torch.linalg.qr(right)[0]


def jacobian(client: Client) -> Tensor:
    """Change of the gradient, over its rounding errors, along each value; Shape (P, R)."""
    gradients = [client.gradient(row) for row in range(len(client.inputs))]
    parts = [one(sample) for one, sample in zip(gradients, client.inputs, strict=True)]
    rows = Rows.of(parts)
    shape = client.inputs.shape[1:]
    units = torch.eye(shape.numel(), dtype=torch.double).unflatten(1, shape)
    blocks = []
    for one, sample in zip(gradients, client.inputs, strict=True):
        along = vmap(lambda unit, one=one, sample=sample: rows(jvp(one, (sample,), (unit,))[1]))
        blocks += [along(directions) for directions in units.split(AT_ONCE)]
    return torch.cat(blocks)


def signal_to_noise(client: Client) -> np.ndarray:
    """Of each direction of the samples' space, what float32 leaves of it; the largest first.

    Singular values of the Jacobian, over rounding errors, times the standard deviation of the
    samples' values: below one a direction is lost in rounding.
    """
    matrix = jacobian(client)
    squares = torch.linalg.eigvalsh(matrix @ matrix.T).flip(0).clamp_min(0)
    return (squares * client.inputs.var()).sqrt().numpy()


def summary(signal: np.ndarray, variance: float) -> dict[str, float]:
    """Of all directions, and the error that rounding leaves to the best linear estimate."""
    resolved = signal > max(1.0, ACCURACY * signal[0])
    return {
        "unknowns": len(signal),
        "resolved": int(resolved.sum()),
        "strongest": signal[0],
        "median": float(np.median(signal)),
        "weakest": signal[-1],
        "variance": variance,
        "mse": variance * float((1 / (1 + (resolved * signal) ** 2)).mean()),
    }


def directions(signal: np.ndarray) -> pd.DataFrame:
    """Evenly spaced directions, by their share of all."""
    chosen = np.linspace(0, len(signal) - 1, POINTS).round().astype(int)
    return pd.DataFrame({"share": chosen / (len(signal) - 1), "signal": signal[chosen]})


def measure(cell: Cell, data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of both tables for a cell."""
    client = Client.of(cell, data)
    start = time.process_time()
    signal = signal_to_noise(client)
    seconds = {"cpu_seconds": time.process_time() - start}
    row = {**asdict(cell), **summary(signal, float(client.inputs.var())), **seconds}
    return pd.DataFrame([row]), directions(signal).assign(**asdict(cell))


def put(rows: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Add rows to a file, in place of those of the same cell; return all."""
    known = pd.read_csv(file) if file.exists() else rows[:0]
    same = (known[KEYS] == rows[KEYS].iloc[0]).all(axis=1)
    table = pd.concat([known[~same], rows]).sort_values(KEYS, kind="stable")
    save_numbers(table, file.with_suffix(""))
    return table


def draw(table: pd.DataFrame, stem: Path) -> None:
    """One line for each cell, in a style for each network."""
    styles = dict(zip(table["model"].unique(), cycle(STYLES)))
    with theme():
        figure = new_figure(PAGE, PANEL[1])
        axis = figure.subplots()
        for (model, init, size, samples), line in table.groupby(KEYS):
            label = f"{model}, {init}, {size} x {size}, batch of {samples}"
            drawn = line["signal"].clip(lower=LEAST_DRAWN)
            axis.semilogy(line["share"], drawn, label=label, linestyle=styles[model])
        axis.axhline(1, color=NEUTRAL, linewidth=0.5)
        axis.set(xlabel="share of directions", ylabel="signal over rounding")
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        save(figure, stem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the image folder")
    parser.add_argument("--output", type=Path, required=True, help="folder of the tables")
    parser.add_argument("cells", nargs="+", type=Cell.parse, help="such as lenet,uniform,16,2")
    options = parser.parse_args()
    prepare_cpu(1)
    for cell in options.cells:
        row, lines = measure(cell, options.data)
        put(row, options.output / "spectrum.csv")
        draw(put(lines, options.output / "directions.csv"), options.output / "spectrum")
        print(row.to_string(index=False, float_format="%.3g"), flush=True)


if __name__ == "__main__":
    main()
