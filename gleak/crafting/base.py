"""Base class of servers, the honest one, and the workflow stage that crafts parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from gleak.artifacts.model import Model, Secret
from gleak.core.errors import ArtifactError, IncompatibleError, error_context
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.models.base import ModelSpec
from gleak.models.broadcast import load_network, with_state
from gleak.models.parameters import independent_copy

PARAMETERS = "parameters.h5"
SECRET = "secret.h5"


@dataclass(frozen=True)
class Crafted:
    """Parameters to broadcast, and the server's secret (see `gleak.artifacts.model.Secret`)."""

    model: Model
    secret: Mapping[str, np.ndarray]


class CraftingSpec(Spec):
    """Base class of servers, which may modify the parameters before they broadcast them.

    ``broadcasts_model`` is True if ``model.h5`` itself is broadcast.
    """

    kind: ClassVar[str] = "crafting"
    broadcasts_model: ClassVar[bool] = False

    @abstractmethod
    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Replace the parameters of a network by those to broadcast, in place.

        Args:
            network: in evaluation mode.
            shape: of a sample.
            classes: number of outputs.
            seed: of the run.

        Returns:
            The secret of the server: arrays by name; see `gleak.artifacts.model.Secret`.

        Raises:
            IncompatibleError: names what the network lacks.
        """

    def client_parameters(self, network: torch.nn.Module) -> dict[str, np.ndarray] | None:
        """Return the parameters of a crafted network of which each client of a sum gets its own.

        Returns:
            By name, Shape (clients, *shape), of which the first are those of the network; None if
            all clients get the same.
        """
        return None

    def craft(self, model: Model, seed: int) -> Crafted:
        """Return the parameters to broadcast, without the test accuracy, and the server's secret.

        Raises:
            IncompatibleError: the network cannot be crafted.
        """
        network = load_network(model, f"crafting {self}")
        shape = tuple(map(int, model.input_shape))
        try:
            secret = self.craft_network(network, shape, model.classes, seed)
        except IncompatibleError as error:
            raise IncompatibleError(
                f"crafting {self} does not fit model {model.model}: {error}"
            ) from None
        crafted = replace(
            with_state(model, network),
            test_accuracy=np.empty(0),
            client_parameters=self.client_parameters(network),
        )
        return Crafted(crafted, secret)

    def check_secret(
        self, secret: Secret, network: torch.nn.Module, shape: tuple[int, ...], classes: int
    ) -> None:
        """Check that a secret is that of a network crafted like this one, before it is used.

        A copy of the network is crafted: names and shapes must be equal, and positions too.

        Raises:
            ArtifactError: the secret is that of another network, or was changed.
            IncompatibleError: such a network cannot be crafted.
        """
        copied = independent_copy(network)
        with error_context(f"secret of crafting {self}"):
            expected = self.craft_network(copied, shape, classes, secret.seed or 0)
        for name in {**expected, **secret.values}:
            theirs, ours = (values.get(name) for values in (secret.values, expected))
            if theirs is None or ours is None or not _alike(np.asarray(theirs), ours):
                raise ArtifactError(
                    f"secret of crafting {self}: {name} is not that of this network; give the "
                    "secret and the network that were crafted together"
                )

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Check that the specs are supported, before any job is run.

        Raises:
            IncompatibleError: names the crafting and the spec that it does not support.
        """

    def check_clients(self, model: ModelSpec, defense: DefenseSpec) -> None:
        """Check that there are parameters for the clients of a sum, before any job is run.

        Raises:
            IncompatibleError: names what there is too little of.
        """

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Check that a network, untrained and in evaluation mode, can be crafted; not changed.

        Raises:
            IncompatibleError: names what the network lacks.
        """

    def expected_share(self, model: ModelSpec, samples: int, clients: int) -> float | None:
        """Return the share of samples that its attack is expected to recover, by theory.

        Args:
            model: architecture that is crafted.
            samples: number of samples of a client.
            clients: number of clients of which an update is the sum.

        Returns:
            None if there is no theory.
        """
        return None


@register("honest")
class Honest(CraftingSpec):
    """Broadcasts the model without changes: ``model.h5`` itself, not a copy."""

    broadcasts_model: ClassVar[bool] = True

    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        return {}


def _alike(values: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether arrays have one shape and, if they are positions, equal values."""
    positions = expected.dtype.kind == "i"
    return np.array_equal(values, expected) if positions else values.shape == expected.shape


def craft_parameters(crafting: CraftingSpec, model_path: Path, folder: Path, *, seed: int) -> None:
    """Craft the parameters that are broadcast and write them with the secret of the server.

    Raises:
        IncompatibleError: the model cannot be crafted.
    """
    model = Model.read(model_path)
    crafted = crafting.craft(model, seed)
    spec = f"{model.spec}/{crafting}"
    replace(crafted.model, spec=spec).write(folder / PARAMETERS)
    Secret(spec=spec, seed=seed, values=dict(crafted.secret)).write(folder / SECRET)
