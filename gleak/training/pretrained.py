"""A model whose parameters come from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.checkpointing import Part


@register("pretrained")
class Pretrained(InitialisedSpec):
    """Parameters and buffers from a file in torch's folder, ``$TORCH_HOME/hub/checkpoints``.

    The file is what `torch.save` makes of a state dict, tensors by the names they have in the
    network; it is read as tensors alone, so no code in it can run. Where its last layer is of
    another number of classes than the dataset, that layer stays as it is initialised. Nothing is
    downloaded. Give changed weights a new name: results are known by the name, and the log holds
    the file's SHA-256.
    """

    source = "CPA section V-A"

    weights: str = parameter(
        "vgg16-397923af.pth",
        "name of the file; those of torchvision begin with the model's",
        source="torchvision's VGG16_Weights.IMAGENET1K_V1",
        pattern=FILE_NAME,
    )

    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """See `InitialisedSpec.fit`.

        Raises:
            ArtifactError: the file is missing, or is not one of this network's.
        """
        from gleak.training.checkpoint import load_checkpoint
        from gleak.training.evaluate import test_accuracy

        load_checkpoint(model, self.weights)
        return History(test_accuracy=test_accuracy(model, dataset))
