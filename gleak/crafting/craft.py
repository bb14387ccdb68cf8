"""The stage of servers that do not broadcast ``model.h5`` itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gleak.artifacts.model import Model, Secret
from gleak.crafting.base import CraftingSpec

PARAMETERS = "parameters.h5"
SECRET = "secret.h5"


def craft_parameters(crafting: CraftingSpec, model_path: Path, folder: Path, *, seed: int) -> None:
    """Craft the parameters that are broadcast; write them and what the server keeps to itself.

    Args:
        crafting: what the server does.
        model_path: ``model.h5``.
        folder: where ``parameters.h5`` and ``secret.h5`` go.
        seed: of the run.

    Raises:
        IncompatibleError: the model is not one that can be crafted so.
    """
    model = Model.read(model_path)
    crafted = crafting.craft(model, seed)
    spec = f"{model.spec}/{crafting}"
    replace(crafted.model, spec=spec, seed=seed).write(folder / PARAMETERS)
    Secret(spec=spec, seed=seed, values=dict(crafted.secret)).write(folder / SECRET)
