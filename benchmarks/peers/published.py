"""Public tools on the settings of their own papers, beside the published numbers.

    python benchmarks/peers/published.py --peers DIR --data DIR --output FILE [--only NAME]

Each check is the code of the authors with the values of the paper or its repository, on the images
that the user has: subsets of the datasets of the papers. Writes one row for each check: published
and measured mean, over images for Geiping et al. and over batches for the others, with the 95%
interval. A number counts as reproduced if the interval contains it; where its metric cannot be
computed, the published column is empty.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import torch
from problem import Problem
from repositories import imported
from scipy.optimize import linear_sum_assignment
from tools import cocktail_party
from torch import Tensor
from torch.nn import functional

from gleak.figures.intervals import mean_of
from gleak.runtime import torchvision_import as torchvision_import

ITERATIONS = 4800
"""Of `inverting_gradients`: those of the authors' script for CIFAR-10, ``rec_mult.py``."""


@dataclass(frozen=True)
class Check:
    """A published number, and a function that measures it.

    Args:
        tool: name of the repository.
        setting: in words.
        published: mean, as the paper states it.
        measure: yields one value for each image or batch, given the folders of the repositories
            and of the data.
    """

    tool: str
    setting: str
    published: float
    measure: Callable[[Path, Path], Iterator[float]]

    def row(self, peers: Path, data: Path) -> dict[str, object]:
        """Return the row of the table."""
        torch.manual_seed(0)
        values = np.array(list(self.measure(peers, data)))
        low, high = mean_of(values, binary=False).interval()
        return {
            "tool": self.tool,
            "setting": self.setting,
            "published": self.published,
            "measured": round(values.mean(), 3),
            "low": round(low, 3),
            "high": round(high, 3),
            "n": len(values),
            "reproduced": "" if np.isnan(self.published) else bool(low <= self.published <= high),
        }


def images_of(folder: Path, *changes: object) -> object:
    """Return a folder of images, one folder for each class, as a dataset of torchvision."""
    from torchvision import datasets, transforms

    return datasets.ImageFolder(str(folder), transforms.Compose([*changes, transforms.ToTensor()]))


def stacked(dataset: object, positions: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return images and labels at positions of a dataset."""
    images, labels = zip(*(dataset[place] for place in positions), strict=True)
    return torch.stack(images), torch.tensor(labels)


def inverting_gradients(peers: Path, data: Path) -> Iterator[float]:
    """Yield the PSNR of single test images of CIFAR-10, one of each class, on an untrained LeNet.

    Source: Geiping et al. 2020, Table 1; the authors' ``rec_mult.py``.
    """
    library = imported(peers / "invertinggradients", "inversefed")
    constants = imported(peers / "invertinggradients", "inversefed.consts")
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in (constants.cifar10_mean, constants.cifar10_std)
    )
    dataset = images_of(data / "cifar10" / "test")
    _, first = np.unique(dataset.targets, return_index=True)
    for place in first:
        network, _ = library.construct_model("LeNetZhu", num_classes=10, num_channels=3, seed=0)
        image, label = stacked(dataset, [place])
        truth = (image - mean) / deviation
        loss = functional.cross_entropy(network.eval()(truth), label)
        gradient = [part.detach() for part in torch.autograd.grad(loss, network.parameters())]
        config = {"signed": True, "max_iterations": ITERATIONS, "total_variation": 1e-4}
        search = library.GradientReconstructor(network, (mean, deviation), config)
        found, _ = search.reconstruct(gradient, label)
        yield library.metrics.psnr(found, truth, factor=1 / deviation.mean())


def cocktail(peers: Path, data: Path) -> Iterator[float]:
    """Yield the SSIM of batches of eight of Tiny-ImageNet on FC-2, in the best order and sign.

    The network is trained for 20 epochs and attacked for 25,000 iterations with the weights of the
    README. The published LPIPS needs weights of VGG; an LPIPS of 0.08 belongs to images that are
    nearly equal, whose SSIM is close to one.
    """
    tool = cocktail_party(peers / "cocktail_party_attack", {})
    network = imported(peers / "cocktail_party_attack" / "src", "models").FC2("tiny_imagenet")
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    train = images_of(data / "tiny_imagenet" / "train")
    images, labels = stacked(train, np.arange(len(train)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-4)
    for _ in range(20):
        for batch in torch.randperm(len(images)).split(128):
            optimizer.zero_grad()
            normalised = (images[batch] - mean) / deviation
            functional.cross_entropy(network(normalised), labels[batch]).backward()
            optimizer.step()
    test = images_of(data / "tiny_imagenet" / "test")
    order = np.random.default_rng(0).permutation(len(test))
    for number in range(2):
        truth, label = stacked(test, order[8 * number : 8 * number + 8])
        loss = functional.cross_entropy(network((truth - mean) / deviation), label)
        gradients = list(torch.autograd.grad(loss, network.parameters()))
        shape = tuple(truth.shape[1:])
        iterations = 25_000
        problem = Problem(
            network, mean, deviation, gradients, label, shape, 200, iterations, MagicMock()
        )
        found = tool(problem).detach()
        pairs = [[_either_sign(one[None], true[None]) for one in found] for true in truth]
        rows, columns = linear_sum_assignment(pairs, maximize=True)
        yield float(np.array(pairs)[rows, columns].mean())


def _either_sign(found: Tensor, truth: Tensor) -> float:
    """Return the higher SSIM of an image and its negative."""
    from torchmetrics.functional import structural_similarity_index_measure as ssim

    return max(float(ssim(one, truth, data_range=1.0)) for one in (found, 1 - found))


def mkor(
    peers: Path, data: Path, network: str, images: str, batches: int, unique: bool
) -> Iterator[float]:
    """Yield the average PSNR of batches of 100 that the authors' ``reconstruction`` returns.

    Batches are disjoint, of the training split, which is larger; nothing is trained on it. Since
    the authors' code, torchmetrics has changed the range from which it computes the PSNR by
    default; it is 1 here.

    Source: MKOR Tables 2 and 3.
    """
    from torchmetrics import PeakSignalNoiseRatio
    from torchvision import transforms

    changes = [transforms.Resize((224, 224))] if network == "VGG16" else [transforms.Grayscale()]
    dataset = images_of(data / images / "train", *changes)
    module = imported(peers / "mkor", network)
    module.plt = MagicMock()
    module.plt.subplots.side_effect = lambda *_, **__: (MagicMock(), np.array([MagicMock()] * 100))
    attack = getattr(module, network)()
    attack.requires_grad_(requires_grad=False)
    attack.dense1[0].requires_grad_(requires_grad=True)
    attack.psnr = PeakSignalNoiseRatio(data_range=1.0)
    classes = np.array(dataset.targets)
    order = np.random.default_rng(0).permutation(len(dataset))
    for _ in range(batches):
        places = np.unique(classes[order], return_index=True)[1] if unique else np.arange(100)
        inputs, labels = stacked(dataset, order[places])
        order = np.delete(order, places)
        attack.process(inputs, labels, torch.device("cpu"), 100)
        *_, psnr = attack.reconstruction(inputs, labels, dataset.classes)
        yield float(psnr)


CHECKS = [
    Check(
        "invertinggradients",
        "Geiping et al. 2020, Table 1: PSNR, CIFAR-10, untrained LeNet, tv 1e-4 as in options.py",
        18.00,
        inverting_gradients,
    ),
    Check(
        "mkor LeNet",
        "MKOR Table 2: average PSNR, MNIST, original LeNet, random batches of 100",
        12.79,
        lambda peers, data: mkor(peers, data, "LeNet", "mnist", 10, unique=False),
    ),
    Check(
        "mkor VGG16",
        "MKOR Table 3: average PSNR, CIFAR-100, VGG-16, batches of 100 classes",
        24.14,
        lambda peers, data: mkor(peers, data, "VGG16", "cifar100", 2, unique=True),
    ),
    Check(
        "cocktail_party_attack",
        "CPA Table I: Tiny-ImageNet, FC-2, batches of 8; published LPIPS 0.082, here SSIM",
        float("nan"),
        cocktail,
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of tools")
    options = parser.parse_args()
    folders = [options.peers.resolve(), options.data.resolve()]
    output = options.output.resolve()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for check in CHECKS:
            if any(part in check.tool for part in options.only):
                row = check.row(*folders)
                print(row, file=sys.stderr)
                old = pd.read_csv(output) if output.exists() else pd.DataFrame(columns=list(row))
                kept = old[old["setting"] != check.setting]
                pd.concat([kept, pd.DataFrame([row])]).to_csv(output, index=False)


if __name__ == "__main__":
    main()
