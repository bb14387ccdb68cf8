"""Cells with tiny victims, made by the stages of the workflow in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import observe
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import find, parse
from gleak.core.spec import Spec, build_spec
from gleak.crafting.base import PARAMETERS, SECRET, craft_parameters
from gleak.knowledge.train_knowledge import train_knowledge
from gleak.simulation.simulate import simulate_clients
from gleak.studies.cell import Cell
from gleak.training.train_model import train_model

CLASSES = 4
IMAGE = (3, 8, 8)
COLUMNS = (6,)
TRAIN, TEST = 40, 24
SEED = 1
MODELS = {"image": "lenet+width=4", "tabular": "mlp+hidden=16"}
DATASETS = {"image": "photos", "tabular": "breast_cancer"}
"""Datasets by whose specs levels are checked; the samples are other ones."""
SMALL_MODELS = (
    "lenet+width=4",
    "mlp+hidden=16",
    "mlp+hidden=16+activation=relu",
    "vgg_small+width=8+hidden=24",
    "vgg_small+width=8+hidden=24+norm=batch",
    "planted+model=lenet~width=4+bins=8",
    "planted_kernels+model=lenet~width=4+bins=8+groups=2",
)


def tiny_images() -> Dataset:
    """Return images whose brightness depends on their class."""
    random = np.random.default_rng(0)

    def draw(labels: np.ndarray) -> np.ndarray:
        level = 50 * labels[:, None, None, None]
        return (level + random.integers(0, 60, (len(labels), *IMAGE))).astype(np.uint8)

    return _dataset(draw, spec="tiny")


def tiny_rows() -> Dataset:
    """Return rows of six numbers, the first of which depends on their class."""
    random = np.random.default_rng(0)

    def draw(labels: np.ndarray) -> np.ndarray:
        rows = random.random((len(labels), *COLUMNS))
        rows[:, 0] = (labels + rows[:, 0]) / CLASSES
        return rows.astype(np.float32)

    return _dataset(
        draw,
        spec="rows",
        modality="tabular",
        feature_names=np.array(list("uvwxyz")),
        feature_groups=np.arange(6),
    )


def _dataset(draw: Callable[[np.ndarray], np.ndarray], **fields: Any) -> Dataset:
    """Return a dataset whose samples are drawn for their labels; train before test."""
    train, test = (np.arange(count) % CLASSES for count in (TRAIN, TEST))
    return Dataset(
        train_inputs=draw(train),
        train_labels=train,
        test_inputs=draw(test),
        test_labels=test,
        class_names=np.array(list("abcd")),
        **fields,
    )


def fitting_model(modality: str = "image", **levels: str) -> str:
    """Return the first small model that fits specs of other levels, which have simple defaults.

    Raises:
        IncompatibleError: none fits; gives the reason for each.
    """
    chosen = {"training": "untrained", "crafting": "honest", "client": "fedsgd"}
    chosen |= {"defense": "none", "attack": "blind", "dataset": DATASETS[modality], **levels}
    reasons = []
    for model in SMALL_MODELS:
        try:
            Cell.parse({**chosen, "model": model})
        except IncompatibleError as error:
            reasons.append(f"{model}: {error}")
        else:
            return model
    raise IncompatibleError(f"no model of the tests fits: {'; '.join(reasons)}")


@dataclass(frozen=True)
class TinyCells:
    """Cells in an existing folder, computed on a device; each is made once."""

    root: Path
    device: str = "cpu"
    made: dict[Any, Path] = field(default_factory=dict)

    def simulate(
        self,
        modality: str = "image",
        model: str = "",
        training: str = "untrained+init=uniform",
        client: str = "fedsgd+victims=3",
        defense: str = "none",
        crafting: str = "honest",
    ) -> Path:
        """Run the stages up to the update, and return the folder of their files."""
        key = (modality, model, training, client, defense, crafting)
        if key not in self.made:
            folder = self.made[key] = self._new_folder()
            dataset = tiny_images() if modality == "image" else tiny_rows()
            dataset.write(folder / "dataset.h5")
            architecture = parse("model", model or MODELS[modality])
            files = (folder / "dataset.h5", folder / "model.h5")
            trained = parse("training", training)
            train_model(architecture, trained, *files, seed=SEED, device=self.device)
            server = parse("crafting", crafting)
            if not server.broadcasts_model:
                craft_parameters(server, folder / "model.h5", folder, seed=SEED)
            simulate_clients(
                parse("client", client),
                parse("defense", defense),
                folder / "dataset.h5",
                folder / ("model.h5" if server.broadcasts_model else PARAMETERS),
                folder,
                spec=f"{dataset.spec}/{architecture}",
                seed=SEED,
                device=self.device,
            )
        return self.made[key]

    def learned(self, name: str) -> Path:
        """Return a file of the smallest knowledge of a name, trained on the images."""
        if name not in self.made:
            folder = self._new_folder()
            tiny_images().write(folder / "dataset.h5")
            files = (folder / "dataset.h5", folder / "knowledge.h5")
            cls = find("knowledge", name)
            size = {"size": 32} if "size" in cls.model_fields else {}
            spec: Any = build_spec(cls, {"steps": 2, "batch_size": 4, "width": 4, **size})
            train_knowledge(spec, *files, seed=SEED, device=self.device)
            self.made[name] = folder / "knowledge.h5"
        return self.made[name]

    def observe(self, folder: Path, spec: AttackSpec, seed: int = 5, **options: Any) -> Observation:
        """Return what an attack is given of the victims in a folder of `simulate`.

        Its knowledge is the smallest of each name, whatever the spec says. Options are as in
        `gleak.attacks.run_attack.observe`.
        """
        return observe(
            folder / "update.h5",
            folder / (PARAMETERS if spec.crafting else "model.h5"),
            {grant: folder / "granted" / f"{grant}.h5" for grant in spec.grants},
            secret_path=folder / SECRET if spec.crafting else None,
            knowledge_paths=[self.learned(known.name) for known in spec.knowledge],
            seed=seed,
            device=self.device,
            **options,
        )

    def _new_folder(self) -> Path:
        folder = self.root / str(len(list(self.root.iterdir())))
        folder.mkdir()
        return folder


def check_registered(spec: Spec) -> None:
    """Raise `SpecError` unless the class of a spec is registered under its name."""
    cls = type(spec)
    if getattr(cls, "name", None) is None or find(spec.kind, spec.name) is not cls:
        raise SpecError(
            f'{cls.__name__} is not registered; decorate it: @register("a_name"), from '
            "gleak.core.registry"
        )
