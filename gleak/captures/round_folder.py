"""Folders of captured rounds, which `gleak.capture` and `gleak.captures.frameworks.flower` write.

before.safetensors           state dict that was broadcast
client-<name>.safetensors    state dict of a client after training; its metadata may contain the
                             fields `RECORDED` of `gleak.clients.fedavg.CapturedUpdates`
truth-<name>.safetensors     inputs and labels of that client, if they are known
state-<name>.safetensors     state that its optimiser kept from earlier rounds, if it did

State dicts are read from safetensors and from arrays of numpy (.npz) only, so that code in a file
cannot run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from gleak.artifacts.atomic import atomic
from gleak.core.errors import ArtifactError, DataError
from gleak.core.spec import checked_name

RECORDED = (
    "batch_size",
    "local_steps",
    "local_lr",
    "mini_batch",
    "loss",
    "label_smoothing",
    "autocast",
    "batch_norm",
    "order",
    "drop_last",
    "optimizer",
    "schedule",
    "clip_norm",
    "clip_value",
    "proximal",
    "state",
)
"""Fields of a client that the metadata of its file may have."""
BOUNDS = ("clip_norm", "clip_value")
"""Fields that are recorded of clients whose gradients have reached a bound only."""
Arrays = dict[str, np.ndarray]
CLIENT, TRUTH, KEPT, SUFFIX = "client-", "truth-", "state-", ".safetensors"
ROUND = "round-"
ARRAYS = ".npz"
PICKLED = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
ALIGNED = 8
"""Bytes of which the length of a header is a multiple."""
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Files:
    """Files of a capture, as safetensors.

    Args:
        before: broadcast state dict.
        sent: for each client, its state dict after training, or its gradients by parameter.
        truth: for each client, its ``inputs`` and ``labels``; empty if unknown.
        kept: for each client, the state of its optimiser (`gleak.captures.kept_state`); empty if
            unknown.
    """

    before: Path
    sent: Sequence[Path]
    truth: Sequence[Path] = ()
    kept: Sequence[Path] = ()


@dataclass(frozen=True)
class RoundFolder:
    """The files of one round of any number of clients, in a folder that need not exist."""

    path: Path

    @property
    def before(self) -> Path:
        """Path of the broadcast state dict."""
        return self.path / f"before{SUFFIX}"

    def client(self, name: str) -> Path:
        """Return the path of a client's state dict after training; `SpecError` for a bad name."""
        return self.path / f"{CLIENT}{checked_name('client', name)}{SUFFIX}"

    def truth(self, name: str) -> Path:
        """Return the path of a client's samples; `SpecError` for a bad name."""
        return self.path / f"{TRUTH}{checked_name('client', name)}{SUFFIX}"

    def state(self, name: str) -> Path:
        """Return the path of the state that a client's optimiser kept; see `truth`."""
        return self.path / f"{KEPT}{checked_name('client', name)}{SUFFIX}"

    def check_new(self, name: str, before: State) -> None:
        """Check that a client that begins with a state can be added to the round."""
        for path in (self.client(name), self.truth(name), self.state(name)):
            if path.exists():
                raise DataError(f"{path} already exists; choose another folder or client")
        if self.before.exists() and not _equal(read_state(self.before), before):
            raise DataError(
                f"{self.before}: the round began with other values than this model has; choose a "
                "folder for each round"
            )

    def files(self) -> Files:
        """Return the files of the round, clients by their names; all or none have true samples."""
        clients = sorted(self.path.glob(f"{CLIENT}*{SUFFIX}"))
        if not clients:
            raise ArtifactError(
                f"{self.path}: no {CLIENT}*{SUFFIX}; give the folder of one round, as "
                "gleak.capture and gleak.captures.frameworks.flower write it"
            )
        truths, kept = (_beside(clients, kind) for kind in (TRUTH, KEPT))
        return Files(self.before, clients, truths, kept)


def _beside(clients: Sequence[Path], kind: str) -> list[Path]:
    """Return the files of a kind beside those of all clients, or none."""
    paths = [path.with_name(f"{kind}{path.name.removeprefix(CLIENT)}") for path in clients]
    missing = [path for path in paths if not path.exists()]
    if missing and missing != paths:
        raise ArtifactError(
            f"{missing[0]}: no such file, but other clients have one; add it, or remove all"
        )
    return [] if missing else paths


def rounds_in(folder: Path) -> dict[int, RoundFolder]:
    """Return the captured rounds in a folder, at least one, by their numbers in ascending order."""
    numbers = (path.name.removeprefix(ROUND) for path in folder.glob(f"{ROUND}*") if path.is_dir())
    rounds = sorted(int(number) for number in numbers if number.isdecimal())
    if not rounds:
        raise ArtifactError(f"{folder}: no folder {ROUND}<number>; give the folder of all rounds")
    return {number: RoundFolder(folder / f"{ROUND}{number}") for number in rounds}


def recorded_fields(clients: Sequence[Path]) -> dict[str, str]:
    """Return the fields that the clients' state dicts contain, as text, equal for all of them.

    A bound that some clients' gradients have reached is that of all.
    """
    fields = _fields(clients[0])
    for path in clients[1:]:
        others = _fields(path)
        bounds = [name for name in BOUNDS if (name in fields) != (name in others)]
        for name in (fields.keys() | others.keys()) - {*bounds}:
            if fields.get(name) != others.get(name):
                raise ArtifactError(
                    f"{path}: {name} is {others.get(name)}, but {fields.get(name)} in "
                    f"{clients[0].name}; the clients of a capture have equal fields: import those "
                    "that have with --before and --after, others as another capture"
                )
        fields = {**others, **fields}
    return fields


def _fields(path: Path) -> dict[str, str]:
    read_state(path)
    if path.suffix == ARRAYS:
        return {}
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    return {name: metadata[name] for name in RECORDED if name in metadata}


def _equal(one: State, other: State) -> bool:
    """Return True if two state dicts have the same names and values."""
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def read_state(path: Path) -> State:
    """Read the tensors of a file by name.

    Raises:
        ArtifactError: the file is missing, pickled, or no complete safetensors or .npz file.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    if path.suffix == ARRAYS:
        return _read_arrays(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        with path.open("rb") as file:
            begins = file.read(2)
        if path.suffix in PICKLED or begins.startswith((b"\x80", b"PK")):
            raise ArtifactError(
                f"{path}: a pickle, which can run any code; if you trust it, take its state dict "
                f'(of a checkpoint ["model"] or ["state_dict"]) and convert it: {conversion(path)}'
            ) from None
        raise ArtifactError(f"{path}: not a complete safetensors file ({error})") from None


def _read_arrays(path: Path) -> State:
    """Read the arrays of a .npz file by name, without pickles in it."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays}
    except OSError:
        raise
    except Exception as error:  # a damaged archive raises errors of any type
        raise ArtifactError(
            f"{path}: not a complete .npz file of arrays of numbers ({error}); write it with "
            "np.savez(path, **{name: value.numpy() for name, value in state.items()})"
        ) from None


def write_state(
    path: Path, values: Mapping[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write arrays or tensors by name, readable by their owner alone, not waiting for the disk."""
    tensors = {name: torch.as_tensor(value) for name, value in values.items()}
    with atomic(path, private=True, durable=False) as temporary:
        save_file(tensors, temporary, metadata)


def write_samples(path: Path, inputs: Iterable[Tensor], labels: Sequence[Tensor]) -> None:
    """Write the samples of several steps, which are on the disk one after the other.

    A large array of all inputs, which would take longer to allocate than to write, is not made.

    Args:
        path: of the file, which only its owner can read.
        inputs: of each step, in single precision, Shape (N, *shape); read once.
        labels: of each step, Shape (N).

    Raises:
        DataError: the samples have several shapes, or not one label each.
        ArtifactError: no permission or no space.
    """
    classes = torch.cat(list(labels)).long()
    with atomic(path, private=True, durable=False) as temporary, temporary.open("wb") as file:
        shape: tuple[int, ...] = ()
        for values, known in zip(inputs, labels, strict=True):
            if not shape:
                shape = tuple(values.shape[1:])
                text = _header(classes, shape)
                file.write(len(text).to_bytes(8, "little") + text + classes.numpy().tobytes())
            if values.shape != (len(known), *shape):
                raise DataError(
                    f"samples of shape {tuple(values.shape)} and {len(known)} labels after samples "
                    f"of shape {shape}; the samples of a file have one shape, and a label each"
                )
            file.write(values.contiguous().numpy().data)


def _header(labels: Tensor, shape: tuple[int, ...]) -> bytes:
    """Return the header of a safetensors file of labels and then as many inputs of a shape."""
    number, begin = len(labels), labels.nbytes
    end = begin + number * prod(shape) * torch.float32.itemsize
    entries = {
        "labels": {"dtype": "I64", "shape": [number], "data_offsets": [0, begin]},
        "inputs": {"dtype": "F32", "shape": [number, *shape], "data_offsets": [begin, end]},
    }
    text = json.dumps(entries).encode()
    return text.ljust(-(-len(text) // ALIGNED) * ALIGNED)


def is_dense(value: Any) -> bool:
    """Return True for a tensor that holds all of its values, in a type that safetensors has."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.dtype != torch.complex128
        and not (value.is_quantized or value.is_nested or value.is_meta)
    )


def described(value: Any) -> str:
    """Return the type of a value, and of a tensor those of its values and its layout."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, {value.layout}, on {value.device.type}"
    return type(value).__name__


def conversion(path: Path) -> str:
    """Return a command that converts a pickled state dict to safetensors in the same folder.

    Of a checkpoint, a state dict that is its ``model`` or ``state_dict`` is taken.
    """
    code = (
        "import torch; from safetensors.torch import save_file; "
        f"s = torch.load({str(path)!r}, map_location='cpu', weights_only=True); "
        "s = s.get('model', s.get('state_dict', s)); "
        "save_file({k: v.clone() for k, v in s.items()}, "
        f"{str(path.with_suffix('.safetensors'))!r})"
    )
    return f"python -c {shlex.quote(code)}"
