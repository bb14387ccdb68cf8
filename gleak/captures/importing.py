"""Import of a capture from state dicts, for ``gleak import``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.atomic import whole_folder
from gleak.artifacts.encodings import Dense, Encoded
from gleak.artifacts.model import Model
from gleak.artifacts.store import Artifact
from gleak.artifacts.update import Update
from gleak.captures.locations import MODEL, PRIVATE, UPDATE, Captures
from gleak.captures.round_folder import Files
from gleak.captures.states import State, read_state
from gleak.captures.truth import Comparison, compare_updates, read_truth
from gleak.core.errors import ArtifactError
from gleak.models.broadcast import with_state
from gleak.models.parameters import trained_parameters
from gleak.runtime.hub_weights import check_weights
from gleak.studies.cell import Cell
from gleak.training.initialisation import missing_counters


@dataclass(frozen=True)
class Capture:
    """An imported capture.

    Args:
        folder: folder of the capture.
        comparison: of the updates with the true samples; None without true samples.
    """

    folder: Path
    comparison: Comparison | None


def import_capture(
    cell: Cell, files: Files, captures: Captures, data_dir: Path, *, replace: bool = False
) -> Capture:
    """Check the files of a capture and write it to ``<captures_dir>/<name>/``.

    Nothing is written before everything is checked.

    Args:
        cell: up to the defence; its training and client name the capture.
        files: input files.
        captures: folder of all captures; the folder that contains it must exist.
        data_dir: data folder, for datasets whose number of classes depends on the files.
        replace: replace an existing capture of that name.

    Raises:
        ArtifactError: a file is invalid.
        DataError: the capture already exists, there is no folder for it, or the dataset is missing.
        IncompatibleError: the model cannot be built.
    """
    captures.check_new(cell.captured.capture, replace=replace)
    folder = captures.folder(cell.captured.capture)
    _check_counts(files)
    classes = cell.dataset.classes or cell.dataset.load(data_dir, 0).classes
    network = cell.model.build(cell.dataset.shape, classes).eval()
    sent = _read_sent(network, files, cell.client.content)
    update: dict[str, Encoded] = {name: Dense(value) for name, value in sent.items()}
    protocol = {"content": cell.client.content, **cell.client.protocol}
    artifacts: dict[str, Artifact] = {
        MODEL: with_state(_model_artifact(cell, classes), network),
        UPDATE: Update(spec=str(cell), update=update, **protocol),
    }
    comparison = None
    if files.truth:
        truth = read_truth(files.truth, cell.captured, cell.dataset, classes)
        comparison = compare_updates(cell.captured, network, sent, truth)
        artifacts[PRIVATE] = truth
    with whole_folder(folder) as temporary:
        for name, artifact in artifacts.items():
            artifact.write(temporary / name)
    return Capture(folder, comparison)


def _check_counts(files: Files) -> None:
    if files.truth and len(files.truth) != len(files.sent):
        raise ArtifactError(
            f"--truth: {len(files.truth)} files, but {len(files.sent)} clients; give one file per "
            "client in the same order, or none"
        )


def _model_artifact(cell: Cell, classes: int) -> Model:
    """Return the artifact of a model without its parameters."""
    return Model(
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


def _read_sent(network: nn.Module, files: Files, content: str) -> dict[str, np.ndarray]:
    """Load the broadcast state into the network; return the updates, Shape (V, 1, *shape)."""
    before = read_state(files.before)
    state = network.state_dict()
    counters = missing_counters(before, state)
    _check(files.before, before, network, state, counters)
    network.load_state_dict({**before, **counters})
    if content == "gradient":
        clients = [_gradient(network, path) for path in files.sent]
    else:
        clients = [_difference(network, before, path) for path in files.sent]
    return {
        name: torch.stack([sent[name] for sent in clients])[:, None].numpy() for name in clients[0]
    }


def _gradient(network: nn.Module, path: Path) -> State:
    """Read a client's gradients."""
    sent, parameters = read_state(path), trained_parameters(network)
    _check(path, sent, network, {**parameters})
    return {name: sent[name].float() for name in parameters}


def _difference(network: nn.Module, before: State, path: Path) -> State:
    """Read a client's parameters after training, and subtract those before; ignore buffers."""
    after, expected = read_state(path), network.state_dict()
    names = trained_parameters(network).keys()
    _check(path, after, network, expected, expected.keys() - {*names})
    _check_frozen(path, after, before, network)
    sent = {
        name: (_at_least_float32(after[name]) - _at_least_float32(before[name])).float()
        for name in names
    }
    if not any(value.any() for value in sent.values()):
        raise ArtifactError(
            f"{path}: the parameters equal the broadcast ones, so there is no update; give the "
            "state after training"
        )
    return sent


def _check_frozen(path: Path, after: State, before: State, network: nn.Module) -> None:
    """Check that frozen parameters are unchanged or missing."""
    trained = trained_parameters(network)
    for name, _ in network.named_parameters():
        if name not in trained and name in after and not torch.equal(after[name], before[name]):
            raise ArtifactError(
                f"{path}: {name} differs from the broadcast value, but the model freezes it; set "
                "requires_grad on it where the model is built, or give the states of another model"
            )


def _at_least_float32(value: Tensor) -> Tensor:
    """Convert a tensor to at least single precision, so that a difference is not rounded."""
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
