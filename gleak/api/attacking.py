"""Attacks on the gradients of a user's own network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from gleak.api import tensors
from gleak.api.attack_setting import Setting, as_known, load_networks
from gleak.api.given_specs import ClientLike, as_spec, client_of, with_client
from gleak.api.tensors import (
    ArrayLike,
    Gradients,
    Labels,
    ShapeLike,
    named_gradients,
)
from gleak.api.user_network import examine, own_modes, prepared_copy
from gleak.artifacts.atomic import atomic
from gleak.artifacts.model import Secret
from gleak.artifacts.pictures import picture_grid
from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.run_attack import reconstruct
from gleak.core.errors import ArtifactError, SpecError
from gleak.core.spec import changed
from gleak.defenses.base import DefenseSpec
from gleak.models.parameters import without_prefix
from gleak.runtime.device import choose_device
from gleak.runtime.provenance import clocked

COLUMNS = 8


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """Samples that an attack reconstructed from one update.

    Args:
        spec: canonical spec of the attack.
        inputs: reconstructed samples, values in [0, 1]; Shape (N, *shape). Their order is that of
            the attack, not of the client's batch: `gleak.score` matches them to the true ones.
        labels: labels found with them, or known; -1 where unknown; Shape (N).
        converged: True if the attack's own criterion was met.
        iterations: number of iterations; None for attacks without.
        objective: final value of the attack's objective; None for attacks without.
        reconstruction: everything that the attack recorded (its trace, for example), with a leading
            axis of one victim.
        cost: time of the attack, as ``seconds`` (wall) and ``cpu_seconds``, and its ``device``.
        batch_size: number of the client's samples, of which the attack may find only some; None:
            unknown.
    """

    spec: str
    inputs: Tensor
    labels: Tensor
    converged: bool
    iterations: int | None
    objective: float | None
    reconstruction: Reconstruction = field(repr=False)
    cost: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None

    @classmethod
    def of(
        cls,
        spec: str,
        reconstruction: Reconstruction,
        cost: dict[str, Any],
        batch_size: int | None = None,
    ) -> AttackResult:
        """Return the result of an attack on one victim."""
        iterations, objective = reconstruction.iterations, reconstruction.objective
        return cls(
            spec=spec,
            inputs=torch.from_numpy(reconstruction.inputs[0]),
            labels=torch.from_numpy(reconstruction.labels[0]),
            converged=bool(reconstruction.converged[0]),
            iterations=None if iterations is None else int(iterations[0]),
            objective=None if objective is None else float(objective[0]),
            reconstruction=reconstruction,
            cost=cost,
            batch_size=batch_size,
        )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Proposals of each attack of an ensemble such as ``best``, or why there is none.

        In the order in which they were considered, with the criterion by which one was chosen;
        empty for attacks that are no ensembles.
        """
        return self.reconstruction.candidates(0)

    def __repr__(self) -> str:
        facts = {
            "inputs": tuple(self.inputs.shape),
            "labels": self.labels.tolist(),
            "converged": self.converged,
            "iterations": self.iterations,
            "objective": self.objective,
        }
        texts = [f"{name}={value}" for name, value in facts.items() if value is not None]
        return f"AttackResult({self.spec!r}, {', '.join(texts)})"

    def save(self, path: Path | str, truth: ArrayLike | None = None) -> Path:
        """Save the images as one PNG, at most `COLUMNS` beside each other.

        Args:
            path: the PNG, a file that ends in ``.png``.
            truth: true images, values in [0, 1], Shape (N, *shape), shown in rows above the
                reconstructed ones.

        Returns:
            ``path`` as a path.

        Raises:
            ArtifactError: the path is not that of a PNG, samples are not images of one or three
                channels, the truth is none of their shape, or the file cannot be written.
        """
        named = isinstance(path, str | PathLike) and "\0" not in str(path)
        if not named or Path(path).suffix.lower() != ".png":
            raise ArtifactError(f"path = {path!r}: expected the path of a file that ends in .png")
        if self.inputs.ndim != 4 or self.inputs.shape[1] not in (1, 3):
            raise ArtifactError(
                f"{path}: samples of shape {tuple(self.inputs.shape[1:])} are not images with one "
                "or three channels"
            )
        shape = tuple(self.inputs.shape[1:])
        above = [] if truth is None else [tensors.checked_inputs(truth, shape, "truth").numpy()]
        shown = [*above, self.inputs.numpy()]
        rows: list[Any] = []
        for start in range(0, max(map(len, shown)), COLUMNS):
            rows += [part for images in shown if len(part := images[start : start + COLUMNS])]
        with atomic(Path(path), private=True) as temporary:
            picture_grid(rows).save(temporary, format="PNG")
        return Path(path)


@with_client()
@own_modes()
def attack(
    spec: str | AttackSpec,
    model: nn.Module,
    gradients: Gradients,
    shape: ShapeLike = (3, 32, 32),
    *,
    labels: Labels | None = None,
    batch_size: SupportsIndex | None = None,
    client: ClientLike = "fedsgd",
    defense: str | DefenseSpec = "none",
    clients: SupportsIndex | None = None,
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
        batch_size: number of samples of the client; by default that of ``client`` if it is given
            there, else that of the labels, else 1.
        client: how the client trained, as the server knows it (see ``gleak list client``):
            ``"fedsgd"`` sends one gradient of the mean loss of its samples;
            ``"fedavg+local_steps=5+local_lr=0.1"`` the mean gradient of its local steps,
            -(after - before) / (local_lr local_steps), and with ``sends=weights`` the weights after
            training minus those before. ``loss``, ``mini_batch`` and ``batch_norm`` are further
            fields. Also a spec object, or the `Protocol` of an ``update.h5``.
        defense: defence of the client, as the server knows it (see ``gleak list defense``), such as
            ``"dp+sigma=0.01"`` or ``"qsgd"``. Without it attacks take clipped gradients, rounded
            values and zeros of values that were not sent for exact ones, and find less.
        clients: number of clients of whose updates ``gradients`` are the mean, as under defence
            ``secure_aggregation``. ``batch_size`` is then the number of samples of all, which they
            have in equal shares. None: that of the defence or the `Protocol`, else one.
        sent: masks of the values that the client sent, like ``gradients``, if it sent only some
            (sparsification): true where a value was sent. Of other parameters, values that are not
            zero were sent if the defence leaves values out, else all.
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
        SpecError: an unknown attack, client or field, or a value of another type or out of range.
        ArtifactError: the gradients are not those of the model, or are its parameters; values are
            not finite, or not those of the defence; masks, labels or grants are invalid; the secret
            is of another network.
        GleakError: an unknown device, or no such GPU.
        IncompatibleError: the attack does not support this model, client or defence, or lacks a
            grant; names attacks that do.

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
    network = prepared_copy(model)
    shape, seed = tensors.checked_shape(shape), tensors.checked_seed(seed)
    known = None if labels is None else tensors.checked_labels(labels)
    one = client_of(client, batch_size, samples=1 if known is None else len(known))
    known_defense = as_known(defense, client, clients, one)
    files = checked_files(knowledge)
    check_secret(secret)
    classes = examine(network, shape)
    values = named_gradients(without_prefix(gradients, model), network)
    masks = {} if sent is None else named_gradients(without_prefix(sent, model), network, "sent")
    setting = Setting(network, shape, classes, one, secret, known_defense)
    update = setting.update(values, masks)
    granted = setting.granted({} if grants is None else grants, known)
    setting.check(attacker, frozenset(granted))
    networks = load_networks(attacker, files, shape)
    used = choose_device(device)
    network.to(used)
    with clocked() as times:
        observation = setting.observe(attacker, update, granted, networks, seed)
        reconstruction = reconstruct(attacker, observation, seed)
    cost = {**times, "device": used.type}
    return AttackResult.of(str(attacker), reconstruction, cost, one.batch_size)


def checked_files(knowledge: Any) -> list[Path]:
    """Return the paths of one or several files."""
    single = isinstance(knowledge, str | PathLike) or not isinstance(knowledge, Iterable)
    files = [knowledge] if single else list(knowledge)
    if not all(isinstance(file, str | PathLike) for file in files):
        raise SpecError(
            f"knowledge = {knowledge!r}: expected the paths of files knowledge.h5; leave it out if "
            "there are none"
        )
    return list(map(Path, files))


def check_secret(secret: Any) -> None:
    """Raise if a value is neither None nor a valid secret."""
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
    """Return the attack with ``labels=known`` if labels are given, which it must have use for."""
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
    informed: AttackSpec = changed(spec, {"labels": "known"})
    return informed
