"""The stage that makes ``parameters.h5``, for servers that do not broadcast ``model.h5`` itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gleak.artifacts.model import Model
from gleak.crafting.base import CraftingSpec


def craft_parameters(crafting: CraftingSpec, model_path: Path, output: Path, *, seed: int) -> None:
    """Craft the parameters that are broadcast, and write them.

    Args:
        crafting: what the server does.
        model_path: ``model.h5``.
        output: ``parameters.h5``.
        seed: of the run.
    """
    model = Model.read(model_path)
    crafted = crafting.craft(model, seed)
    replace(crafted, spec=f"{model.spec}/{crafting}", seed=seed).write(output)
