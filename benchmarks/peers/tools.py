"""Public tools, each called by the code of its authors, which lies in a folder of the user.

None of that code is part of gleak. A tool gets the defaults of its authors, except the number of
iterations, which is that of gleak's attack.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
from problem import Problem, Tool
from torch import Tensor, nn

from gleak.runtime import torchvision_import as torchvision_import


def inverting_gradients(folder: Path) -> Tool:
    """Return Geiping et al.'s own code with the settings of its script for CIFAR-10.

    Source: github.com/JonasGeiping/invertinggradients, ``reconstruct_image.py``.
    """
    module = _imported(folder, "inversefed.reconstruction_algorithms")

    def reconstruct(problem: Problem) -> Tensor:
        config = {
            "signed": True,
            "boxed": True,
            "cost_fn": "sim",
            "lr": 0.1,
            "total_variation": 0.1,
            "max_iterations": problem.iterations,
        }
        constants = (problem.mean, problem.deviation)
        samples = len(problem.labels)
        tool = module.GradientReconstructor(problem.network, constants, config, samples)
        found, _ = tool.reconstruct(problem.gradients, problem.labels, problem.shape)
        return problem.images(found)

    return reconstruct


def breaching(folder: Path, attack: str) -> Tool:
    """Return an attack of the toolbox breaching with its own configuration.

    Source: github.com/JonasGeiping/breaching, ``minimal_example.py``. Needs ``hydra-core``.

    Args:
        folder: of the repository.
        attack: name of its configuration.
    """
    toolbox = _imported(folder, "breaching")

    def reconstruct(problem: Problem) -> Tensor:
        limits = [f"optim.max_iterations={problem.iterations}", "optim.callback=100000"]
        config = toolbox.get_attack_config(attack, limits)
        setup = {"device": torch.device("cpu"), "dtype": torch.float}
        loss = nn.CrossEntropyLoss()
        attacker = toolbox.attacks.prepare_attack(problem.network, loss, config, setup)
        metadata = SimpleNamespace(
            modality="vision",
            shape=problem.shape,
            classes=problem.classes,
            mean=problem.mean.flatten().tolist(),
            std=problem.deviation.flatten().tolist(),
        )
        served = {
            "parameters": list(problem.network.parameters()),
            "buffers": list(problem.network.buffers()),
            "metadata": metadata,
        }
        known = {
            "num_data_points": len(problem.labels),
            "labels": problem.labels,
            "local_hyperparams": None,
        }
        shared = {"gradients": problem.gradients, "buffers": None, "metadata": known}
        found, _ = attacker.reconstruct([served], [shared], {}, dryrun=False)
        return problem.images(found["data"])

    return reconstruct


def cocktail_party(folder: Path) -> Tool:
    """Return the attack of Kariyappa et al. on the first dense layer, with their weights.

    Their evaluation chooses the sign of each image by the truth; so does the metric
    ``psnr_oracle_sign``, which the settings of this tool are scored by.

    Source: github.com/facebookresearch/cocktail_party_attack, the command of its README for
    Tiny-ImageNet.
    """
    module = _imported(folder / "src", "gradient_inversion")
    files = tempfile.mkdtemp()
    module.get_attack_exp_path = lambda _: files

    def reconstruct(problem: Problem) -> Tensor:
        weights = {"decor": 1.47, "tv": 3.1, "T": 12.4, "l1": 0.0, "nv": 0.0, "ne": 1.0}
        search = {"opt": "adam", "lr": 1e-3, "sch": None, "n_iter": problem.iterations}
        fixed = {"use_labels": True, "sigma": 0.0, "C": 1.0, "ds": "tiny_imagenet"}
        options = Namespace(batch_size=len(problem.labels), **weights, **search, **fixed)
        network = SimpleNamespace(train=lambda: None, model_type="fc", attack_index=0)
        shape = (len(problem.labels), *problem.shape)
        module.xshape_dict["tiny_imagenet"] = list(problem.shape)
        number = len(list(Path(files).iterdir()))
        attack = module.CocktailPartyAttack(
            network, problem.gradients, problem.labels, options, number
        )
        for _ in range(problem.iterations):
            attack.step()
        return attack.get_rec().reshape(shape)

    return reconstruct


TOOLS: dict[str, Callable[[Path], Tool]] = {
    "invertinggradients": lambda peers: inverting_gradients(peers / "invertinggradients"),
    "breaching invertinggradients": lambda peers: breaching(
        peers / "breaching", "invertinggradients"
    ),
    "breaching modern": lambda peers: breaching(peers / "breaching", "modern"),
    "cocktail_party_attack": lambda peers: cocktail_party(peers / "cocktail_party_attack"),
}
"""Name in the table -> constructor, given the folder that contains the repositories."""


def _imported(folder: Path, module: str) -> object:
    """Import a module of a repository.

    Raises:
        FileNotFoundError: the repository is not there.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there")
    sys.path.insert(0, str(folder))
    return importlib.import_module(module)
