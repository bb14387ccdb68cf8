"""True samples of captured updates, and the updates computed from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.private import UNKNOWN, Private
from gleak.captures.kept_state import training_before
from gleak.captures.plausibility import unmoved
from gleak.captures.round_folder import State, described, is_dense, read_state
from gleak.clients.fedavg import CapturedUpdates
from gleak.clients.local_training import LocalTraining
from gleak.core.errors import ArtifactError, nearest
from gleak.core.spec import changed
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec, NoDefense
from gleak.models.parameters import shared_copy
from gleak.models.stochastic import deterministic_copy, stochastic_layers
from gleak.optimizers.base import ClientOptimizer
from gleak.runtime.seeding import drawing_from, stream, torch_stream
from gleak.simulation.victims import relative_error

KEYS = ("inputs", "labels")
MAX_ERROR = 0.05
ALIKE = 0.1
"""Largest difference of distances between draws of one defence, relative to them."""
RATE_DIGITS = 3
REFINEMENTS = 8
DRAWS = 3
"""Orders of samples, and draws of stochastic layers, whose effect is measured."""
TINY = 1e-12
"""Learning rate of steps that do not move."""
INTENSITIES = (
    "if they are normalised, give the samples before the normalisation, and a network that "
    "normalises first (forward(self, x): return super().forward((x - mean) / std)); divide values "
    "from 0 to 255 by 255"
)
"""What to do about inputs that are no intensities in [0, 1]."""
CANDIDATES = ("sgd", "sgd~momentum=0.9", "adam", "adamw")
"""Optimisers that are tried if the given one does not explain the updates."""


@dataclass(frozen=True)
class Fit:
    """Optimiser of the clients, the rate that fits their updates best, and the error with it."""

    optimizer: ClientOptimizer
    rate: float
    error: float

    @property
    def agrees(self) -> bool:
        """True if the error does not exceed `MAX_ERROR`."""
        return self.error <= MAX_ERROR


@dataclass(frozen=True)
class Cause:
    """Randomness that the training may have had, and how far it changes an update.

    The change is the norm of the difference relative to that of the update; the median of draws.
    """

    name: str
    change: float


@dataclass(frozen=True)
class UpdateComparison:
    """Captured updates compared with those computed from the true samples.

    Args:
        errors: for each client, the norm of the difference relative to that of the computed update.
        factor: factor of the computed update that fits the captured one best; the median of all
            clients.
        fits: if they differ, optimisers with the rates that fit best, if they fit better than what
            is given, the one with the smallest error first.
        state_known: False if the optimisers began with a state that is not known.
        causes: if they differ, what changes the first client's update at random.
        unmoved: parameters of layers whose captured updates are zero, and not the computed ones.
        random: for each client, the same norm of the difference of two draws of its defence; None
            without a defence.
    """

    errors: tuple[float, ...]
    factor: float
    fits: tuple[Fit, ...] = ()
    state_known: bool = True
    causes: tuple[Cause, ...] = ()
    unmoved: tuple[str, ...] = ()
    random: tuple[float, ...] | None = None

    @property
    def error(self) -> float:
        """Largest error of a client."""
        return max(self.errors)

    @property
    def agrees(self) -> bool:
        """True if the updates of no client differ."""
        return not self.differing

    @property
    def differing(self) -> int:
        """Number of clients whose error exceeds `MAX_ERROR`, or is not that of their defence."""
        random = self.random or (0.0,) * len(self.errors)
        pairs = zip(self.errors, random, strict=True)
        return sum(abs(error - drawn) > MAX_ERROR + ALIKE * drawn for error, drawn in pairs)


def read_truth(
    paths: Sequence[Path], client: CapturedUpdates, dataset: DatasetSpec, classes: int
) -> Private:
    """Read the true samples of all clients, a file each, which are of the kind of a dataset."""
    samples = [_read_samples(path, client, dataset, classes) for path in paths]
    labels = np.stack([labels for _, labels in samples])
    return Private(
        modality=dataset.modality,
        inputs=np.stack([inputs for inputs, _ in samples]),
        labels=labels,
        indices=np.full_like(labels, UNKNOWN),
    )


def _read_samples(
    path: Path, client: CapturedUpdates, dataset: DatasetSpec, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Read the inputs, Shape (N, *shape), and labels, Shape (N), of one client."""
    tensors = read_state(path)
    for name in {*KEYS} ^ tensors.keys():
        hint = f"; {nearest(name, KEYS)}" if name in tensors else ""
        raise ArtifactError(
            f"{path}: {name!r} is {'unknown' if name in tensors else 'missing'}{hint}; give inputs "
            "(N, *shape) and labels (N)"
        )
    inputs, labels = (tensors[name] for name in KEYS)
    shape = (client.batch_size, *dataset.shape)
    remedies = _remedies(inputs, labels, shape)
    source = f"batch_size={shape[0]} and {dataset}"
    _check_shape(path, "inputs", inputs, shape, source, remedies["inputs"])
    _check_shape(path, "labels", labels, shape[:1], f"batch_size={shape[0]}", remedies["labels"])
    check_samples(path, inputs, labels, classes)
    return inputs.float().numpy(), labels.long().numpy()


def _check_shape(
    path: Path, name: str, value: Tensor, expected: tuple[int, ...], source: str, remedy: str
) -> None:
    if value.shape != expected:
        if value.shape[:1] != expected[:1]:
            remedy = (
                "; all clients of a capture have the same batch size, import others as another "
                "capture"
            )
        raise ArtifactError(
            f"{path}: {name} has shape {tuple(value.shape)}, expected {expected} by {source}"
            f"{remedy}"
        )


def _remedies(inputs: Tensor, labels: Tensor, shape: tuple[int, ...]) -> dict[str, str]:
    """Return what to do about samples of another shape, but the right number of them."""
    remedies = {"inputs": "", "labels": "; give one class index for each sample"}
    if inputs.shape == (shape[0], *shape[2:]) and shape[1] == 1:
        remedies["inputs"] = "; add the channel: inputs[:, None]"
    if labels.ndim == 2:
        remedies["labels"] += " (labels.argmax(1))" if labels.shape[1] > 1 else " (labels[:, 0])"
    return remedies


def check_samples(
    place: Path | str, inputs: Tensor, labels: Tensor, classes: int | None = None
) -> None:
    """Check that samples are dense, as many as labels, and in [0, 1]; classes may be unknown."""
    for name, value in zip(KEYS, (inputs, labels), strict=True):
        if not is_dense(value) or value.is_complex():
            raise ArtifactError(
                f"{place}: {name} is {described(value)}; give a dense tensor of real numbers"
            )
    if inputs.ndim <= 1 or not inputs.numel() or labels.shape != inputs.shape[:1]:
        raise ArtifactError(
            f"{place}: inputs of shape {tuple(inputs.shape)} and labels of shape "
            f"{tuple(labels.shape)}; give inputs (N, *shape) and one label for each of N samples"
        )
    intensities = inputs.is_floating_point()
    _check_range(place, "inputs", inputs, intensities, 1, f"intensities in [0, 1]; {INTENSITIES}")
    last = "and above" if classes is None else f"to {classes - 1}"
    most, whole = torch.inf if classes is None else classes - 1, not labels.is_floating_point()
    remedy = "" if whole else "; give class indices as whole numbers, labels.long()"
    _check_range(place, "labels", labels, whole, most, f"classes 0 {last}{remedy}")


def _check_range(
    place: Path | str, name: str, value: Tensor, kind: bool, most: float, expected: str
) -> None:
    values = value.double()
    if not kind or not ((values >= 0) & (values <= most)).all():
        low, high = (found.to(value.dtype).item() for found in values.aminmax())
        raise ArtifactError(
            f"{place}: {name} has {value.dtype} values from {low} to {high}, expected {expected}"
        )


def compare_updates(
    client: CapturedUpdates,
    network: nn.Module,
    sent: Sequence[Mapping[str, Encoded]],
    truth: Private,
    defense: DefenseSpec,
    kept: Sequence[Path] = (),
) -> UpdateComparison:
    """Compare captured updates with those computed from the true samples.

    Stochastic layers are made deterministic, and batch normalisation is in the clients' mode. If
    the updates differ, learning rates are fitted for the given optimiser and for `CANDIDATES`, but
    not if parameters did not move, which explains it, and not under a defence, which is applied to
    the computed updates.

    Args:
        client: spec of the clients.
        network: with the broadcast parameters, in evaluation mode; not changed.
        sent: captured update of each client, by parameter.
        truth: true samples.
        defense: of the clients, which does not use their samples.
        kept: for each client, the file of the state that its optimiser kept; empty if unknown.

    Raises:
        ArtifactError: such a state is not that of the optimiser.
    """
    captured = [
        {name: torch.from_numpy(own.decode()[0]) for name, own in update.items()} for update in sent
    ]
    states = kept if client.state == "kept" else ()
    before = [training_before(client, network, read_state(path), path) for path in states]
    computed = _computed(client, network, truth, before)
    if not isinstance(defense, NoDefense):
        own = defense.rescaled(client.protocol.update_scale)
        found = _compare_defended(captured, computed, sent, own)
        return replace(found, state_known=client.state != "kept" or bool(kept))
    moved = {name: torch.stack([update[name] for update in captured]).numpy() for name in sent[0]}
    still = [name for name in unmoved(moved) if any(one[name].any() for one in computed)]
    found = replace(_compare(captured, computed), unmoved=tuple(still))
    if client.state == "kept":
        return replace(found, state_known=bool(kept))
    if found.agrees or still:
        return found
    found = replace(found, causes=random_causes(client, network, truth))
    if client.protocol.content == "gradient":
        return found
    others = [changed(client, {"optimizer": text}) for text in CANDIDATES]
    tried = [client, *(other for other in others if other != client)]
    fits = (_fit(each, network, captured, truth) for each in tried)
    known = [fit for fit in fits if fit is not None and fit.error < found.error]
    return replace(found, fits=tuple(sorted(known, key=lambda fit: fit.error)))


def _compare_defended(
    captured: Sequence[State],
    computed: Sequence[State],
    sent: Sequence[Mapping[str, Encoded]],
    defense: DefenseSpec,
) -> UpdateComparison:
    """Compare updates with computed ones under the defence, of which two draws tell the noise."""
    filled = [{k: value for k, value in update.items() if value.numel()} for update in computed]
    draws = [
        [
            defense.decode_alike(update, own, torch_stream(draw, "comparison", victim))
            for victim, (update, own) in enumerate(zip(filled, sent, strict=True))
        ]
        for draw in range(2)
    ]
    random = tuple(relative_error(second, first) for first, second in zip(*draws, strict=True))
    return replace(_compare(captured, draws[0]), random=random)


def random_causes(client: CapturedUpdates, network: nn.Module, truth: Private) -> tuple[Cause, ...]:
    """Return what draws random numbers in the training of the first client, if it was not given.

    The order of its samples, if a step does not take all, and stochastic layers such as dropout.
    """
    first = replace(truth, inputs=truth.inputs[:1], labels=truth.labels[:1])
    (given,) = _computed(client, network, first)
    causes = []
    if client.samples_per_step < client.samples_per_round:
        orders = [stream(0, "order", draw).permutation(client.batch_size) for draw in range(DRAWS)]
        others = [
            replace(first, inputs=first.inputs[:, order], labels=first.labels[:, order])
            for order in orders
        ]
        changes = [relative_error(_computed(client, network, other)[0], given) for other in others]
        causes.append(Cause("another order of the samples", float(np.median(changes))))
    layers = stochastic_layers(network, torch.from_numpy(first.inputs[0]))
    if layers:
        drawn = [
            _computed(client, network, first, copied=shared_copy, number=draw)[0]
            for draw in range(DRAWS)
        ]
        changes = [relative_error(update, given) for update in drawn]
        causes.append(Cause(f"active {', '.join(layers)}", float(np.median(changes))))
    return tuple(causes)


def _fit(
    client: CapturedUpdates, network: nn.Module, captured: Sequence[State], truth: Private
) -> Fit | None:
    """Return the learning rate at which clients explain the updates best; None: none does.

    It is the fixed point of the rate that scales the mean direction of the first client's steps to
    its update, when the steps are taken at that rate; steps along gradients of no length begin.
    """
    first = replace(truth, inputs=truth.inputs[:1], labels=truth.labels[:1])
    weight, rate, best = sum(client.protocol.factors), TINY, None
    for _ in range(REFINEMENTS):
        moving = changed(client, {"sends": "gradient", "local_lr": rate})
        factor = -_factor(captured[0], _computed(moving, network, first)[0]) / weight
        if not (0 < factor < np.inf):
            return best
        rounded = float(f"{factor:.{RATE_DIGITS}g}")
        if rounded == rate:
            break
        rate = rounded
        fitted = _compare(captured, _computed(changed(client, {"local_lr": rate}), network, truth))
        if best is None or fitted.error < best.error:
            best = Fit(client.optimizer, rate, fitted.error)
    return best


def _compare(captured: Sequence[State], computed: Sequence[State]) -> UpdateComparison:
    """Compare the updates of all clients."""
    pairs = list(zip(captured, computed, strict=True))
    errors = tuple(relative_error(*pair) for pair in pairs)
    return UpdateComparison(errors, float(np.median([_factor(*pair) for pair in pairs])))


def _computed(
    client: CapturedUpdates,
    network: nn.Module,
    truth: Private,
    kept: Sequence[LocalTraining] = (),
    copied: Callable[[nn.Module], nn.Module] = deterministic_copy,
    number: int = 0,
) -> list[State]:
    """Compute the update of each client from its true samples, and its kept state if known.

    The network is copied so that its stochastic layers draw, from streams of a number, or not.
    """
    updates: list[State] = []
    for victim, (inputs, labels) in enumerate(zip(truth.inputs, truth.labels, strict=True)):
        samples = torch.from_numpy(inputs), torch.from_numpy(labels)
        before = kept[victim] if kept else None
        with drawing_from(torch_stream(number, "client", victim)):
            update = client.repeat(copied(client.run(network)), *samples, before)
        updates.append({name: value.detach() for name, value in update.items()})
    return updates


def _factor(captured: State, computed: State) -> float:
    """Return the factor of a computed update that minimises its distance from the captured one."""
    product = sum(float((captured[name] * value).sum()) for name, value in computed.items())
    power = sum(float(value.square().sum()) for value in computed.values())
    return product / max(power, torch.finfo(torch.float32).tiny)
