"""The specs that a deployment stands for, checked before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gleak.artifacts.update import GRANTS, Update
from gleak.assessment.deployment import Deployment
from gleak.assessment.usual_curves import usual_curves
from gleak.captures.locations import PRIVATE, UPDATE, Captures
from gleak.clients.base import ClientSpec, check_batch
from gleak.clients.fedavg import FedAvg
from gleak.core.errors import (
    ArtifactError,
    DataError,
    GleakError,
    IncompatibleError,
    SpecError,
    nearest,
)
from gleak.core.registry import find, load, parse
from gleak.core.settings import Settings
from gleak.core.spec import Spec, build_spec, changed, field_text
from gleak.data.image_folder import ImageFolderDataset, class_folders
from gleak.defenses.base import DefenseSpec, NoDefense
from gleak.metrics.base import MetricSpec, ScoreSpec
from gleak.metrics.discrimination import MembershipMetricSpec
from gleak.metrics.measured_epsilon import EpsilonMeasured
from gleak.metrics.reconstruction.identification import Identified, IdentifiedByChance
from gleak.runtime.hub_weights import check_file
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.own_models import check_own_model
from gleak.training.federated import Federated
from gleak.training.untrained import CapturedModel, Untrained

SHORT_NAMES = {"tpr_at_1": "tpr"}
"""Names of thresholds that are no metrics -> the metric that they stand for."""
DEFAULT_THRESHOLDS = {"image": {"ssim": 0.5}, "tabular": {"mse": 0.001}}
LOCAL = frozenset(FedAvg.model_fields) - frozenset(ClientSpec.model_fields)
"""Fields that only clients with local steps have."""
SIZES = frozenset({"victims", "repeats"})
"""Fields of clients that say how many there are."""
MODEL, TRAINING, ROUNDS = "model", "training", "rounds"
ELSEWHERE = {
    "attack": "name others under the key attacks",
    "data": "write a deployment file for each",
    "defense": "list others under the key defenses",
}
"""Keys of a deployment that cannot be varied, and what to do instead."""


@contextmanager
def at_key(key: str) -> Iterator[None]:
    """Prefix all errors that are raised in the block with a key of the file."""
    try:
        yield
    except GleakError as error:
        raise SpecError(f"{key}: {error}") from None


@dataclass(frozen=True)
class ExposureThreshold:
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
class RateThreshold:
    """A value from which on the rate of an inference, or a measured epsilon, is not acceptable."""

    metric: ScoreSpec
    value: float

    def __str__(self) -> str:
        return f"{self.metric} ≥ {self.value:g}"


@dataclass(frozen=True)
class Varying:
    """A field of a level whose values are compared, that of the deployment among them.

    Args:
        field: of the client, or model, training or rounds, as written in the deployment.
        level: of a cell, whose spec it changes.
        specs: clients without their number of victims; in ascending order of numbers, otherwise in
            the order of the file, the deployed first.
    """

    field: str
    level: str
    specs: tuple[Any, ...]
    deployed: Any

    def text(self, spec: Any) -> str:
        """Return the value of the field in one of the specs, as it is shown."""
        if self.field == self.level:
            return str(spec)
        return field_text(spec, self.field) if hasattr(spec, self.field) else "0"

    def number(self, spec: Any) -> float | None:
        """Return the value of the field if it is a number; an untrained network has 0 rounds."""
        value = None if self.field == self.level else getattr(spec, self.field, 0)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Resolved:
    """A deployment with its specs.

    Args:
        settings: configuration, with the data folder of the deployment.
        specs: spec of each level from the dataset to the defence; the client without its number of
            victims.
        captured: the cells of its captures, up to the defence.
        scored: False if the captures have no true samples.
        thresholds: on recovered samples; at least one.
        rates: thresholds on who took part, on identified samples and on a measured epsilon, if any
            are given.
        limits: thresholds of the command line, which decide the exit code in place of the verdict.
    """

    deployment: Deployment
    settings: Settings
    specs: Mapping[str, Any]
    varied: tuple[Varying, ...]
    captured: tuple[Cell, ...]
    scored: bool
    thresholds: tuple[ExposureThreshold, ...]
    rates: tuple[RateThreshold, ...] = ()
    limits: tuple[ExposureThreshold, ...] = ()

    @property
    def metrics(self) -> list[str]:
        """Metrics of single samples of all thresholds."""
        metrics: list[ScoreSpec] = [each.metric for each in (*self.thresholds, *self.limits)]
        for each in self.rates_of(Identified):
            metrics += [each.metric, IdentifiedByChance(**dict(each.metric))]
        return list(dict.fromkeys(map(str, metrics)))

    def rates_of(self, kind: type[ScoreSpec]) -> list[RateThreshold]:
        """Return the thresholds on rates whose metric is of a class."""
        return [each for each in self.rates if isinstance(each.metric, kind)]

    @property
    def scored_captures(self) -> tuple[Cell, ...]:
        """The captures whose recovered samples can be compared with the true ones."""
        return self.captured if self.scored else ()

    @property
    def compares_defenses(self) -> bool:
        """True if there is a defence beside none, which shows whether the attacks work."""
        return len(self.defenses) > 1

    def unscored(self, attacks: Iterable[Any]) -> tuple[Cell, ...]:
        """Return the attacked cells of captures without true samples."""
        if self.scored:
            return ()
        return tuple(
            Cell({**cell.specs, "attack": attack}) for cell in self.captured for attack in attacks
        )

    @property
    def defenses(self) -> dict[str, Any]:
        """The defences by their specs: none, that in use, and those to compare."""
        with at_key("defenses"):
            others = [parse("defense", text) for text in self.deployment.defenses]
        return {str(spec): spec for spec in (NoDefense(), self.specs["defense"], *others)}

    @property
    def trainings(self) -> dict[str, str]:
        """The deployment's training under each defence, by the defence; none if not federated."""
        training = self.specs[TRAINING]
        if training.name != Federated.name:
            return {}
        return {
            text: str(changed(training, {"defense": defense}))
            for text, defense in self.defenses.items()
        }

    def at(self, level: str, spec: Any) -> Resolved:
        """Return the deployment with another spec at a level."""
        return replace(self, specs={**self.specs, level: spec})


def with_victims(spec: Any, victims: int) -> Any:
    """Return a client with a number of victims, and any other spec as it is."""
    return changed(spec, {"victims": victims}) if spec.kind == "client" else spec


def resolve(
    deployment: Deployment,
    folder: Path,
    settings: Settings,
    fail_above: Mapping[str, float] | None = None,
) -> Resolved:
    """Return the specs of a deployment whose file is in a folder, with limits by their metrics.

    Raises:
        SpecError: a name is unknown, specs do not fit together, or data are missing; names the key.
    """
    with at_key("data"):
        dataset, settings = dataset_of(deployment.data, folder, settings)
    with at_key("model"):
        model = model_of(deployment.model)
    with at_key("captures"):
        captured = tuple(_captured(name, dataset, model, settings) for name in deployment.captures)
    captures = Captures(settings.captures)
    scored = all((captures.folder(c.captured.capture) / PRIVATE).is_file() for c in captured)
    if captured:
        with at_key("client"):
            if deployment.client:
                raise SpecError("captures say what their clients did; leave client out")
        kept = set(FedAvg.model_fields) - {*SIZES, "labels", "classes"}
        training = captured[0].training
        client = build_spec(FedAvg, {key: v for key, v in captured[0].client if key in kept})
        client = _drawn_from_enough(client, dataset, settings.data_dir)
    else:
        with at_key("training"):
            training = parse("training", deployment.training)
        with at_key("client"):
            _check_no_size(deployment.client)
            fields = dict(deployment.client)
            default = "fedavg" if LOCAL & {*fields, *deployment.vary} else "fedsgd"
            client = build_spec(find("client", str(fields.pop("name", default))), fields)
    with at_key("defense"):
        defense = _defense_of(deployment.defense, captured)
    with at_key("thresholds"):
        thresholds, rates = thresholds_of(deployment.thresholds, dataset.modality)
    with at_key("--fail-above"):
        given = (fail_above or {}).items()
        limits = tuple(threshold_of(text, value, dataset.modality) for text, value in given)
    with at_key("attacker.grants"):
        for grant in deployment.attacker.grants:
            if grant not in GRANTS:
                raise SpecError(f"unknown grant {grant!r}; {nearest(grant, GRANTS)}")
    levels = (dataset, model, training, parse("crafting", "honest"), client, defense)
    specs = dict(zip(LEVELS, levels, strict=False))
    curves = usual_curves(training, specs["client"]) if deployment.curves else {}
    vary = {**curves, **deployment.vary}
    varied = tuple(_varying(field, others, specs) for field, others in vary.items())
    resolved = Resolved(
        deployment, settings, specs, varied, captured, scored, thresholds, rates, limits
    )
    _check(resolved)
    return resolved


def dataset_of(written: Any, folder: Path, settings: Settings) -> tuple[Any, Settings]:
    """Return a dataset, and the settings with the folder that contains its images.

    Args:
        written: a spec, a folder of images, or the fields of such a dataset with the key folder. A
            folder that is a link keeps its name.
        folder: to which the folder of images is relative.
        settings: configuration.

    Raises:
        DataError: neither a registered dataset nor a folder.
        SpecError: a field is unknown or invalid.
    """
    if isinstance(written, str) and written.partition("+")[0] in load("dataset"):
        return parse("dataset", written), settings
    fields = {"folder": written} if isinstance(written, str) else dict(written)
    if "folder" not in fields:
        raise SpecError("key 'folder' is missing: the folder of the images")
    root = Path(os.path.abspath(folder / str(fields["folder"])))  # noqa: PTH100 (a link keeps its name)
    if not root.is_dir():
        raise DataError(
            f"{fields['folder']!r} is neither a registered dataset nor a folder in {folder}; "
            f"{nearest(str(fields['folder']), load('dataset'))}"
        )
    dataset = build_spec(find("dataset", "folder"), {**fields, "folder": root.name})
    parse("dataset", str(dataset))
    paths = {"data_dir": root.parent, "captures_dir": settings.captures}
    return dataset, settings.model_copy(update=paths)


def model_of(written: str) -> Any:
    """Return a model; a name with a dot is a user's function."""
    name = written.partition("+")[0]
    own = "." in name and "=" not in name
    return parse("model", f"custom+factory={written}" if own else written)


def _check_no_size(fields: Iterable[str]) -> None:
    for field in fields:
        if field in SIZES:
            raise SpecError(f"field {field!r} is not for the client; use the key victims beside it")


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


def _defense_of(written: str, captured: Sequence[Cell]) -> DefenseSpec:
    """Return the defence of a deployment, or the one with which its captures were imported."""
    deployed: DefenseSpec = parse("defense", written)
    stated = {cell.defense for cell in captured} or {deployed}
    if len(stated) > 1 or (written != "none" and deployed not in stated):
        names = " and ".join(sorted(map(str, stated)))
        raise SpecError(f"captures were imported with {names}; assess one, and leave defense out")
    return stated.pop()


def thresholds_of(
    given: Mapping[str, float], modality: str
) -> tuple[tuple[ExposureThreshold, ...], tuple[RateThreshold, ...]]:
    """Return thresholds on recovered samples, by default those of the modality, and on rates."""
    rates = {text: rate for text, v in given.items() if (rate := _rate_of(text, v, modality))}
    samples = {text: value for text, value in given.items() if text not in rates}
    samples = samples or DEFAULT_THRESHOLDS[modality]
    thresholds = (threshold_of(text, value, modality) for text, value in samples.items())
    return tuple(thresholds), tuple(rates.values())


def _rate_of(text: str, value: float, modality: str) -> RateThreshold | None:
    """Return a threshold on a rate or on epsilon; None if the metric is none of these."""
    metric = parse("metric", SHORT_NAMES.get(text, text))
    if isinstance(metric, EpsilonMeasured):
        if value <= 0:
            raise SpecError(f"{text}: {value:g} is no epsilon; give a number above 0")
        return RateThreshold(metric, value)
    if not isinstance(metric, Identified | MembershipMetricSpec) or metric.better == "lower":
        return None
    if not 0 < value <= 1:
        raise SpecError(f"{text}: {value:g} is no share; give a number above 0, at most 1")
    if isinstance(metric, MetricSpec) and modality not in metric.modalities:
        raise SpecError(f"{text} is not defined for {modality} data; use mse or tpr_at_1")
    return RateThreshold(metric, value)


def threshold_of(text: str, value: float, modality: str) -> ExposureThreshold:
    """Return a threshold of a metric that is measured of single samples of a modality."""
    metric = parse("metric", SHORT_NAMES.get(text, text))
    if not isinstance(metric, MetricSpec) or metric.per != "sample":
        raise SpecError(
            f"{text} does not measure single recovered samples; use ssim, psnr, mse or lpips, and "
            "for who took part or epsilon tpr_at_1, auc or epsilon_measured under thresholds"
        )
    for name in metric.weights:
        try:
            check_file(name)
        except ArtifactError as error:
            raise SpecError(f"{text} needs the file {name}: {error}") from None
    if modality not in metric.modalities:
        raise SpecError(f"{text} is not defined for {modality} data; use mse or psnr")
    return ExposureThreshold(metric, value)


def _varying(field: str, written: Sequence[Any], specs: Mapping[str, Any]) -> Varying:
    """Return what a key below vary compares."""
    level = {MODEL: MODEL, TRAINING: TRAINING, ROUNDS: TRAINING}.get(field, "client")
    deployed = specs[level]
    with at_key(f"vary.{field}"):
        if field == MODEL and isinstance(specs[TRAINING], CapturedModel):
            raise SpecError(
                f"the captured parameters are those of model {deployed}; assess other models in a "
                "deployment without captures"
            )
        others = [_other(deployed, field, value) for value in written]
    compared = Varying(field, level, tuple(dict.fromkeys([deployed, *others])), deployed)
    numbers = {spec: compared.number(spec) for spec in compared.specs}
    if None in numbers.values():
        return compared
    return replace(compared, specs=tuple(sorted(numbers, key=lambda spec: numbers[spec] or 0.0)))


def _other(deployed: Any, field: str, value: Any) -> Spec:
    """Return the spec of the deployment with another value of a field, or another spec."""
    if field == MODEL:
        return model_of(str(value))
    if field == TRAINING:
        return parse(TRAINING, str(value))
    if field == ROUNDS:
        return _with_rounds(deployed, value)
    _check_no_size([field])
    if field in ELSEWHERE:
        raise SpecError(f"{field!r} cannot be varied; {ELSEWHERE[field]}")
    fields = [name for name in type(deployed).model_fields if name not in SIZES]
    if field not in fields:
        hint = nearest(field, [*fields, MODEL, TRAINING, ROUNDS])
        raise SpecError(f"{field!r} cannot be varied for client {deployed.name!r}; {hint}")
    return changed(deployed, _with_used_samples(deployed, {field: value}))


def _with_used_samples(client: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes of a client, whose steps and samples are made to fit.

    Steps take all samples if there are fewer than a step takes, as those of
    `torch.utils.data.DataLoader`, but for ``drop_last``, without which none is left. A client that
    takes fewer steps than an epoch has the samples of these.
    """
    step, size = getattr(client, "mini_batch", None), changes.get("batch_size")
    steps = changes.get("local_steps")
    if step is None:
        return changes
    if isinstance(size, int) and 0 < size < step and not getattr(client, "drop_last", False):
        return {**changes, "mini_batch": None}
    if isinstance(steps, int) and 0 < steps * step < client.batch_size:
        return {**changes, "batch_size": steps * step}
    return changes


def _with_rounds(training: Any, rounds: Any) -> Spec:
    """Return the federated training of the rounds before that of the update; 0 is no training."""
    if isinstance(training, Untrained):
        training = Federated(**dict(training))
    if not isinstance(training, Federated):
        remedy = f"set training: federated, or vary {{{TRAINING}: [untrained, {training}]}}"
        if isinstance(training, CapturedModel):
            remedy = "list captures of several rounds under captures (gleak import --rounds)"
        raise SpecError(f"training {training} has no federated rounds; {remedy}")
    if str(rounds) == "0":
        return Untrained(**{key: getattr(training, key) for key in Untrained.model_fields})
    return changed(training, {"rounds": rounds})


def _check(resolved: Resolved) -> None:
    """Check that the specs fit each other, the data and the user's network."""
    settings, cell = resolved.settings, Cell(resolved.specs)
    with at_key("data"):
        cell.dataset.check_data(settings.data_dir, download=settings.download)
        if isinstance(cell.dataset, ImageFolderDataset):
            tests = cell.dataset.root(settings.data_dir) / "test"
            if not tests.is_dir() or not class_folders(tests):
                raise DataError(
                    f"{tests}: clients hold images of the test split, but there is no class "
                    f"folder; put images into {tests}/<class>/, of at least two classes"
                )
    with at_key("client"):
        _check_batch(cell.client, cell.dataset, settings.data_dir)
    with at_key("model"):
        cell.upto("training").check()
        check_own_model(cell, settings.data_dir)
    with at_key("training"):
        _check_training(cell, settings.data_dir)
    with at_key("client, defense"):
        cell.check()
    for varying in resolved.varied:
        with at_key(f"vary.{varying.field}"):
            for spec in varying.specs:
                other = Cell({**resolved.specs, varying.level: spec})
                other.check()
                _check_batch(other.client, other.dataset, settings.data_dir)
                _check_training(other, settings.data_dir)
                check_own_model(other, settings.data_dir)


def _drawn_from_enough(client: Any, dataset: Any, data_dir: Path) -> Any:
    """Return a client of training samples in place of one for which the test split is too small."""
    try:
        _check_batch(client, dataset, data_dir)
    except IncompatibleError:
        return changed(client, {"split": "train"})
    return client


def _check_batch(client: Any, dataset: Any, data_dir: Path) -> None:
    """Raise an error if the batch of a client is larger than the split that it is drawn from."""
    client.check(dataset)
    size, classes = dataset.size_in(data_dir, client.split), dataset.classes_in(data_dir)
    check_batch(client, size, classes, str(dataset))


def _check_training(cell: Cell, data_dir: Path) -> None:
    """Raise an error if the train split has too few samples for the training."""
    size = cell.dataset.size_in(data_dir, "train")
    if size is not None:
        cell.training.check_samples(size, str(cell.dataset))
