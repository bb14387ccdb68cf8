"""Parameters without training: randomly initialised, read from a file, or captured."""

from __future__ import annotations

import logging
import re

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.models.base import ModelSpec
from gleak.runtime.checkpointing import Part
from gleak.runtime.hub_weights import State, check_weights, checkpoint_path, read_weights
from gleak.runtime.user_cache import exists
from gleak.training.base import History, InitialisedSpec, TrainingSpec, test_accuracy

PUBLISHED = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "vgg16": "vgg16-397923af.pth",
}
"""Files of the weights IMAGENET1K_V1 of torchvision, by the name of the network."""
TORCHVISION_FILE = re.compile(r"(?P<network>(?:resnet|vgg)\d+(?:_bn)?)-[0-9a-f]{8}\.pth")
"""Names of torchvision's weight files of the families of networks that gleak has."""
log = logging.getLogger(__name__)


@register("untrained")
class Untrained(InitialisedSpec):
    """No training: randomly initialised parameters, as in the first round."""

    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        return History(test_accuracy=test_accuracy(model, dataset))


@register("pretrained")
class Pretrained(InitialisedSpec):
    """Parameters and buffers from a file in torch's cache, ``$TORCH_HOME/hub/checkpoints``.

    The file is a state dict written by `torch.save`, with the names of the network's tensors; only
    tensors are read, so code in the file cannot run. A file whose SHA-256 differs from that of
    torchvision's file, or from the digits with which its name ends, is refused. If its last layer
    has another number of classes than the dataset, that layer keeps its random initialisation. A
    run downloads nothing; ``gleak weights FILE`` downloads torchvision's files. Give changed
    weights a new name: results are identified by the name, and the log contains the file's SHA-256.
    """

    source = "CPA section V-A"

    weights: str = parameter(
        "vgg16-397923af.pth",
        "name of the file, or of a network whose file torchvision publishes: resnet18, resnet50",
        source="torchvision's VGG16_Weights.IMAGENET1K_V1",
        pattern=FILE_NAME,
    )

    @property
    def file(self) -> str:
        return PUBLISHED.get(self.weights, self.weights)

    def check_model(self, model: ModelSpec) -> None:
        """Check that a file of torchvision has the name of the model, and that it is read once."""
        if self.repetition:
            raise IncompatibleError(
                f"training {self}: repetitions of {self.name!r} have the same parameters, those of "
                "the file; leave repetition and networks out"
            )
        published = TORCHVISION_FILE.fullmatch(self.file)
        if published and not model.user_defined and published["network"] != model.name:
            raise IncompatibleError(
                f"training {self}: {self.file} contains the parameters of torchvision's "
                f"{published['network']}, but the model is {model}; use weights={model.name}, or "
                f"model {published['network']}"
            )

    def rehearse(self, model: torch.nn.Module, dataset: Dataset, part: Part) -> None:
        """Compare the tensors of the file with those of the model, if the file is there."""
        if exists(checkpoint_path(self.file)):
            super().rehearse(model, dataset, part)

    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        load_weights(model, self.file)
        return History(test_accuracy=test_accuracy(model, dataset))


@register("captured")
class CapturedModel(TrainingSpec):
    """Parameters and buffers of a capture, ``<data_dir>/captures/<capture>/model.h5``.

    ``gleak import`` writes the capture from a state dict; see docs/guide/real-updates.md. Clients
    may be simulated with these parameters, or be the clients of the capture.
    """

    source = "the user's own model"

    capture: str = parameter("mine", "name of the capture", pattern=FILE_NAME)


def load_weights(network: torch.nn.Module, name: str) -> None:
    """Read parameters and buffers of a network from a file in the cache of ``torch.hub``.

    The last layer is not changed if that of the file has another number of classes.

    Raises:
        ArtifactError: the file is missing or altered, contains anything but tensors, or tensors
            with other names or shapes, or values that are not finite.
    """
    path, weights = read_weights(name)
    state = network.state_dict()
    kept = {**_other_classes(weights, state), **missing_counters(weights, state)}
    check_weights(path, weights, state, kept)
    network.load_state_dict({**weights, **kept})


def _other_classes(weights: State, state: State) -> State:
    """Return the network's last layer if the file's only differs in the number of outputs."""
    *_, last = state
    layer, _, _ = last.rpartition(".")
    kept = {name: value for name, value in state.items() if name.rpartition(".")[0] == layer}
    for name, value in kept.items():
        theirs, ours = weights[name].shape if name in weights else value.shape, value.shape
        if theirs[1:] != ours[1:] or theirs[:1] == ours[:1]:
            return {}
    log.warning(
        "layer %s keeps its random initialisation: it has %d outputs in the file and %d in the "
        "network",
        *(layer, len(weights[last]), len(state[last])),
    )
    return kept


def missing_counters(weights: State, state: State) -> State:
    """Return the batch counters of normalisation layers that a file lacks, as older files do."""
    missing = state.keys() - weights.keys()
    return {name: state[name] for name in missing if name.endswith("num_batches_tracked")}
