"""Parameters crafted by a server, for networks of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

from torch import nn

from gleak.api.client_setting import as_spec
from gleak.api.tensors import ShapeLike, checked_seed, checked_shape
from gleak.api.user_network import (
    GivenNetwork,
    describe_samples,
    examine,
    own_modes,
    prepared_copy,
)
from gleak.artifacts.model import Secret
from gleak.core.errors import IncompatibleError
from gleak.crafting.base import CraftingSpec
from gleak.models.parameters import independent_copy, unwrapped


@dataclass(frozen=True, eq=False, repr=False)
class CraftedModel:
    """Model that a malicious server broadcasts.

    Args:
        model: copy of the model with the crafted parameters, otherwise as it was.
        secret: data that the server keeps, for ``gleak.attack(..., secret=...)``.
    """

    model: nn.Module
    secret: Secret

    def __repr__(self) -> str:
        crafting = self.secret.spec.rpartition("/")[2]
        return f"CraftedModel({crafting!r}, {type(self.model).__name__})"


@own_modes()
def craft(
    spec: str | CraftingSpec,
    model: nn.Module,
    shape: ShapeLike = (3, 32, 32),
    *,
    seed: SupportsIndex = 0,
) -> CraftedModel:
    """Craft the parameters of a model as a malicious server does.

    The computation is that of the workflow: equal parameters and seeds give equal results.

    Args:
        spec: crafting, such as ``"mkor"`` or ``"fishing+target=3"`` (see ``gleak list crafting``),
            or its spec object.
        model: network that maps samples with values in [0, 1] to logits; it is not changed.
        shape: shape of one sample, in any sequence.
        seed: seed of the crafting's random numbers, not negative.

    Returns:
        A copy of the model with the crafted parameters, and the secret of the server.

    Raises:
        SpecError: an unknown crafting or field, or a value of another type or out of range.
        IncompatibleError: the model cannot be crafted; names what it lacks.

    Example:
        >>> import gleak, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Sigmoid(), nn.Linear(8, 4))
        >>> crafted = gleak.craft("fishing+target=2", model, shape=(3, 4, 4))
        >>> crafted.model[3].bias.tolist().count(100.0)
        3
        >>> images, labels = torch.rand(3, 3, 4, 4), torch.tensor([0, 2, 3])
        >>> gradients = gleak.compute_update(crafted.model, images, labels)
        >>> known = {"shape": (3, 4, 4), "batch_size": 3, "secret": crafted.secret}
        >>> gleak.attack("fishing+iterations=2", crafted.model, gradients, **known).labels
        tensor([2])
    """
    server: CraftingSpec = as_spec("crafting", spec)
    network, shape, seed = prepared_copy(model), checked_shape(shape), checked_seed(seed)
    classes = examine(network, shape)
    server.check(describe_samples(shape, classes), GivenNetwork())
    try:
        server.check_network(network, shape, classes)
        values = server.craft_network(network, shape, classes, seed)
    except IncompatibleError as error:
        raise IncompatibleError(f"crafting {server} does not fit the model: {error}") from None
    crafted = independent_copy(model)
    unwrapped(crafted).load_state_dict(network.state_dict())
    return CraftedModel(crafted, Secret(spec=str(server), seed=seed, values=values))
