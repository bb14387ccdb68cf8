"""Clients whose updates were captured outside of gleak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from gleak.clients.fedavg import FedAvg
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter

if TYPE_CHECKING:
    from gleak.data.base import DatasetSpec


@register("captured")
class Captured(FedAvg):
    """Real clients, whose updates are read from a capture, ``<data_dir>/captures/<capture>/``.

    ``gleak import`` writes the capture and prints this spec; see docs/guide/real-updates.md. The
    fields are the clients' hyperparameters as known to the server; a capture with other values is
    refused. They are those of federated averaging, which the clients are assumed to use: if the
    true samples are known, drift and the check of an import are computed under this assumption.
    """

    source = "the user's own updates"

    repeats: Literal[1] = parameter(1, "every captured client is one victim")
    labels: Literal["random"] = parameter("random", "not drawn: given by the capture")
    classes: None = parameter(None, "not drawn: given by the capture")
    sends: Literal["gradient", "weights"] = parameter(
        "weights", "captured updates: differences of weights, or gradients"
    )
    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)

    @property
    @override
    def draw(self) -> tuple[object, ...]:
        return ("captured", self.capture)

    @override
    def check(self, dataset: DatasetSpec) -> None:
        """Accept any dataset, because no samples are drawn from it."""

    @property
    @override
    def required_specs(self) -> Mapping[str, str]:
        training = f"captured+capture={self.capture}"
        return {"training": training, "crafting": "honest", "defense": "none"}
