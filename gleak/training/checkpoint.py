"""From a file of weights into a network, after it has been checked."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path

import torch
from torch import Tensor, nn

from gleak.errors import ArtifactError
from gleak.runtime.checkpoints import checkpoint_path, fetch_command

NAMED_DIGEST = re.compile(r"-([0-9a-f]{8,})\.")
COUNTER = "num_batches_tracked"
OTHER = "choose the model it is of, or another file"
State = Mapping[str, Tensor]
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
    path = checkpoint_path(name)
    if not path.is_file():
        raise ArtifactError(
            f"{path} is missing; put the file there, or set TORCH_HOME to the folder that holds "
            f"hub/checkpoints/{name}; if it is torchvision's, fetch it with: {fetch_command(name)}"
        )
    _log_digest(path)
    found, own = _read(path), network.state_dict()
    kept = {**_of_other_classes(found, own), **_uncounted(found, own)}
    _check(path, found, own, kept)
    network.load_state_dict({**found, **kept})


def _log_digest(path: Path) -> None:
    """Names as ``torch.hub`` gives them end in the first digits."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    log.info("%s: sha256 %s", path, digest)
    named = NAMED_DIGEST.search(path.name)
    if named and not digest.startswith(named[1]):
        log.warning("%s: not the file it is named after, whose sha256 begins %s", path, named[1])


def _read(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged, a pickle raises of any kind
        kind = type(error).__name__  # torch's text tells how to run what the file holds
        raise ArtifactError(f"{path}: not a whole file of tensors alone ({kind})") from None
    if not isinstance(found, Mapping) or not all(torch.is_tensor(v) for v in found.values()):
        raise ArtifactError(f"{path}: not a mapping of names to tensors (a state dict)")
    return dict(found)


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


def _uncounted(found: State, own: State) -> State:
    """How many batches a batch norm has seen, which older files do not hold and nothing reads."""
    return {n: own[n] for n in own.keys() - found.keys() if n.rpartition(".")[2] == COUNTER}


def _check(path: Path, found: State, own: State, kept: State) -> None:
    """Every tensor of the network is in the file, and no other, whole and finite."""
    for name in {**own, **found}:
        theirs, ours = (tuple(s[name].shape) if name in s else None for s in (found, own))
        if theirs != ours and name not in kept:
            raise ArtifactError(
                f"{path}: {name} has shape {theirs}, but in the network it has {ours}; {OTHER}"
            )
        if name in found and not found[name].isfinite().all():
            raise ArtifactError(f"{path}: {name} holds values that are NaN or infinite")
