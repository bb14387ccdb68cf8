"""Folders of captured rounds, which `gleak.capture` and `gleak.captures.flower` write.

before.safetensors           state dict that was broadcast
client-<name>.safetensors    state dict of a client after training; its metadata may contain the
                             fields `RECORDED` of `gleak.clients.fedavg.Captured`
truth-<name>.safetensors     inputs and labels of that client, if they are known
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from gleak.captures.states import State, read_state
from gleak.core.errors import ArtifactError, DataError
from gleak.core.spec import checked_name

RECORDED = ("batch_size", "local_steps", "local_lr")
Arrays = dict[str, np.ndarray]
CLIENT, TRUTH, SUFFIX = "client-", "truth-", ".safetensors"
ROUND = "round-"


@dataclass(frozen=True)
class Files:
    """Files of a capture, as safetensors.

    Args:
        before: broadcast state dict.
        sent: for each client, its state dict after training, or its gradients by parameter.
        truth: for each client, its ``inputs`` and ``labels``; empty if unknown.
    """

    before: Path
    sent: Sequence[Path]
    truth: Sequence[Path] = ()


@dataclass(frozen=True)
class RoundFolder:
    """The files of one round of any number of clients.

    Args:
        path: the folder, which need not exist.
    """

    path: Path

    @property
    def before(self) -> Path:
        """Path of the broadcast state dict."""
        return self.path / f"before{SUFFIX}"

    def client(self, name: str) -> Path:
        """Return the path of a client's state dict after training.

        Raises:
            SpecError: the name is none that a file can have.
        """
        return self.path / f"{CLIENT}{checked_name('client', name)}{SUFFIX}"

    def truth(self, name: str) -> Path:
        """Return the path of a client's samples.

        Raises:
            SpecError: the name is none that a file can have.
        """
        return self.path / f"{TRUTH}{checked_name('client', name)}{SUFFIX}"

    def check_new(self, name: str, before: State) -> None:
        """Check that a client can be added to the round.

        Args:
            name: name of the client.
            before: state dict with which it begins.

        Raises:
            SpecError: the name is none that a file can have.
            DataError: the client is already in the folder, or the round began with other values.
        """
        for path in (self.client(name), self.truth(name)):
            if path.exists():
                raise DataError(f"{path} already exists; choose another folder or client")
        if self.before.exists() and not _equal(read_state(self.before), before):
            raise DataError(
                f"{self.before}: the round began with other values than this model has; choose a "
                "folder for each round"
            )

    def files(self) -> Files:
        """Return the files of the round, clients in the order of their names.

        Raises:
            ArtifactError: there is no client, or only some have true samples.
        """
        clients = sorted(self.path.glob(f"{CLIENT}*{SUFFIX}"))
        if not clients:
            raise ArtifactError(
                f"{self.path}: no {CLIENT}*{SUFFIX}; give the folder of one round, as "
                "gleak.capture and gleak.captures.flower write it"
            )
        truths = [path.with_name(f"{TRUTH}{path.name.removeprefix(CLIENT)}") for path in clients]
        known = [path for path in truths if path.exists()]
        if known and known != truths:
            (missing, *_) = (path for path in truths if not path.exists())
            raise ArtifactError(
                f"{missing}: no such file, but other clients have one; add it, or remove all"
            )
        return Files(self.before, clients, known)


def rounds_in(folder: Path) -> dict[int, RoundFolder]:
    """Return the captured rounds of a training, by their numbers in ascending order.

    Args:
        folder: contains ``round-1``, ``round-2`` and so on.

    Raises:
        ArtifactError: it contains none.
    """
    numbers = (path.name.removeprefix(ROUND) for path in folder.glob(f"{ROUND}*") if path.is_dir())
    found = sorted(int(number) for number in numbers if number.isdecimal())
    if not found:
        raise ArtifactError(f"{folder}: no folder {ROUND}<number>; give the folder of all rounds")
    return {number: RoundFolder(folder / f"{ROUND}{number}") for number in found}


def recorded_fields(clients: Sequence[Path]) -> dict[str, str]:
    """Return the fields of the clients that their files contain, as text.

    Args:
        clients: files of the clients' state dicts.

    Raises:
        ArtifactError: a file is damaged, or two clients differ in a field.
    """
    first, *others = clients
    fields = _fields(first)
    for path in others:
        found = _fields(path)
        for name in fields.keys() | found.keys():
            if fields.get(name) != found.get(name):
                raise ArtifactError(
                    f"{path}: {name} is {found.get(name)}, but {fields.get(name)} in {first.name}; "
                    "the clients of a capture have equal fields: import those that have with "
                    "--before and --after, others as another capture"
                )
    return fields


def _fields(path: Path) -> dict[str, str]:
    read_state(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    return {name: metadata[name] for name in RECORDED if name in metadata}


def _equal(one: State, other: State) -> bool:
    """Return True if two state dicts have the same names and values."""
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )
