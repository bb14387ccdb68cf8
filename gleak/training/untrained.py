"""Parameters without training: randomly initialised, read from a file, or captured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.training.base import History, InitialisedSpec, TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.checkpointing import Part


@register("untrained")
class Untrained(InitialisedSpec):
    """No training: randomly initialised parameters, as in the first round."""

    @override
    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        from gleak.training.central_training import test_accuracy

        return History(test_accuracy=test_accuracy(model, dataset))


@register("pretrained")
class Pretrained(InitialisedSpec):
    """Parameters and buffers from a file in torch's cache, ``$TORCH_HOME/hub/checkpoints``.

    The file is a state dict written by `torch.save`, with the names of the network's tensors; only
    tensors are read, so code in the file cannot run. If its last layer has another number of
    classes than the dataset, that layer keeps its random initialisation. Nothing is downloaded.
    Give changed weights a new name: results are identified by the name, and the log contains the
    file's SHA-256.
    """

    source = "CPA section V-A"

    weights: str = parameter(
        "vgg16-397923af.pth",
        "name of the file; torchvision's begin with the name of the model",
        source="torchvision's VGG16_Weights.IMAGENET1K_V1",
        pattern=FILE_NAME,
    )

    @override
    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        from gleak.training.central_training import test_accuracy
        from gleak.training.initialisation import load_weights

        load_weights(model, self.weights)
        return History(test_accuracy=test_accuracy(model, dataset))


@register("captured")
class Captured(TrainingSpec):
    """Parameters and buffers of a capture, ``<data_dir>/captures/<capture>/model.h5``.

    ``gleak import`` writes the capture from a state dict; see docs/guide/real-updates.md. Clients
    may be simulated with these parameters, or be the clients of the capture.
    """

    source = "the user's own model"

    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)
