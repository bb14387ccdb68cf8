"""The specs that a deployment stands for, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gleak.artifacts.granted import GRANTS
from gleak.artifacts.update import Update
from gleak.assessment.deployment import Deployment
from gleak.assessment.varying import Axis, read_axes
from gleak.assessment.written_specs import at_key, client_of, model_of
from gleak.captures.locations import PRIVATE, UPDATE, Captures
from gleak.clients.base import check_batch
from gleak.clients.fedavg import FedAvg
from gleak.core.errors import ArtifactError, DataError, SpecError, nearest
from gleak.core.registry import find, load, parse
from gleak.core.settings import Settings
from gleak.core.spec import build_spec, changed
from gleak.data.image_folder import (
    ImageFolderDataset,
    Listing,
    class_folders,
    list_images,
)
from gleak.metrics.base import MetricSpec
from gleak.runtime.hub_weights import check_file
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.own_models import check_own_model

DEFAULT_THRESHOLDS = {"image": {"ssim": 0.5}, "tabular": {"mse": 0.001}}


@dataclass(frozen=True)
class Threshold:
    """A value of a metric from which on a client is exposed."""

    metric: MetricSpec
    value: float

    @property
    def sign(self) -> int:
        """1 if larger values are better for the attacker, else -1."""
        return 1 if self.metric.better == "higher" else -1

    def __str__(self) -> str:
        return f"{self.metric} {'≥' if self.sign == 1 else '≤'} {self.value:g}"


@dataclass(frozen=True)
class Resolved:
    """A deployment with its specs.

    Args:
        deployment: as written.
        settings: configuration, with the data folder of the deployment.
        specs: spec of each level from the dataset to the defence; the client without its number of
            victims.
        axes: what varies.
        captured: the cells of its captures, up to the defence.
        scored: False if the captures have no true samples.
        thresholds: at least one.
    """

    deployment: Deployment
    settings: Settings
    specs: Mapping[str, Any]
    axes: tuple[Axis, ...]
    captured: tuple[Cell, ...]
    scored: bool
    thresholds: tuple[Threshold, ...]

    def unscored(self, attacks: Iterable[Any]) -> tuple[Cell, ...]:
        """Return the attacked cells of captures without true samples."""
        if self.scored:
            return ()
        return tuple(
            Cell({**cell.specs, "attack": attack}) for cell in self.captured for attack in attacks
        )

    def client(self, victims: int) -> Any:
        """Return the simulated client with a number of victims."""
        return changed(self.specs["client"], {"victims": victims})

    def at(self, level: str, spec: Any) -> Resolved:
        """Return the deployment with another spec at a level."""
        return replace(self, specs={**self.specs, level: spec})

    def cell(self, attack: Any, **changes: Any) -> Cell:
        """Return the simulated cell of an attack, with other specs at some levels."""
        return Cell({**self.specs, "attack": attack, **changes})


def resolve(deployment: Deployment, folder: Path, settings: Settings) -> Resolved:
    """Return the specs of a deployment.

    Args:
        deployment: the content of the file.
        folder: of the file.
        settings: configuration.

    Raises:
        SpecError: a name is unknown, specs do not fit together, or data are missing; names the key.
    """
    with at_key("data"):
        dataset, settings = _dataset(deployment.data, folder, settings)
    with at_key("model"):
        model = model_of(deployment.model)
    with at_key("captures"):
        captured = tuple(_captured(name, dataset, model, settings) for name in deployment.captures)
        scored = all(_has_truth(cell, settings) for cell in captured)
    training, client = _training_and_client(deployment, captured)
    with at_key("defense"):
        defense = parse("defense", deployment.defense)
        if captured and deployment.defense != "none":
            raise SpecError(
                "captured updates contain their defence already; compare others under defenses"
            )
    crafting = parse("crafting", "honest")
    values = (dataset, model, training, crafting, client, defense)
    with at_key("thresholds"):
        thresholds = _thresholds(deployment.thresholds, dataset.modality)
    with at_key("attacker.grants"):
        for grant in deployment.attacker.grants:
            if grant not in GRANTS:
                raise SpecError(f"unknown grant {grant!r}; {nearest(grant, GRANTS)}")
    specs = dict(zip(LEVELS, values, strict=False))
    axes = read_axes(deployment.vary, specs)
    found = Resolved(deployment, settings, specs, axes, captured, scored, thresholds)
    _check(found)
    return found


def _dataset(written: Any, folder: Path, settings: Settings) -> tuple[Any, Settings]:
    """Return the dataset, and the settings with the folder that contains its images."""
    if isinstance(written, str) and written.partition("+")[0] in load("dataset"):
        return parse("dataset", written), settings
    fields = {"folder": written} if isinstance(written, str) else dict(written)
    if "folder" not in fields:
        raise SpecError("key 'folder' is missing: the folder of the images")
    root = (folder / str(fields["folder"])).resolve()
    if not root.is_dir():
        raise DataError(
            f"{fields['folder']!r} is neither a registered dataset nor a folder in {folder}; "
            f"{nearest(str(fields['folder']), load('dataset'))}"
        )
    dataset = build_spec(find("dataset", "folder"), {**fields, "folder": root.name})
    parse("dataset", str(dataset))
    paths = {"data_dir": root.parent, "captures_dir": settings.captures}
    return dataset, settings.model_copy(update=paths)


def _captured(name: str, dataset: Any, model: Any, settings: Settings) -> Cell:
    """Return the cell of a capture up to its defence."""
    path = Captures(settings.captures).file(name, UPDATE)
    parts = Update.read(path).spec.split("/")
    cell = Cell.parse(dict(zip(LEVELS[:-1], parts, strict=False)), where=str(path))
    if (cell.dataset, cell.model) != (dataset, model):
        raise SpecError(
            f"{name!r} is a capture of model {cell.model} on {cell.dataset}, not of {model} on "
            f"{dataset}; correct model and data, or name another capture"
        )
    return cell


def _has_truth(cell: Cell, settings: Settings) -> bool:
    return (Captures(settings.captures).folder(cell.captured.capture) / PRIVATE).is_file()


def _training_and_client(deployment: Deployment, captured: tuple[Cell, ...]) -> tuple[Any, Any]:
    """Return the training and the simulated client; those of a capture, if there is one."""
    if captured:
        with at_key("client"):
            if deployment.client:
                raise SpecError("captures say what their clients did; leave client out")
        kept = set(FedAvg.model_fields) - {"victims", "repeats", "labels", "classes"}
        fields = {key: value for key, value in captured[0].client if key in kept}
        return captured[0].training, build_spec(FedAvg, fields)
    with at_key("training"):
        training = parse("training", deployment.training)
    with at_key("client"):
        return training, client_of(deployment.client, deployment.vary)


def _thresholds(written: Mapping[str, float], modality: str) -> tuple[Threshold, ...]:
    values = written or DEFAULT_THRESHOLDS[modality]
    return tuple(threshold_of(text, value, modality) for text, value in values.items())


def threshold_of(text: str, value: float, modality: str) -> Threshold:
    """Return a threshold of a metric of single samples.

    Raises:
        SpecError: unknown metric, or one that is not measured for these samples.
    """
    metric = parse("metric", text)
    if not isinstance(metric, MetricSpec) or metric.per != "sample":
        raise SpecError(f"{text} does not measure single samples; use ssim, psnr, mse or lpips")
    for name in metric.weights:
        try:
            check_file(name)
        except ArtifactError as error:
            raise SpecError(f"{text} needs the file {name}: {error}") from None
    if modality not in metric.modalities:
        raise SpecError(f"{text} is not defined for {modality} data; use mse or psnr")
    return Threshold(metric, value)


def _check(found: Resolved) -> None:
    """Check that the specs fit each other, the data and the user's network.

    Raises:
        SpecError: names the key.
    """
    settings, cell = found.settings, Cell(found.specs)
    with at_key("data"):
        cell.dataset.check_data(settings.data_dir, download=settings.download)
        _check_folder(cell.dataset, settings.data_dir)
    with at_key("client"):
        _check_batch(cell, settings.data_dir)
    with at_key("model"):
        cell.upto("training").check()
        check_own_model(cell, settings.data_dir)
    with at_key("training"):
        _check_training(cell, settings.data_dir)
    with at_key("client, defense"):
        cell.check()
    for axis in found.axes:
        with at_key(f"vary.{axis.field}"):
            for value in axis.values:
                _check_varied(Cell({**found.specs, axis.level: value.spec}), settings)


def _check_varied(cell: Cell, settings: Settings) -> None:
    """Raise an error if a spec that varies does not fit those of the deployment, or the data."""
    cell.check()
    _check_batch(cell, settings.data_dir)
    _check_training(cell, settings.data_dir)
    check_own_model(cell, settings.data_dir)


def _check_folder(dataset: Any, data_dir: Path) -> None:
    """Raise an error if an image folder has no classes."""
    if not isinstance(dataset, ImageFolderDataset):
        return
    tests = dataset.root(data_dir) / "test"
    if not tests.is_dir() or not class_folders(tests):
        raise DataError(
            f"{tests}: clients hold images of the test split, but there is no class folder; put "
            f"images into {tests}/<class>/, of at least two classes"
        )


def _check_batch(cell: Cell, data_dir: Path) -> None:
    """Raise an error if the batch of a client is larger than the split that it is drawn from."""
    dataset, client = cell.dataset, cell.client
    client.check(dataset)
    if images := _images(dataset, client.split, data_dir):
        check_batch(client, sum(map(len, images.values())), len(images), str(dataset))


def _check_training(cell: Cell, data_dir: Path) -> None:
    """Raise an error if a folder has too few images for the training."""
    if images := _images(cell.dataset, "train", data_dir):
        cell.training.check_samples(sum(map(len, images.values())), str(cell.dataset))


def _images(dataset: Any, split: str, data_dir: Path) -> Listing:
    """Return the images of a split by class; none if its size is known from the dataset's spec."""
    if not isinstance(dataset, ImageFolderDataset) or dataset.sizes is not None:
        return {}
    folder = dataset.root(data_dir) / split
    return list_images(folder, dataset.limit) if folder.is_dir() else {}
