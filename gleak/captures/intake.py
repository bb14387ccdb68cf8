"""What ``gleak import`` does: from state dicts to a capture, checked whole before it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from gleak.captures.folder import MODEL, PRIVATE, UPDATE, Captures
from gleak.captures.states import State, read_state
from gleak.captures.truth import disagreement, read_truth
from gleak.core.errors import ArtifactError, DataError
from gleak.experiments.cell import Cell
from gleak.models.broadcast import with_state
from gleak.models.parameters import trained_parameters
from gleak.runtime.hub_weights import check_weights
from gleak.training.initialisation import missing_counters


@dataclass(frozen=True)
class Files:
    """What was captured, as safetensors.

    Args:
        before: the state dict that was broadcast.
        sent: of each client, the state dict after its training, or its gradients by parameter.
        truth: of each client ``inputs`` and ``labels``; none where they are not known.
    """

    before: Path
    sent: Sequence[Path]
    truth: Sequence[Path] = ()


@dataclass(frozen=True)
class Capture:
    """A capture that was taken in.

    Args:
        folder: where it is.
        disagreement: see `gleak.captures.truth.disagreement`; None without truth.
    """

    folder: Path
    disagreement: float | None


def import_capture(cell: Cell, files: Files, data_dir: Path, *, replace: bool = False) -> Capture:
    """Check what was captured and write it to ``<data_dir>/captures/<name>/``.

    Args:
        cell: up to the defence; its training and client name the capture.
        files: where it is read from.
        data_dir: where the user keeps data.
        replace: a capture of that name, if there is one.

    Raises:
        ArtifactError: a file is not what it should be; says which, what and what to do.
        DataError: the capture is there already, or the dataset is not.
        IncompatibleError: the model cannot be built.
    """
    folder = Captures(data_dir).folder(cell.client.capture)
    if folder.exists() and not replace:
        raise DataError(f"{folder}: there already; choose another name, or add --replace")
    _check_counts(files)
    classes = cell.dataset.classes or cell.dataset.load(data_dir, 0).classes
    network = cell.model.build(cell.dataset.shape, classes).eval()
    sent = _read_sent(network, files, cell.client.content)
    update: dict[str, Encoded] = {name: Dense(value) for name, value in sent.items()}
    facts = {"content": cell.client.content, **cell.client.protocol}
    artifacts: dict[str, Artifact] = {
        MODEL: with_state(_described(cell, classes), network),
        UPDATE: Update(spec=str(cell), update=update, **facts),
    }
    error = None
    if files.truth:
        truth = read_truth(files.truth, cell.client, cell.dataset, classes)
        error = disagreement(cell.client, network, sent, truth)
        artifacts[PRIVATE] = truth
    with whole_folder(folder) as temporary:
        for name, artifact in artifacts.items():
            artifact.write(temporary / name)
    return Capture(folder, error)


def _check_counts(files: Files) -> None:
    if files.truth and len(files.truth) != len(files.sent):
        raise ArtifactError(
            f"--truth: {len(files.truth)} files, but {len(files.sent)} clients; give one for each, "
            "in the same order, or none"
        )


def _described(cell: Cell, classes: int) -> Model:
    """The artifact of a network, still without its state."""
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
    """What every client sent of each parameter, Shape (V, 1, *shape).

    The network is given what was broadcast.
    """
    before = read_state(files.before)
    own = network.state_dict()
    counts = missing_counters(before, own)
    _check(files.before, before, network, own, counts)
    network.load_state_dict({**before, **counts})
    if content == "gradient":
        clients = [_gradient(network, path) for path in files.sent]
    else:
        clients = [_difference(network, before, path) for path in files.sent]
    return {
        name: torch.stack([sent[name] for sent in clients])[:, None].numpy() for name in clients[0]
    }


def _gradient(network: nn.Module, path: Path) -> State:
    """A client's gradients."""
    found, parameters = read_state(path), trained_parameters(network)
    _check(path, found, network, {**parameters})
    return {name: found[name].float() for name in parameters}


def _difference(network: nn.Module, before: State, path: Path) -> State:
    """What a client's training added to the parameters; buffers may stand beside them."""
    found, own = read_state(path), network.state_dict()
    names = trained_parameters(network).keys()
    _check(path, found, network, own, own.keys() - {*names})
    _check_frozen(path, found, before, network)
    sent = {name: (_wide(found[name]) - _wide(before[name])).float() for name in names}
    if not any(value.any() for value in sent.values()):
        raise ArtifactError(
            f"{path}: holds the parameters as they were broadcast; nothing was sent"
        )
    return sent


def _check_frozen(path: Path, found: State, before: State, network: nn.Module) -> None:
    """Frozen parameters are sent as they were broadcast, or not at all."""
    trained = trained_parameters(network)
    for name, _ in network.named_parameters():
        if name not in trained and name in found and not torch.equal(found[name], before[name]):
            raise ArtifactError(
                f"{path}: {name} differs from what was broadcast, but the model freezes it; set "
                "requires_grad on it where the model is built, or give the states of another model"
            )


def _wide(value: Tensor) -> Tensor:
    """In single precision or better, so that a difference is not rounded more than it was."""
    return value if value.dtype == torch.float64 else value.float()


def _check(
    path: Path, found: State, network: nn.Module, own: State, kept: Collection[str] = ()
) -> None:
    """See `check_weights`; parameters are floating point."""
    check_weights(path, found, own, kept)
    for name in trained_parameters(network):
        if not found[name].is_floating_point():
            raise ArtifactError(
                f"{path}: {name} holds {found[name].dtype} values; give parameters as floating "
                "point, a quantised network's decoded"
            )
