"""Contract of all defences, checked on a small update.

from gleak.testing import check_defense
from my_defenses import MyDefense

def test_my_defense():
    check_defense(MyDefense)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api.given_specs import as_spec
from gleak.artifacts.encodings import check_encoded
from gleak.core.errors import ArtifactError
from gleak.defenses.base import DefenseSpec
from gleak.runtime.seeding import drawing_from
from gleak.testing.network_forms import check_defense_on_forms
from gleak.testing.tiny_cells import check_registered

SHAPES = {"0.weight": (3, 2, 5, 5), "0.bias": (3,), "1.weight": (4, 12), "1.bias": (4,)}
SAMPLES = (5, 2, 6, 6)
CLASSES = 4


def check_defense(defense: str | DefenseSpec | type[DefenseSpec]) -> None:
    """Check that a defence obeys the contract of all defences.

    On a small update of one and of several rounds: parameters, rounds and shapes are kept; the
    encoding is valid, and that of the decoded values; equal random streams give equal values; and
    neither the client's values nor its model are changed, with and without samples. Clients of
    networks of unusual forms (as for `check_attack`) send what their defence makes of the update,
    or it refuses the network.

    Args:
        defense: a registered class, its spec or the spec's text.

    Raises:
        SpecError: the class is not registered.
        AssertionError: names what the defence does not obey.
    """
    spec: DefenseSpec = as_spec("defense", defense)
    check_registered(spec)
    for check in CHECKS:
        check(spec)


def random_stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_update(rounds: int = 2, scale: float = 1.0) -> dict[str, Tensor]:
    """Return an update of `small_network`, the same in every call; Shape (R, *shape)."""
    stream = random_stream(9)
    shapes = SHAPES.items()
    return {name: scale * torch.randn(rounds, *shape, generator=stream) for name, shape in shapes}


def small_network() -> nn.Module:
    """Return a network with the parameters of `SHAPES`, in training mode."""
    layers = {"0": nn.Conv2d(2, 3, 5), "relu": nn.ReLU(), "flat": nn.Flatten()}
    layers |= {"1": nn.Linear(12, CLASSES), "dropout": nn.Dropout()}
    return nn.Sequential(OrderedDict(layers))


def with_samples(
    spec: DefenseSpec, update: dict[str, Tensor], network: nn.Module
) -> dict[str, Tensor]:
    """Apply the part of a defence that uses the client's samples."""
    inputs = torch.rand(SAMPLES, generator=random_stream(1))
    with drawing_from(random_stream()):
        return spec.with_samples(update, network, inputs, torch.arange(len(inputs)) % CLASSES)


def received(spec: DefenseSpec, sent: dict[str, Tensor], seed: int = 0) -> dict[str, np.ndarray]:
    """Return what the server decodes, by parameter; Shape (1, R, *shape)."""
    protected = spec.protect(sent, random_stream(seed), {})
    return {name: encoded.decode() for name, encoded in protected.items()}


def check_encoding(spec: DefenseSpec) -> None:
    """Check that parameters, rounds and shapes are kept, in a valid encoding."""
    for rounds in (1, 3):
        protected = spec.protect(small_update(rounds), random_stream(), {})
        assert list(protected) == list(SHAPES), f"{spec} sends {list(protected)}"
        for key, encoded in protected.items():
            try:
                check_encoded(f"update of {spec}", key, encoded)
            except ArtifactError as error:
                raise AssertionError(str(error)) from error
            decoded, expected = encoded.decode(), (1, rounds, *SHAPES[key])
            assert decoded.shape == expected, f"{spec}: {key} has {decoded.shape}, not {expected}"
            assert decoded.dtype == np.float32, f"{spec}: {key} is {decoded.dtype}, not float32"


def check_randomness(spec: DefenseSpec) -> None:
    """Check that all random numbers are those of the generator."""
    first, again = (received(spec, small_update()) for _ in range(2))
    for key, value in first.items():
        same = np.array_equal(value, again[key])
        assert same, f"{spec}: {key} differs for equal generators; draw from the generator only"


def check_values_kept(spec: DefenseSpec) -> None:
    """Check that the client's own values are not changed."""
    sent = small_update()
    spec.protect(sent, random_stream(), {})
    for key, value in small_update().items():
        assert torch.equal(sent[key], value), f"{spec} changes the client's own {key}"


def check_with_samples(spec: DefenseSpec) -> None:
    """Check that parameters, rounds, shapes and types are kept by `DefenseSpec.with_samples`."""
    for rounds in (1, 3):
        after = with_samples(spec, small_update(rounds), small_network())
        assert list(after) == list(SHAPES), f"{spec} with samples returns {list(after)}"
        for key, value in small_update(rounds).items():
            own, where = after[key], f"{spec} with samples: {key}"
            kept = (own.shape, own.dtype) == (value.shape, value.dtype)
            assert kept, f"{where} is {own.dtype} {tuple(own.shape)}"
            assert not own.requires_grad, f"{where} requires a gradient"


def check_randomness_with_samples(spec: DefenseSpec) -> None:
    """Check that `DefenseSpec.with_samples` draws from torch's global generator only."""
    network = small_network()
    first, again = (with_samples(spec, small_update(), network) for _ in range(2))
    for key, value in first.items():
        assert torch.equal(value, again[key]), f"{spec} with samples: {key} differs for equal seeds"


def check_client_kept(spec: DefenseSpec) -> None:
    """Check that `DefenseSpec.with_samples` changes neither the client's values nor its model."""
    network, computed = small_network(), small_update()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with_samples(spec, computed, network)
    for key, value in small_update().items():
        assert torch.equal(computed[key], value), f"{spec} changes the client's own {key}"
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), f"{spec} changes {key} of the model"
    for layer in network.modules():
        assert layer.training, f"{spec} changes the mode of the model"
        assert not layer._forward_pre_hooks, f"{spec} leaves hooks in the model"
    for parameter in network.parameters():
        assert parameter.grad is None, f"{spec} leaves gradients in the model"


def check_joined(spec: DefenseSpec) -> None:
    """Check that encoded updates of several victims can be joined."""
    parts = [spec.protect(small_update(), random_stream(seed), {}) for seed in range(3)]
    for key in SHAPES:
        values = [part[key] for part in parts]
        joined = type(values[0]).stack(values)  # type: ignore[arg-type]
        check_encoded(f"updates of {spec}", key, joined)
        assert joined.leading == (3, 2), f"{spec}: {key} of three victims has {joined.leading}"
        alone = np.concatenate([value.decode() for value in values])
        assert np.array_equal(joined.decode(), alone), f"{spec}: {key} differs when joined"


def check_encoded_again(spec: DefenseSpec) -> None:
    """Check that values that a server decoded are encoded as they were sent.

    Of a sum the server sees no encodings.
    """
    protected = spec.protect(small_update(), random_stream(), {})
    decoded = {name: torch.from_numpy(one.decode()[0]) for name, one in protected.items()}
    again = spec.encode_received(decoded)
    for key, sent in protected.items():
        values, given, where = decoded[key].numpy(), again[key], f"{spec}: {key}, encoded again,"
        close = np.allclose(given.decode()[0], values, rtol=0, atol=1e-5 * np.abs(values).max())
        assert close, f"{where} has other values"
        if spec.clients_per_update == 1:
            kept = type(given) is type(sent)
            kinds = f"{type(given).__name__}, not {type(sent).__name__}"
            assert kept, f"{where} is {kinds}; override encode_received"
            alike = np.array_equal(np.asarray(given.sent()), np.asarray(sent.sent()))
            assert alike, f"{where} has another mask; override encode_received"


CHECKS: tuple[Callable[[DefenseSpec], None], ...] = (
    check_encoding,
    check_randomness,
    check_values_kept,
    check_with_samples,
    check_randomness_with_samples,
    check_client_kept,
    check_joined,
    check_encoded_again,
    check_defense_on_forms,
)
