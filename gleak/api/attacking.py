"""Attacks on the gradients of a user's own network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

import torch
from torch import Tensor, nn

from gleak.api.attack_result import AttackResult
from gleak.api.attack_setting import Setting, load_networks
from gleak.api.client_setting import BatchNormMode, Sends, as_spec, client_of
from gleak.api.tensors import (
    ArrayLike,
    Gradients,
    Labels,
    ShapeLike,
    checked_labels,
    checked_seed,
    checked_shape,
    named_gradients,
)
from gleak.api.user_network import examine, own_modes, prepared_copy
from gleak.artifacts.model import Secret
from gleak.attacks.base import AttackSpec
from gleak.attacks.run_attack import reconstruct
from gleak.core.errors import ArtifactError, SpecError
from gleak.core.spec import changed
from gleak.local_training.base import Loss
from gleak.models.parameters import without_prefix
from gleak.runtime.device import choose_device
from gleak.runtime.provenance import clocked

KNOWN = "known"


@own_modes()
def attack(
    spec: str | AttackSpec,
    model: nn.Module,
    gradients: Gradients,
    shape: ShapeLike = (3, 32, 32),
    *,
    labels: Labels | None = None,
    batch_size: SupportsIndex | None = None,
    local_steps: SupportsIndex = 1,
    local_lr: SupportsFloat | None = None,
    mini_batch: SupportsIndex | None = None,
    loss: Loss = "cross_entropy",
    sends: Sends = "gradient",
    batch_norm: BatchNormMode = "evaluation",
    sent: Gradients | None = None,
    grants: Mapping[str, ArrayLike] | None = None,
    secret: Secret | None = None,
    knowledge: Path | str | Iterable[Path | str] = (),
    seed: SupportsIndex = 0,
    device: str | torch.device = "auto",
) -> AttackResult:
    """Reconstruct a client's samples from the update that it sent.

    The computation is that of the workflow for one victim: equal updates, parameters and seeds give
    equal results. The model is attacked in evaluation mode, on a copy, and without dropout.

    Args:
        spec: attack, such as ``"cpl"`` or ``"cpl+restarts=2"`` (see ``gleak list attack`` and
            ``gleak describe cpl``), or its spec object.
        model: network with the parameters that the server broadcast. It maps samples with values in
            [0, 1] to logits; it is not changed.
        gradients: what the client sent: tensors or arrays by name of the parameter, or in the
            order of ``model.parameters()``; on any device, sparse or dense, of any real type.
        shape: shape of one sample, in any sequence: (channels, height, width) of an image,
            (features,) of a row.
        labels: the labels of the client's samples, if they are known: class indices in a tensor,
            an array or any sequence, of any integer type. Attacks with a field ``labels`` then have
            ``labels=known``.
        batch_size: number of samples of the client; by default that of the labels, else 1.
        local_steps: number of local steps of the client.
        local_lr: learning rate of these steps; needed for several steps, or weights.
        mini_batch: number of samples of a local step; by default all.
        loss: the client's loss, averaged over samples: "cross_entropy", or "nll_raw" (minus the
            logit of the label).
        sends: "gradient", or "weights": the values are weights after training minus weights before.
            The gradient of several local steps is their mean, -(after - before) / (local_lr
            local_steps).
        batch_norm: "evaluation" if the client normalised by the running statistics of the model,
            "training" if by those of its batches.
        sent: masks of the values that the client sent, like ``gradients``, if it sent only some
            (sparsification): true where a value was sent. Parameters that are left out were sent as
            a whole. Attacks then do not take the other values for zeros.
        grants: further knowledge of the attacker by name, such as ``mean_input``; the error of an
            attack that needs one names it.
        secret: secret of the server, if `gleak.craft` made the parameters.
        knowledge: files ``knowledge.h5`` of networks trained on public data, for attacks with such
            a field.
        seed: seed of the attack's random numbers, not negative.
        device: "cpu", "cuda", "cuda:1" or a `torch.device`; "auto": a GPU if torch sees one.

    Returns:
        The reconstructed samples with their labels, and facts about the search.

    Raises:
        SpecError: an unknown attack or field, or a value of another type or out of range.
        ArtifactError: the gradients are not those of the model, or are its parameters; values are
            not finite; masks, labels or grants are invalid; the secret is of another network.
        GleakError: an unknown device, or no such GPU.
        IncompatibleError: the attack does not support this model or client, or lacks a grant; names
            attacks that do.

    Example:
        >>> import gleak, torch
        >>> from torch import nn
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Sigmoid(), nn.Linear(16, 4))
        >>> secret, label = torch.rand(1, 3, 4, 4), torch.tensor([2])
        >>> loss = nn.functional.cross_entropy(model(secret), label)
        >>> gradients = torch.autograd.grad(loss, list(model.parameters()))
        >>> found = gleak.attack("aono", model, gradients, shape=(3, 4, 4))
        >>> found.labels
        tensor([2])
        >>> bool((found.inputs - secret).abs().max() < 1e-4)
        True
    """
    attacker = with_known_labels(as_spec("attack", spec), labels is not None)
    network, shape, seed = prepared_copy(model), checked_shape(shape), checked_seed(seed)
    known = None if labels is None else checked_labels(labels)
    count = samples_of(batch_size, known)
    client = client_of(count, local_steps, local_lr, mini_batch, loss, sends, batch_norm)
    files = checked_files(knowledge)
    check_secret(secret)
    classes = examine(network, shape)
    values = named_gradients(without_prefix(gradients, model), network)
    masks = {} if sent is None else named_gradients(without_prefix(sent, model), network, "sent")
    setting = Setting(network, shape, classes, client, secret)
    update = setting.update(values, masks)
    granted = setting.granted({} if grants is None else grants, known)
    setting.check(attacker, frozenset(granted))
    networks = load_networks(attacker, files, shape)
    used = choose_device(device)
    network.to(used)
    with clocked() as times:
        observation = setting.observe(attacker, update, granted, networks, seed)
        found = reconstruct(attacker, observation, seed)
    cost = {**times, "device": used.type}
    return AttackResult.of(str(attacker), found, cost, client.batch_size)


def samples_of(batch_size: SupportsIndex | None, labels: Tensor | None) -> SupportsIndex:
    """Return the number of samples: as given, else that of the labels, else 1."""
    if batch_size is not None:
        return batch_size
    return 1 if labels is None else len(labels)


def checked_files(knowledge: Any) -> list[Path]:
    """Return the paths of one or several files.

    Raises:
        SpecError: a value is not a path.
    """
    single = isinstance(knowledge, str | PathLike) or not isinstance(knowledge, Iterable)
    files = [knowledge] if single else list(knowledge)
    for file in files:
        if not isinstance(file, str | PathLike):
            raise SpecError(
                f"knowledge = {knowledge!r}: expected the paths of files knowledge.h5; leave it "
                "out if there are none"
            )
    return list(map(Path, files))


def check_secret(secret: Any) -> None:
    """Raise if a value is not a secret.

    Raises:
        SpecError: it is of another type.
        ArtifactError: it has no crafting, or other values than arrays by name.
    """
    if secret is None:
        return
    if not isinstance(secret, Secret):
        raise SpecError(
            f"secret is a {type(secret).__name__}; give the secret of gleak.craft(...), which its "
            "result has as secret"
        )
    if not isinstance(secret.spec, str) or not isinstance(secret.values, Mapping):
        raise ArtifactError(
            "secret: its spec is not a text, or its values are not arrays by name; give the secret "
            "as gleak.craft(...) made it"
        )
    secret.validate("secret")


def with_known_labels(spec: AttackSpec, known: bool) -> AttackSpec:
    """Return the attack with ``labels=known`` if labels are given.

    Raises:
        SpecError: labels are given, but the attack has no use for them, or another rule.
    """
    if not known or "labels" in spec.grants:
        return spec
    field = type(spec).model_fields.get("labels")
    if field is None:
        raise SpecError(f"attack {spec} takes no labels; leave them out, and give batch_size")
    if getattr(spec, "labels") != field.default:  # noqa: B009
        raise SpecError(
            f"attack {spec} infers labels, but labels are given; use labels=known, or leave them "
            "out and give batch_size"
        )
    found: AttackSpec = changed(spec, {"labels": KNOWN})
    return found
