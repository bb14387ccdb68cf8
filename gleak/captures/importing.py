"""Import of a capture from state dicts, and its report, for ``gleak import``."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.atomic import whole_folder
from gleak.artifacts.encodings import Encoded
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.store import Artifact
from gleak.artifacts.update import Update
from gleak.captures.locations import MODEL, PRIVATE, UPDATE, Captures
from gleak.captures.plausibility import (
    FREEZE,
    are_not_parameters,
    are_parameters,
    decays,
    doubt,
)
from gleak.captures.round_folder import Files, State, read_state, recorded_fields
from gleak.captures.truth import (
    CANDIDATES,
    Fit,
    UpdateComparison,
    compare_updates,
    read_truth,
)
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.errors import ArtifactError, SpecError
from gleak.core.spec import build_spec, format_spec, format_value
from gleak.defenses.base import NoDefense
from gleak.defenses.sending import encode_received
from gleak.models.broadcast import load_network, with_state
from gleak.models.custom import Custom
from gleak.models.parameters import trained_parameters
from gleak.optimizers.schedules import Listed
from gleak.optimizers.sgd import SGD
from gleak.runtime.hub_weights import check_weights
from gleak.simulation.victims import join_updates
from gleak.studies.cell import LEVELS, Cell, Paths
from gleak.training.untrained import missing_counters

EXAMPLE = "invertgrad"
WRAPPERS = ("module.", "_orig_mod.")
"""What wrappers (data-parallel training, torch.compile) put before the names of a state dict."""
log = logging.getLogger(__name__)


class Capture(NamedTuple):
    """The folder of a capture, and how its updates fit to the training that is given.

    Args:
        folder: that was written.
        comparison: with the true samples; None if they are not known.
        doubt: without them, why the updates cannot be of that training, or None.
        recorded: True if the learning rate is one that `gleak.capture` has seen.
    """

    folder: Path
    comparison: UpdateComparison | None
    doubt: str | None = None
    recorded: bool = False

    @property
    def agrees(self) -> bool:
        """True if nothing speaks against the training that is given."""
        return self.doubt is None and (self.comparison is None or self.comparison.agrees)


def import_capture(
    cell: Cell, files: Files, captures: Captures, data_dir: Path, *, replace: bool = False
) -> Capture:
    """Check the files of a capture and write it to ``<captures_dir>/<name>/``.

    Nothing is written before everything is checked.

    Args:
        cell: up to the defence; its training and client name the capture.
        files: of the round.
        captures: folder of all captures; the folder that contains it must exist.
        data_dir: data folder, for datasets whose number of classes depends on the files.
        replace: an existing capture of that name.

    Raises:
        ArtifactError: a file is invalid.
        DataError: the capture already exists, there is no folder for it, or the dataset is missing.
        IncompatibleError: the model cannot be built.
    """
    captures.check_new(cell.captured.capture, replace=replace)
    folder = captures.folder(cell.captured.capture)
    if files.truth and len(files.truth) != len(files.sent):
        raise ArtifactError(
            f"--truth: {len(files.truth)} files, but {len(files.sent)} clients; give one file per "
            "client in the same order, or none"
        )
    classes = cell.dataset.classes or cell.dataset.load(data_dir, 0).classes
    network = cell.model.build(cell.dataset.shape, classes).eval()
    cell.defense.check_network(network, cell.dataset.shape)
    sent = _as_sent(cell, _read_sent(network, files, cell.client.protocol))
    model = Model(
        spec=str(cell.upto("training")),
        model=str(cell.model),
        modality=cell.dataset.modality,
        classes=classes,
        input_shape=np.array(cell.dataset.shape),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )
    artifacts: dict[str, Artifact] = {
        MODEL: with_state(model, network),
        UPDATE: Update(
            spec=str(cell),
            update=join_updates(sent, axis=0),
            protocol=cell.defense.protocol_of(cell.client),
        ),
    }
    comparison, unlikely, recorded = None, None, False
    if files.truth:
        truth = read_truth(files.truth, cell.captured, cell.dataset, classes)
        comparison = compare_updates(cell.captured, network, sent, truth, cell.defense, files.kept)
        artifacts[PRIVATE] = truth
        if comparison.fits:
            recorded = "local_lr" in recorded_fields(files.sent)
    else:
        unlikely = _doubt(cell, sent)
    with whole_folder(folder) as temporary:
        for name, artifact in artifacts.items():
            artifact.write(temporary / name)
    return Capture(folder, comparison, unlikely, recorded)


def check_again(cell: Cell, captures: Captures) -> Capture:
    """Compare a capture that is there with its true samples, or look for contradictions.

    Args:
        cell: of the capture, up to its defence.
        captures: folder of all captures.

    Raises:
        ArtifactError: a file of the capture is damaged.
        DataError: there is no such capture.
    """
    name, client = cell.captured.capture, cell.captured
    folder, file = captures.folder(name), captures.file(name, UPDATE)
    numbers = range(client.victims)
    sent = [Update.read(file, victims=slice(one, one + 1)).update for one in numbers]
    if (folder / PRIVATE).is_file():
        broadcast = captures.file(name, MODEL)
        network = load_network(Model.read(broadcast), str(broadcast))
        truth = Private.read(folder / PRIVATE)
        return Capture(folder, compare_updates(client, network, sent, truth, cell.defense))
    return Capture(folder, None, _doubt(cell, sent))


def _doubt(cell: Cell, sent: list[dict[str, Encoded]]) -> str | None:
    """Return why updates may not be of a cell, or None, as of those that a defence changed."""
    if not isinstance(cell.defense, NoDefense):
        return None
    joined = join_updates(sent, axis=0)
    return doubt(cell.client.protocol, {name: own.decode() for name, own in joined.items()})


def _as_sent(cell: Cell, updates: Iterable[State]) -> list[dict[str, Encoded]]:
    """Encode the update of each client, Shape (*shape), as the defence sends it."""
    try:
        return [
            encode_received(cell.defense, {name: value[None] for name, value in update.items()})
            for update in updates
        ]
    except ArtifactError as error:
        raise ArtifactError(f"capture {cell.captured.capture}: {error}") from None


def _read_sent(network: nn.Module, files: Files, protocol: Protocol) -> list[State]:
    """Load the broadcast state into the network; return the update of each client."""
    state = network.state_dict()
    before = _read(files.before, state)
    counters = missing_counters(before, state)
    _check(files.before, before, network, state, counters)
    network.load_state_dict({**before, **counters})
    return [
        _gradient(network, path)
        if protocol.content == "gradient"
        else _difference(network, before, path, decays(protocol))
        for path in files.sent
    ]


def _read(path: Path, own: Collection[str]) -> State:
    """Read tensors by name, without a wrapper's prefix if the names are the network's then."""
    tensors, prefix = read_state(path), ""
    while found := [each for each in WRAPPERS if _begin(tensors, prefix + each)]:
        prefix += found[0]
    named = {name.removeprefix(prefix): value for name, value in tensors.items()}
    if not prefix or not named.keys() <= {*own}:
        return tensors
    log.warning("%s: %s, which a wrapper puts before all names, is left out", path, prefix)
    return named


def _begin(names: Collection[str], prefix: str) -> bool:
    return bool(names) and all(name.startswith(prefix) for name in names)


def _gradient(network: nn.Module, path: Path) -> State:
    """Read a client's gradients."""
    parameters = trained_parameters(network)
    sent = _read(path, parameters)
    _check(path, sent, network, {**parameters})
    if are_parameters(sent, {name: value.detach() for name, value in parameters.items()}):
        raise ArtifactError(
            f"{path}: these are the parameters of the model, not gradients; give the state dict "
            "after training with --after"
        )
    return {name: sent[name].float() for name in parameters}


def _difference(network: nn.Module, before: State, path: Path, decayed: bool) -> State:
    """Read a client's parameters after training, and subtract those before; ignore buffers.

    Unless weight decay can have removed the parameters, they are expected to be alike.
    """
    expected = network.state_dict()
    after = _read(path, expected)
    names = trained_parameters(network).keys()
    left_out = [name for name in names if name not in after]
    if left_out and after.keys() <= expected.keys():
        raise ArtifactError(
            f"{path}: {', '.join(left_out)} missing, such as by a filter of the framework that "
            "leaves parameters out; give the state before the filter, or a model that freezes them "
            "(requires_grad_(False)), to attack the others alone"
        )
    _check(path, after, network, expected, expected.keys() - {*names})
    for name, _ in network.named_parameters():
        if name not in names and name in after and not torch.equal(after[name], before[name]):
            raise ArtifactError(
                f"{path}: {name} differs from the broadcast value, but the model freezes it; set "
                "requires_grad on it where the model is built, or give the states of another model"
            )
    sent = {name: (floating(after[name]) - floating(before[name])).float() for name in names}
    if not any(value.any() for value in sent.values()):
        raise ArtifactError(
            f"{path}: the parameters equal the broadcast ones, so there is no update; give the "
            "state after training"
        )
    if not decayed and are_not_parameters({name: after[name] for name in names}, before):
        raise ArtifactError(
            f"{path}: these are not the parameters after training, as they have nothing in common "
            "with those before; give gradients with --gradients, and the state dict after training "
            "itself, not a difference, with --after"
        )
    return sent


def floating(value: Tensor) -> Tensor:
    """Return values in double precision if they have it, else in single precision."""
    return value if value.dtype == torch.float64 else value.float()


def _check(
    path: Path, tensors: State, network: nn.Module, state: State, kept: Collection[str] = ()
) -> None:
    """Check names and shapes by `check_weights`, and that parameters are floating point."""
    check_weights(path, tensors, state, kept)
    for name in trained_parameters(network):
        if not tensors[name].is_floating_point():
            raise ArtifactError(
                f"{path}: {name} has {tensors[name].dtype} values; give floating point parameters, "
                "dequantised if the network is quantised"
            )


def captured_cell(
    name: str, dataset: str, model: str, defense: str = "none", **client: Any
) -> Cell:
    """Return the cell of a capture, with fields of `CapturedUpdates` and an attack for every model.

    Raises:
        SpecError: a spec or field is unknown or invalid, a path is too long, the batch size is
            missing, or weights were sent without the learning rate, by which attackers scale their
            difference.
        IncompatibleError: the specs do not fit together.
    """
    if "batch_size" not in client:
        raise SpecError("--batch-size is missing: give the number of samples of a client's update")
    if client["sends"] == "weights" and "local_lr" not in client:
        raise SpecError("--local-lr is missing: give the learning rate of the clients")
    clients: Any = build_spec(CapturedUpdates, {**client, "capture": name})
    training = f"captured+capture={name}"
    specs = (dataset, model, training, "honest", str(clients), defense, EXAMPLE)
    try:
        return Cell.parse(dict(zip(LEVELS, specs, strict=True)))
    except SpecError as error:
        if not isinstance(clients.schedule, Listed):
            raise
        raise SpecError(
            f"{error}; most of it are the {clients.local_steps} listed learning rates: train the "
            "captured round with a schedule that has a name (gleak list schedule), or import with "
            "--before, --after and the --schedule that is next to it"
        ) from None


def describe_capture(cell: Cell, capture: Capture, results: Path, config: Mapping[str, Any]) -> str:
    """Describe a capture of a cell, with the command that attacks it given this configuration."""
    client = cell.captured
    file = "reconstruction.h5" if capture.comparison is None else "scores.csv"
    words = ["snakemake", str(Paths(results).folder(cell) / file)]
    modules = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    known = {Path(folder).resolve() for folder in modules}
    if cell.model.name == Custom.name and Path.cwd() not in known:
        words.insert(0, "PYTHONPATH=.")
    if config:
        words += ["--config", *(f"{key}={value}" for key, value in config.items())]
    return "\n".join(
        [
            f"{capture.folder}: {client.victims} clients of {client.batch_size} samples, "
            f"{client.protocol.content}s",
            describe_agreement(capture, client),
            "attack it with this command, or with another attack in the path:",
            shlex.join(words),
        ]
    )


def describe_agreement(capture: Capture, client: CapturedUpdates) -> str:
    """Describe how well the updates agree with the true samples; a warning if they do not."""
    comparison = capture.comparison
    if comparison is not None and comparison.random is not None and comparison.state_known:
        return _describe_defended(comparison)
    if comparison is None:
        text = "without true samples: attacks can run, but cannot be scored"
        return text if capture.doubt is None else f"{text}\nwarning: {capture.doubt}"
    text = f"relative error of the updates computed from the true samples: {comparison.error:.2g}"
    if comparison.agrees:
        return f"{text}\nwarning: {_still(comparison)}" if comparison.unmoved else text
    return (
        f"warning: {comparison.differing} of {client.victims} updates differ from those computed "
        f"from the true samples, by up to {100 * comparison.error:.0f}% of their norm: "
        f"{_cause(comparison, client, capture.recorded)}"
    )


def _describe_defended(comparison: UpdateComparison) -> str:
    """Describe how well updates agree with the true samples' under the clients' defence."""
    random = max(comparison.random or (0.0,))
    text = (
        "relative error of the updates computed from the true samples under the defence: "
        f"{comparison.error:.2g}, of two draws of the defence {random:.2g}"
    )
    if comparison.agrees:
        dominated = "; noise dominates the updates, so that this says little about the training"
        return text + dominated * (random > 1)
    return (
        f"warning: {text}, which differs for {comparison.differing} of {len(comparison.errors)} "
        "clients: check the training as without a defence, and the numbers of --defense; a smaller "
        "error means less noise than the defence adds"
    )


def _cause(comparison: UpdateComparison, client: CapturedUpdates, recorded: bool) -> str:
    """Return the most probable reason of a difference, and what to do."""
    if comparison.unmoved:
        return _still(comparison)
    if not comparison.state_known:
        return (
            "the optimizer began with the state of an earlier round (state=kept), which is not "
            "known, so that no samples give the update; capture the round with its truth, by "
            "which the state is recorded, too, or one that begins with a new optimizer"
        )
    if comparison.factor < 0:
        return (
            "they have the opposite direction; check that --before and --after are not swapped, "
            "and that gradients are not differences of weights"
        )
    given = f"the learning rate {format_value(client.local_lr)}"
    best = comparison.fits[0] if comparison.fits else None
    own = next((fit for fit in comparison.fits if fit.optimizer == client.optimizer), None)
    factor = _loss_factor(own, client) if own is not None and own.agrees else None
    if recorded and factor is not None:
        return f"they agree if {factor}"
    if best is not None and best.agrees and not recorded:
        options = f"--local-lr {format_value(best.rate)}"
        if best.optimizer != client.optimizer:
            options = f"--optimizer {format_spec(best.optimizer, '~')} {options}"
            given = f"{client.optimizer} and {given}"
        other = f"; they also agree if {factor}" if factor is not None else ""
        return f"they agree with {options} in place of {given}; import again with --replace{other}"
    tried = ", ".join(CANDIDATES)
    fit = f"; neither {client.optimizer} nor one of {tried} fits better at any rate"
    if best is not None:
        fit = (
            f"; of {client.optimizer} and {tried}, {format_spec(best.optimizer, '~')} fits best, "
            f"at the rate {format_value(best.rate)}, up to {100 * best.error:.0f}% of the norm"
        )
    return (
        f"attacks assume the training as given: check batch size, steps, {given}, optimizer, "
        "schedule, clipping, loss and order, that batch normalisation was in "
        f"{client.batch_norm} mode (--batch-norm), that inputs are those of the network, that "
        "there was no dropout, and the defence (--defense; best factor: "
        f"{comparison.factor:.3g}{fit})"
        f"{_random_causes(comparison)}"
    )


def _loss_factor(fit: Fit, client: CapturedUpdates) -> str | None:
    """Say which factor of the loss has the same effect as another rate, or None if none has."""
    clipped = client.clip_norm is not None or client.clip_value is not None
    if not isinstance(fit.optimizer, SGD) or clipped:
        return None
    return (
        f"the loss of the training was about {fit.rate / client.local_lr:.2g} times the mean "
        f"{client.loss.replace('_', '-')} of a step's samples: by label smoothing (import again "
        "with --label-smoothing and --replace), class weights, or a sum over samples or "
        "accumulated batches in place of their mean"
    )


def _still(comparison: UpdateComparison) -> str:
    """Say which parameters did not move, and what to do."""
    return (
        f"{', '.join(comparison.unmoved)} did not move in any update, though the true samples move "
        f"them; if the training froze them, {FREEZE} with --replace"
    )


def _random_causes(comparison: UpdateComparison) -> str:
    """Say how far what is drawn at random would change the first update, the likeliest first."""
    causes = sorted(comparison.causes, key=lambda cause: abs(cause.change - comparison.errors[0]))
    told = [f"{cause.name} changes it by about {100 * cause.change:.0f}%" for cause in causes]
    own = f"the first client's update differs by {100 * comparison.errors[0]:.0f}%"
    return f"; {own}, and {', '.join(told)}" if told else ""
