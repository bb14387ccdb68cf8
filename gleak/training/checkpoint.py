"""From a file of weights into a network, after it has been checked."""

from __future__ import annotations

import logging

from torch import nn

from gleak.runtime.hub_weights import State, check_weights, read_weights

COUNTER = "num_batches_tracked"
log = logging.getLogger(__name__)


def load_checkpoint(network: nn.Module, name: str) -> None:
    """Give a network the parameters and buffers of a file; see `gleak.training.pretrained`.

    Args:
        network: changed in place; its last layer is left as it is if the file's is of another
            number of classes.
        name: of a file where ``torch.hub`` keeps them.

    Raises:
        ArtifactError: the file is missing, holds other things than tensors, or tensors of other
            names or shapes, or values that are not finite.
    """
    path, found = read_weights(name)
    own = network.state_dict()
    kept = {**_of_other_classes(found, own), **uncounted(found, own)}
    check_weights(path, found, own, kept)
    network.load_state_dict({**found, **kept})


def _of_other_classes(found: State, own: State) -> State:
    """The network's last layer if the file's differs from it in the number of outputs alone."""
    *_, last = own
    layer, _, _ = last.rpartition(".")
    kept = {name: value for name, value in own.items() if name.rpartition(".")[0] == layer}
    for name, value in kept.items():
        theirs, ours = found[name].shape if name in found else value.shape, value.shape
        if theirs[1:] != ours[1:] or theirs[:1] == ours[:1]:
            return {}
    log.warning(
        "layer %s stays as it is initialised: the file's has %d outputs, the network's %d",
        *(layer, len(found[last]), len(own[last])),
    )
    return kept


def uncounted(found: State, own: State) -> State:
    """How many batches a batch norm has seen, which older files do not hold and nothing reads.

    Args:
        found: what is in a file.
        own: the network's, from which these are taken.
    """
    return {n: own[n] for n in own.keys() - found.keys() if n.rpartition(".")[2] == COUNTER}
