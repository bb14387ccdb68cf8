"""Capture of a client's local training where it happens, in plain PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from gleak.captures.round_folder import RoundFolder, State, described, is_dense, write_state
from gleak.captures.truth import check_samples
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.models.parameters import trained_parameters

PLAIN = {"momentum": 0, "weight_decay": 0, "maximize": False}
"""Options of `torch.optim.SGD` that attacks assume."""


def fields_of(rates: Sequence[float]) -> dict[str, str]:
    """Return the fields of a client whose steps had these learning rates, which must be equal."""
    if not rates:
        raise IncompatibleError(
            "gleak.capture: the optimizer took no step in the block, so there is no update; train "
            "in the block, with the optimizer that was given"
        )
    for number, rate in enumerate(rates, start=1):
        if rate != rates[0]:
            raise IncompatibleError(
                f"gleak.capture: the learning rate changed from {rates[0]} to {rate} at step "
                f"{number} of {len(rates)}, but attacks assume one for all steps of a round; step "
                "the scheduler between rounds"
            )
    return {"local_steps": str(len(rates)), "local_lr": repr(rates[0])}


@contextmanager
def capture(
    model: nn.Module,
    optimizer: Optimizer,
    folder: Path | str,
    *,
    client: str = "0",
    truth: tuple[Any, Any] | None = None,
) -> Iterator[None]:
    """Capture the local training in the block, in the files that ``gleak import --round`` reads.

    The parameters are copied when the block begins; steps and learning rates are noted; and
    everything is written when the block ends, to ``before.safetensors``,
    ``client-<client>.safetensors`` and, with the true samples, ``truth-<client>.safetensors``.
    Nothing is written if the block fails. Clients of one round that begin with equal parameters can
    share a folder. Only their owner can read the files.

    Args:
        model: network that is trained, as ``state_dict()`` has it: not its wrapper by
            ``torch.compile`` or data-parallel training.
        optimizer: plain gradient descent, as attacks assume: `torch.optim.SGD` without momentum and
            weight decay, with one learning rate, of exactly the trained parameters of the model.
        folder: folder of the round; it need not exist.
        client: name of the client in the names of the files: letters, digits, "_", "." and "-".
        truth: inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N), of all
            samples of the round, as tensors, arrays or lists, to score attacks later; None:
            unknown.

    Raises:
        SpecError: the name of the client is none that a file can have, or the folder is no path;
            before the block.
        IncompatibleError: another optimiser, or a model whose state is not only dense tensors;
            before the block. No step, or several learning rates; after it.
        DataError: the client is already in the folder, or its round began with other parameters;
            before the block, or after it if another process wrote them meanwhile.
        ArtifactError: invalid samples, or a file in the folder's place; before the block. The files
            cannot be written; after it.

    Example:
        >>> import gleak, tempfile, torch
        >>> from pathlib import Path
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> inputs, labels = torch.rand(3, 4), torch.tensor([0, 1, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with gleak.capture(model, optimizer, folder, truth=(inputs, labels)):
        ...         torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        ...         optimizer.step()
        ...     print(*sorted(path.name for path in Path(folder).iterdir()))
        before.safetensors client-0.safetensors truth-0.safetensors
    """
    check_optimizer(model, optimizer)
    samples = None if truth is None else _samples(truth)
    before, files = _copied(model), RoundFolder(_checked_folder(folder))
    files.check_new(client, before)
    rates: list[float] = []
    handle = optimizer.register_step_post_hook(lambda *_: rates.append(learning_rate(optimizer)))
    try:
        yield
    finally:
        handle.remove()
    fields = fields_of(rates)
    files.check_new(client, before)
    if samples is not None:
        fields["batch_size"] = str(len(samples["labels"]))
        write_state(files.truth(client), samples)
    if not files.before.exists():
        write_state(files.before, before)
    write_state(files.client(client), _copied(model), fields)


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise an `IncompatibleError` unless an optimiser is the plain descent that attacks assume."""
    remedy = (
        "; attacks assume plain gradient descent: train the captured round with "
        "torch.optim.SGD(model.parameters(), lr=...)"
    )
    if type(optimizer) is not SGD:
        raise IncompatibleError(
            f"gleak.capture: the optimizer is {type(optimizer).__name__}, not torch.optim.SGD"
            f"{remedy}"
        )
    for group in optimizer.param_groups:
        for option, plain in PLAIN.items():
            if group[option] != plain:
                raise IncompatibleError(
                    f"gleak.capture: the optimizer has {option}={group[option]}{remedy}"
                )
    learning_rate(optimizer)
    trained = trained_parameters(model)
    given = {id(value) for group in optimizer.param_groups for value in group["params"]}
    left = [name for name, value in trained.items() if id(value) not in given]
    if left:
        raise IncompatibleError(
            f"gleak.capture: the optimizer does not train {left[0]}, which requires a gradient; "
            "give it model.parameters() of this model, or freeze it with requires_grad_(False)"
        )
    foreign = given - {id(value) for value in model.parameters()}
    if foreign:
        raise IncompatibleError(
            f"gleak.capture: the optimizer trains {len(foreign)} parameters that are not in "
            "model.parameters(), so the state dict would not be the update; give the model that "
            "contains them"
        )


def learning_rate(optimizer: Optimizer) -> float:
    """Return the learning rate of an optimiser, one for all of its groups of parameters."""
    rates = sorted({float(group["lr"]) for group in optimizer.param_groups})
    if len(rates) > 1:
        raise IncompatibleError(
            f"gleak.capture: the optimizer has learning rates {rates}, but attacks assume one for "
            "all parameters; give all groups the same"
        )
    return rates[0]


def _samples(truth: tuple[Any, Any]) -> State:
    """Return a copy of the samples after `check_samples`."""
    place = "gleak.capture, truth"
    try:
        inputs, labels = (
            part.detach() if isinstance(part, Tensor) else torch.as_tensor(part, device="cpu")
            for part in truth
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(
            f"{place}: {error}; give inputs and labels, each as a tensor, an array or a list"
        ) from None
    check_samples(place, inputs, labels)
    return {"inputs": _copy(inputs), "labels": _copy(labels)}


def _checked_folder(folder: Path | str) -> Path:
    """Return a folder that exists or can be made, as no file is in its place or above it."""
    if not isinstance(folder, str | os.PathLike) or "\0" in str(folder):
        raise SpecError(f"gleak.capture: folder = {folder!r}: expected the path of a folder")
    path = Path(folder)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ArtifactError(f"{there}: not a folder; choose another one for the round")
    return path


def _copied(model: nn.Module) -> State:
    """Return a copy of a model's state, of dense tensors only."""
    state = model.state_dict()
    for name, value in state.items():
        if not is_dense(value):
            raise IncompatibleError(
                f"gleak.capture: {name} in model.state_dict() is {described(value)}, but files of "
                "a round contain dense tensors only; leave it out of the state, such as by a "
                "get_extra_state that returns a tensor, or none"
            )
    return {name: _copy(value) for name, value in state.items()}


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True).contiguous()
