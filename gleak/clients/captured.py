"""Clients whose updates were captured elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gleak.clients.fedavg import FedAvg
from gleak.errors import FitError
from gleak.registry import parse, register
from gleak.spec import FILE_NAME, knob

if TYPE_CHECKING:
    from gleak.crafting.base import CraftingSpec
    from gleak.data.base import DatasetSpec
    from gleak.defenses.base import DefenseSpec
    from gleak.training.base import TrainingSpec


@register("captured")
class Captured(FedAvg):
    """Real clients: their updates are those of a capture, ``<data_dir>/captures/<capture>/``.

    ``gleak import`` makes it and says how to write this spec; see docs/real-updates.md. The fields
    say how the clients trained, as the server knows it; a capture that says otherwise is refused.
    They are those of federated averaging, which is what the clients are taken to have done: where
    the truth is known, drift and the check of an import are computed so.
    """

    source = "the user's own updates"

    repeats: Literal[1] = knob(1, "every captured client stands for itself")
    labels: Literal["random"] = knob("random", "nothing is drawn")
    classes: None = knob(None, "nothing is drawn")
    sends: Literal["gradient", "weights"] = knob(
        "weights", "weights: what was captured is their difference; gradient: gradients"
    )
    capture: str = knob("mine", "name of the capture", pattern=FILE_NAME)

    def check(self, dataset: DatasetSpec) -> None:
        """See `ClientSpec.check`; nothing is drawn from the dataset, so any size will do."""

    def check_setting(
        self, training: TrainingSpec, crafting: CraftingSpec, defense: DefenseSpec | None
    ) -> None:
        """See `ClientSpec.check_setting`: all around these clients happened when they trained."""
        wanted = {
            "training": (training, parse("training", f"captured+capture={self.capture}")),
            "crafting": (crafting, parse("crafting", "honest")),
            "defense": (defense or parse("defense", "none"), parse("defense", "none")),
        }
        for level, (found, expected) in wanted.items():
            if found != expected:
                raise FitError(
                    f"client {self} is as it was captured, with whatever parameters and defence "
                    f"there were; use {level} {expected}, not {found}"
                )
