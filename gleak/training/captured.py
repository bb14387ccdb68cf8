"""A model whose parameters a server broadcast elsewhere."""

from __future__ import annotations

from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.training.base import TrainingSpec


@register("captured")
class Captured(TrainingSpec):
    """Parameters and buffers of a capture, ``<data_dir>/captures/<capture>/model.h5``.

    ``gleak import`` makes it of a state dict; see docs/real-updates.md. Clients may be simulated on
    them, or be those that were captured with them.
    """

    source = "the user's own model"

    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)
