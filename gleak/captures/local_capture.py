"""Capture of a client's local training where it happens, in plain PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gleak.captures.kept_state import state_of, steps_before
from gleak.captures.observed_optimizer import (
    check_parameters,
    one_rate,
    optimizer_of,
)
from gleak.captures.observed_schedule import schedule_of
from gleak.captures.observed_steps import StepObserver, one_mode
from gleak.captures.round_folder import (
    RECORDED,
    RoundFolder,
    State,
    described,
    is_dense,
    write_state,
)
from gleak.captures.truth import check_samples
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError, nearest
from gleak.core.spec import build_spec, field_text
from gleak.models.parameters import unwrapped
from gleak.optimizers.base import ClientOptimizer

STATED = (
    "mini_batch",
    "batch_size",
    "clip_norm",
    "clip_value",
    "proximal",
    "loss",
    "label_smoothing",
    "batch_norm",
    "order",
    "drop_last",
    "autocast",
)
"""Fields of a client that `capture` takes, since its hooks do not see them, or not surely."""
KNOWN = ("local_steps", "local_lr")
"""Fields that are always recorded; others if they do not have their default."""


@contextmanager
def capture(
    model: nn.Module,
    optimizer: Optimizer,
    folder: Path | str,
    *,
    client: str = "0",
    truth: tuple[Any, Any] | None = None,
    **training: Any,
) -> Iterator[None]:
    """Capture the local training in the block, in the files that ``gleak import --round`` reads.

    The parameters are copied when the block begins, and hooks see every step: the learning rate, of
    which a schedule is recognised, whether the optimiser kept a state of earlier rounds, the mode
    of batch normalisation, and clipping of the gradient, by the norms of the gradients after
    ``backward()`` and when the step begins. Everything is written when the block ends, to
    ``before.safetensors``, ``client-<client>.safetensors`` and, with the true samples,
    ``truth-<client>.safetensors``, beside which is ``state-<client>.safetensors`` if the optimiser
    kept a state. Nothing is written if the block fails. Clients of one round that begin with equal
    parameters can share a folder. Only their owner can read the files.

    Args:
        model: network that is trained. Of a wrapper by ``torch.compile`` or data-parallel training
            the network inside is captured, with its names.
        optimizer: SGD, Adam, AdamW, Adagrad or RMSprop of `torch.optim`, with the same options for
            all of its groups of parameters, of exactly the trained parameters of the model.
        folder: folder of the round; it need not exist.
        client: name of the client in the names of the files: letters, digits, "_", "." and "-".
        truth: inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N), of all
            samples of the round in the order in which the steps used them, as tensors, arrays or
            lists, to score attacks later; None: unknown.
        **training: what hooks do not see, as fields of the client (``gleak describe captured``):
            ``mini_batch`` if a step takes a part of the samples, ``loss``, ``label_smoothing``,
            ``proximal``, ``order``, ``drop_last``, ``autocast``, without truth ``batch_size``; and
            ``clip_norm``, ``clip_value`` or ``batch_norm`` in place of what hooks see, such as for
            steps with a closure, which clips after the hooks.

    Raises:
        SpecError: the name of the client is none that a file can have, the folder is no path, or
            an unknown or invalid field of the training; before the block.
        IncompatibleError: an optimiser, option or groups of parameters that attacks do not follow,
            or a model whose state is not only dense tensors; before the block. No step, several
            optimisers, or options that changed other than the learning rate; after it.
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
    model = unwrapped(model)
    check_parameters(model, optimizer)
    spec, kept = optimizer_of(optimizer), steps_before(optimizer)
    samples = None if truth is None else _samples(truth)
    if samples is not None:
        training = {"batch_size": len(samples["labels"]), **training}
    _check_stated(training)
    before, files = _copied(model), RoundFolder(_checked_folder(folder))
    state = state_of(optimizer, model) if kept and samples is not None else None
    files.check_new(client, before)
    with StepObserver(model, optimizer) as observed:
        yield
    fields = fields_of(spec, kept, observed, training)
    files.check_new(client, before)
    if samples is not None:
        write_state(files.truth(client), samples)
    if state is not None and "state" in fields:
        write_state(files.state(client), state)
    if not files.before.exists():
        write_state(files.before, before)
    write_state(files.client(client), _copied(model), fields)


def fields_of(
    optimizer: ClientOptimizer, kept: int, observed: StepObserver, stated: Mapping[str, Any]
) -> dict[str, str]:
    """Return the fields of a client as its steps have shown them, as text, without defaults.

    Args:
        optimizer: spec of its optimiser.
        kept: number of steps that the optimiser took before the round.
        observed: the steps.
        stated: fields that are not seen.
    """
    if not observed.rates:
        raise IncompatibleError(
            "gleak.capture: the optimizer took no step in the block, so there is no update; train "
            "in the block, with the optimizer that was given"
        )
    if observed.others:
        raise IncompatibleError(
            f"gleak.capture: another optimizer, {', '.join(sorted(observed.others))}, also took "
            "steps on parameters of the model, but attacks assume one; train with one optimizer"
        )
    if observed.changed:
        raise IncompatibleError(
            f"gleak.capture: the optimizer's {', '.join(sorted(observed.changed))} changed within "
            "the round, but attacks assume one value; let only the learning rate change (of "
            "torch.optim.lr_scheduler.OneCycleLR by cycle_momentum=False)"
        )
    rates = [one_rate(each) for each in observed.rates]
    if not max(rates) > 0:
        raise IncompatibleError(
            "gleak.capture: the learning rate was 0 in all steps, so there is no update; capture "
            "a round that trains"
        )
    rate, schedule = schedule_of(rates)
    seen: dict[str, Any] = {
        "local_steps": len(rates),
        "local_lr": rate,
        "optimizer": optimizer,
        "schedule": schedule,
    }
    if "batch_norm" not in stated:
        seen["batch_norm"] = one_mode(observed.batch_norm)
    if not stated.keys() & {"clip_norm", "clip_value"}:
        seen |= observed.gradients.clipping
    if kept and optimizer.initial(torch.ones(1)):
        seen["state"] = "kept"
    spec, default = build_spec(CapturedUpdates, {**seen, **stated}), CapturedUpdates()
    return {
        name: field_text(spec, name)
        for name in RECORDED
        if name in KNOWN or name in stated or getattr(spec, name) != getattr(default, name)
    }


def _check_stated(training: Mapping[str, Any]) -> None:
    """Check fields of the client that are given to `capture`; `SpecError` names a wrong one."""
    for name in training:
        if name not in STATED:
            raise SpecError(f"gleak.capture: unknown field {name!r}; {nearest(name, STATED)}")
    size = {"batch_size": training.get("mini_batch", 1)}
    build_spec(CapturedUpdates, {**size, **training})


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
