"""Knowledge that somebody else has trained, read from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.spec import FILE_NAME, parameter
from gleak.knowledge.base import KnowledgeSpec

if TYPE_CHECKING:
    from torch import nn


class PretrainedSpec(KnowledgeSpec):
    """A network whose parameters come from a file.

    It stands in torch's folder, ``$TORCH_HOME/hub/checkpoints``, and is what `torch.save` makes of
    a state dict; it is read as tensors alone, so no code in it can run. Nothing is downloaded. The
    public dataset is the one it is said to be trained on, as far as it is at hand. Give changed
    weights a new name: results are known by the name, and the log holds the file's SHA-256.
    """

    weights: str = parameter("weights.pth", "name of the file", pattern=FILE_NAME)

    @override
    def check_samples(self, samples: int, dataset: str) -> None:
        """Nothing is trained, so none are needed."""

    def read(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network with the parameters of the file.

        Raises:
            ArtifactError: the file is missing, holds other things than tensors, or tensors of
                other names or shapes, or values that are not finite.
        """
        from gleak.runtime.hub_weights import check_weights, read_weights

        network = self.build(shape, classes)
        path, found = read_weights(self.weights)
        check_weights(path, found, network.state_dict())
        network.load_state_dict(found)
        return network
