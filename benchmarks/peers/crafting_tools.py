"""Public tools of servers that craft what they broadcast, each with the code of its authors.

A client computes the gradient of the network that a tool made, on the same samples as that of
gleak's. The tool's layer has as many rows as the planted layer of the cell, and the network behind
it is that of the cell, but for QBI's, whose authors' code has one of its own. Tools do not know
which image is whose, and some return more images than there are samples: `ANY_ORDER` of `tools`.
"""

from __future__ import annotations

import ast
import copy
import json
import math
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from problem import Problem, Tool
from repositories import imported, replace
from torch import Tensor, nn
from torch.nn import functional

from gleak.attacks.base import MID_GREY
from gleak.models.layers import Normalisation

CIFAR10_MEAN, CIFAR10_DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
"""With which the scripts of QBI normalise."""
BRIGHTNESS = {"mu": 0.4733630142373343, "sigma": 0.1252652199273531}
"""Mean and deviation of CIFAR-10's brightness, as printed in Loki's notebook."""
NOTEBOOK = "LOKI FedAVG demo.ipynb"
SCALE = "conv_scale"
"""Constant of the cell that attacks."""
MADE = 3
"""Leading statements of the notebook's loop over clients, which make and set a client's layer."""


def planted_block(folder: Path, server: str, *fields: str, attack: tuple[str, ...] = ()) -> Tool:
    """Return the analytic attack of breaching on a layer that one of its servers plants.

    Source: github.com/JonasGeiping/breaching, ``config/case/server``. Needs ``hydra-core``.

    Args:
        folder: of the repository.
        server: name of its configuration.
        fields: further overrides of the configuration of the case.
        attack: overrides of that of the attack, ``imprint``.
    """
    toolbox = imported(folder, "breaching")
    setup = {"device": torch.device("cpu"), "dtype": torch.float}
    loss = nn.CrossEntropyLoss()

    def reconstruct(problem: Problem) -> Tensor:
        bins, behind = _parts(problem.network)
        overrides = ["data=CIFAR10", f"server={server}"]
        overrides += [f"server.model_modification.num_bins={bins}", *fields]
        case = toolbox.get_case_config("6_large_batch_cifar", overrides)
        host = toolbox.cases.construct_server(behind, loss, case, setup)
        crafted = host.vet_model(behind)
        constants = (case.data.mean, case.data.std) if case.data.normalize else ([0.0], [1.0])
        scaling = Normalisation(*constants)
        problem.client(nn.Sequential(scaling, crafted), loss)
        known = {"num_data_points": len(problem.labels), "labels": problem.labels}
        shared = {
            "gradients": [each.grad for each in crafted.parameters()],
            "buffers": None,
            "metadata": {**known, "local_hyperparams": None},
        }
        config = toolbox.get_attack_config("imprint", [*attack])
        attacker = toolbox.attacks.prepare_attack(crafted, loss, config, setup)
        mean, deviation = (value.flatten().tolist() for value in (scaling.mean, scaling.deviation))
        served = host.distribute_payload()
        served["metadata"] = SimpleNamespace(
            modality="vision", shape=problem.shape, mean=mean, std=deviation
        )
        found, _ = attacker.reconstruct([served], [shared], host.secrets)
        images = (found["data"].detach() * scaling.deviation + scaling.mean).clamp(0, 1)
        expected = bins if attack else len(problem.labels)
        missing = torch.full((expected - len(images), *problem.shape), MID_GREY)
        return torch.cat([images, missing])

    return reconstruct


def quantile_biases(folder: Path, script: str) -> Tool:
    """Return QBI, with the rows that a script of its authors makes for CIFAR-10.

    The images are the ratios of weight and bias gradients of all rows, as in the authors' notebook.

    Source: github.com/mvnowak/QBI. Its imports need ``tqdm``.

    Args:
        folder: of the repository.
        script: name of a module with a function ``experiment``.
    """
    replace("datasets", "transformers")
    module = imported(folder, script)
    made: list[Any] = []
    module.multi_evaluate = lambda **given: made.append(given["model"])
    module.torchvision = SimpleNamespace(
        datasets=SimpleNamespace(CIFAR10=lambda **_: [(torch.zeros(1), 0)] * 2)
    )
    scaling = Normalisation(CIFAR10_MEAN, CIFAR10_DEVIATION)

    def reconstruct(problem: Problem) -> Tensor:
        bins, _ = _parts(problem.network)
        module.experiment(bins, len(problem.labels))
        crafted = made.pop()
        problem.client(nn.Sequential(scaling, crafted), functional.cross_entropy)
        weight, bias = crafted.fc1.weight.grad, crafted.fc1.bias.grad
        ratios = (weight / bias.view(-1, 1)).reshape(-1, *problem.shape)
        images = (ratios * scaling.deviation + scaling.mean).clamp(0, 1)
        return images.nan_to_num(MID_GREY)

    return reconstruct


def loki(folder: Path) -> Tool:
    """Return the layer and the decoding of the demonstration of Loki.

    Clients take one step, and the images are those of all rows of each client: the notebook chooses
    the rows by the truth.

    Source: github.com/Manishpandey-0/Adversarial-reconstruction-attack-on-FL-using-LOKI.
    """
    cell, names = _notebook(folder / NOTEBOOK)
    constants = [node for node in cell if _assigned(node) == SCALE]
    (loop,) = (node for node in cell if isinstance(node, ast.For))
    made = [*constants, *loop.body[:MADE]]

    def reconstruct(problem: Problem) -> Tensor:
        bins, behind = _parts(problem.network)
        channels, *sides = problem.shape
        samples = len(problem.labels) // problem.clients
        setting = {"num_bins": bins, "data_ch": channels, "im_dim": sides, **BRIGHTNESS}
        setting["conv_sizes"] = channels * problem.clients
        total = torch.zeros(())
        for number in range(problem.clients):
            names.update(setting, z=number)
            exec(compile(ast.Module(made, []), NOTEBOOK, "exec"), names)
            layer = names["net"].float()
            sent = nn.Sequential(layer, nn.Unflatten(1, problem.shape), behind)
            own = slice(number * samples, (number + 1) * samples)
            problem.client(sent, functional.cross_entropy, own)
            total = total + layer.FC1.weight.grad / problem.clients
        rows = total.unflatten(1, (problem.clients, math.prod(problem.shape))).flatten(0, 1)
        images = [names["norm_image"](row).reshape(problem.shape) for row in rows]
        return torch.stack(images).nan_to_num(MID_GREY)

    return reconstruct


def _parts(network: nn.Module) -> tuple[int, nn.Module]:
    """Return the number of rows of a cell's planted layer, and the network behind, a copy."""
    parts = dict(network.named_children())
    return parts["planted"].enter.out_features, copy.deepcopy(parts["model"])


def _notebook(file: Path) -> tuple[list[ast.stmt], dict[str, Any]]:
    """Return the statements of the cell that attacks, and the names that its statements need."""
    cells = [
        ast.parse("".join(cell["source"])).body
        for cell in json.loads(file.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    defined = [
        node for cell in cells for node in cell if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    names: dict[str, Any] = {
        "np": np,
        "torch": torch,
        "nn": nn,
        "F": functional,
        "copy": copy,
        "NormalDist": NormalDist,
        "min": torch.min,
        "max": torch.max,
    }
    exec(compile(ast.Module(defined, []), str(file), "exec"), names)
    (attack,) = (cell for cell in cells if SCALE in map(_assigned, cell))
    return attack, names


def _assigned(node: ast.stmt) -> str | None:
    """Return the name that a statement assigns to."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None
