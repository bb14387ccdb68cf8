"""Clients whose updates were captured elsewhere."""

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
    """Real clients: their updates are those of a capture, ``<data_dir>/captures/<capture>/``.

    ``gleak import`` makes it and says how to write this spec; see docs/real-updates.md. The fields
    say how the clients trained, as the server knows it; a capture that says otherwise is refused.
    They are those of federated averaging, which is what the clients are taken to have done: where
    the truth is known, drift and the check of an import are computed so.
    """

    source = "the user's own updates"

    repeats: Literal[1] = parameter(1, "every captured client stands for itself")
    labels: Literal["random"] = parameter("random", "nothing is drawn")
    classes: None = parameter(None, "nothing is drawn")
    sends: Literal["gradient", "weights"] = parameter(
        "weights", "weights: what was captured is their difference; gradient: gradients"
    )
    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)

    @override
    def check(self, dataset: DatasetSpec) -> None:
        """Nothing is drawn from the dataset, so any size will do."""

    @property
    @override
    def required_specs(self) -> Mapping[str, str]:
        """What they trained on and sent is as it was captured."""
        training = f"captured+capture={self.capture}"
        return {"training": training, "crafting": "honest", "defense": "none"}
