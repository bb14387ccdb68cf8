"""Public tools, each called by the code of its authors, which lies in a folder of the user.

None of that code is part of gleak. A tool gets the values of its authors, except the number of
iterations, which is that of gleak's attack, and those that were searched (`Values`).
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import crafting_tools
import torch
from problem import Problem, Tool
from repositories import imported, replace
from torch import Tensor, nn
from torch.nn import functional

from gleak.attacks.base import MID_GREY
from gleak.runtime import torchvision_import as torchvision_import

Values = Mapping[str, float]
"""Hyperparameters that replace those of the authors: ``lr``, ``tv``, ``mi``."""


def inverting_gradients(folder: Path, values: Values) -> Tool:
    """Return Geiping et al.'s own code with the settings of its script for CIFAR-10.

    Source: github.com/JonasGeiping/invertinggradients, ``reconstruct_image.py``.
    """
    module = imported(folder, "inversefed.reconstruction_algorithms")

    def reconstruct(problem: Problem) -> Tensor:
        config = {
            "signed": True,
            "boxed": True,
            "cost_fn": "sim",
            "lr": values.get("lr", 0.1),
            "total_variation": values.get("tv", 0.1),
            "max_iterations": problem.iterations,
        }
        constants = (problem.mean, problem.deviation)
        samples = len(problem.labels)
        tool = module.GradientReconstructor(problem.network, constants, config, samples)
        found, _ = tool.reconstruct(problem.gradients, problem.labels, problem.shape)
        return problem.images(found)

    return reconstruct


def breaching(folder: Path, values: Values, attack: str) -> Tool:
    """Return an attack of the toolbox breaching with its own configuration.

    Source: github.com/JonasGeiping/breaching, ``minimal_example.py``. Needs ``hydra-core``.

    Args:
        folder: of the repository.
        values: in place of its configuration's.
        attack: name of its configuration.
    """
    toolbox = imported(folder, "breaching")
    fields = {"lr": "optim.step_size", "tv": "regularization.total_variation.scale"}
    searched = [f"{fields[name]}={value}" for name, value in values.items()]

    def reconstruct(problem: Problem) -> Tensor:
        limits = [f"optim.max_iterations={problem.iterations}", "optim.callback=100000"]
        config = toolbox.get_attack_config(attack, [*limits, *searched])
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


def cocktail_party(folder: Path, values: Values) -> Tool:
    """Return the attack of Kariyappa et al. on the first dense layer, with their weights.

    Their evaluation chooses the sign of each image by the truth; so does the metric
    ``psnr_oracle_sign``, which the settings of this tool are scored by.

    Args:
        folder: of the repository.
        values: in place of theirs; ``mi`` is their ``decor``.

    Source: github.com/facebookresearch/cocktail_party_attack, the command of its README for
    Tiny-ImageNet.
    """
    replace("torchtext", "torchtext.data", "torchtext.data.utils", "torchtext.vocab")
    replace("torchtext.data.functional")
    module = imported(folder / "src", "gradient_inversion")
    files = tempfile.mkdtemp()
    module.get_attack_exp_path = lambda _: files

    def reconstruct(problem: Problem) -> Tensor:
        steps = problem.iterations
        searched = {"decor": values.get("mi", 1.47), "tv": values.get("tv", 3.1)}
        weights = {**searched, "T": 12.4, "l1": 0.0, "nv": 0.0, "ne": 1.0}
        rate = values.get("lr", 1e-3)
        search = {"opt": "adam", "lr": rate, "sch": None, "n_iter": steps}
        fixed = {"use_labels": True, "sigma": 0.0, "C": 1.0, "ds": "tiny_imagenet"}
        options = Namespace(batch_size=len(problem.labels), **weights, **search, **fixed)
        network = SimpleNamespace(train=lambda: None, model_type="fc", attack_index=0)
        shape = (len(problem.labels), *problem.shape)
        module.xshape_dict["tiny_imagenet"] = list(problem.shape)
        number = len(list(Path(files).iterdir()))
        attack = module.CocktailPartyAttack(
            network, problem.gradients, problem.labels, options, number
        )
        for _ in range(steps):
            attack.step()
        return attack.get_rec().reshape(shape)

    return reconstruct


def leakpro(folder: Path, values: Values, preset: str) -> Tool:
    """Return an attack of LeakPro's modular framework with the settings of its preset.

    The other implementation of LeakPro (``AbstractGIA``) returns the iterate with the highest SSIM
    to the truth, and is not compared.

    Args:
        folder: of the repository.
        values: in place of the preset's.
        preset: name of a function of ``modular/presets.py``.

    Source: github.com/aidotse/LeakPro. Needs ``optuna``, ``pytorch-ignite`` and ``torchmetrics``.
    """
    package = ModuleType("leakpro")
    package.__path__ = [str(folder / "leakpro")]
    sys.modules["leakpro"] = package
    replace("transformers")
    presets = imported(folder, "leakpro.attacks.gia_attacks.modular.presets")
    client = importlib.import_module("leakpro.fl_utils.fl_client_simulator")
    simulator = importlib.import_module(
        "leakpro.attacks.gia_attacks.modular.components.optimization_building_blocks"
        ".training_simulator"
    )

    def reconstruct(problem: Problem) -> Tensor:
        names = [name for name, _ in problem.network.named_parameters()]
        samples = len(problem.labels)
        sent = client.ClientObservations(
            gradients=dict(zip(names, problem.gradients, strict=True)),
            num_images=samples,
            input_shape=(samples, *problem.shape),
            training_settings=simulator.TrainingSettings(1, "sgd", None, "gradients", "eval"),
            labels=problem.labels,
            data_mean=problem.mean,
            data_std=problem.deviation,
            num_classes=problem.classes,
        )
        config = getattr(presets, preset)()
        config.max_iterations = problem.iterations
        config.learning_rate = values.get("lr", config.learning_rate)
        config.tv_weight = values.get("tv", config.tv_weight)
        attack = config.build(sent)
        found, _ = attack.run_attack(problem.network, sent, torch.device("cpu"))
        return problem.images(found)

    return reconstruct


def rog(folder: Path, _: Values) -> Tool:
    """Return ROG's first stage, the search in the bicubic code, with the rate of its authors.

    The networks of its second stage are not in the repository.

    Source: github.com/KAI-YUE/rog, ``config.yaml``.
    """
    replace("cv2", "inplace_abn", "lpips")
    module = imported(folder, "src.attack")

    def reconstruct(problem: Problem) -> Tensor:
        def criterion(outputs: Tensor, target: Tensor) -> Tensor:
            return -(target * functional.log_softmax(outputs, dim=-1)).sum(dim=-1).mean()

        config = SimpleNamespace(
            T_max=problem.iterations,
            half=False,
            device="cpu",
            sample_size=problem.shape[1:],
            rog_lr=0.05,
            printevery=problem.iterations,
            fed_lr=1.0,
        )
        attacker = module.Attacker(config, criterion)
        batch = torch.empty(len(problem.labels), *problem.shape)
        target = functional.one_hot(problem.labels, problem.classes).float()
        code = attacker.grad_inv(problem.gradients, batch, target, problem.network, MagicMock())
        return problem.images(
            functional.interpolate(code, scale_factor=attacker.sf, mode="bicubic")
        )

    return reconstruct


def mkor(folder: Path, _: Values, network: str) -> Tool:
    """Return MKOR: the network that its authors crafted, and their decoding of its gradient.

    The client takes their loss, the raw logit of the label. The classes of a batch are read off the
    gradient by the rule of their function ``reconstruction``, which also scores images and needs
    the truth for it; labels only tell which sample an image is for.

    Args:
        folder: of the repository.
        network: name of a module and of the class in it.

    Source: github.com/wfwf10/MKOR, ``main.py``.
    """
    server = getattr(imported(folder, network), network)(evaluate=False)
    server.requires_grad_(requires_grad=False)
    dense = server.dense1[0].requires_grad_(requires_grad=True)

    def loss(outputs: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
        logits, _ = outputs
        return functional.nll_loss(logits, labels)

    def reconstruct(problem: Problem) -> Tensor:
        problem.client(server, loss)
        sent = [dense.weight.grad, dense.bias.grad]
        (rows,) = torch.where(dense.bias.grad < -1e-6)
        classes = [row for row in rows.tolist() if row < server.num_classes]
        found = {label: server.reconstruct_single_class(label, sent) for label in classes}
        missing = torch.full(problem.shape, MID_GREY)
        return torch.stack([found.get(label, missing) for label in problem.labels.tolist()])

    return reconstruct


TOOLS: dict[str, Callable[[Path, Values], Tool]] = {
    "invertinggradients": lambda peers, values: inverting_gradients(
        peers / "invertinggradients", values
    ),
    "breaching invertinggradients": lambda peers, values: breaching(
        peers / "breaching", values, "invertinggradients"
    ),
    "breaching modern": lambda peers, values: breaching(peers / "breaching", values, "modern"),
    "leakpro inverting_gradients": lambda peers, values: leakpro(
        peers / "leakpro", values, "inverting_gradients_attack"
    ),
    "rog reference": lambda peers, values: rog(peers / "rog", values),
    "cocktail_party_attack": lambda peers, values: cocktail_party(
        peers / "cocktail_party_attack", values
    ),
    "mkor LeNet": lambda peers, values: mkor(peers / "mkor", values, "LeNet"),
    "mkor VGG16": lambda peers, values: mkor(peers / "mkor", values, "VGG16"),
    "breaching imprint": lambda peers, _: crafting_tools.planted_block(
        peers / "breaching", "malicious-model-rtf"
    ),
    "breaching trap weights": lambda peers, _: crafting_tools.planted_block(
        peers / "breaching", "malicious-model-cah"
    ),
    "breaching trap weights, intensities": lambda peers, _: crafting_tools.planted_block(
        peers / "breaching", "malicious-model-cah", "data.normalize=False"
    ),
    "breaching trap weights, intensities, all rows": lambda peers, _: crafting_tools.planted_block(
        peers / "breaching",
        "malicious-model-cah",
        "data.normalize=False",
        attack=("breach_reduction=null",),
    ),
    "QBI": lambda peers, _: crafting_tools.quantile_biases(peers / "QBI", "exp_CIFAR-10_QBI"),
    "loki demonstration": lambda peers, _: crafting_tools.loki(peers / "loki"),
}
"""Name in the table -> constructor, given the folder that contains the repositories, and values."""
ANY_ORDER = frozenset(
    {
        "breaching imprint",
        "breaching trap weights",
        "breaching trap weights, intensities",
        "breaching trap weights, intensities, all rows",
        "QBI",
        "loki demonstration",
    }
)
"""Tools whose images are not in the order of the labels."""
