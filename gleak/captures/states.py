"""State dicts as files: safetensors alone, so that no code in a file can run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gleak.core.errors import ArtifactError

PICKLED = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
PICKLE_BEGINS = (b"\x80", b"PK")
State = Mapping[str, Tensor]


def read_state(path: Path) -> State:
    """The tensors in a file by their names.

    Raises:
        ArtifactError: missing, pickled (says how to convert it), or not a whole safetensors file.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    try:
        return load_file(path)
    except SafetensorError as error:
        if _is_pickled(path):
            raise ArtifactError(
                f"{path}: a pickle, which can run any code; where you trust it, convert it: "
                f"{conversion(path)}"
            ) from None
        raise ArtifactError(f"{path}: not a whole safetensors file ({error})") from None


def _is_pickled(path: Path) -> bool:
    """Whether it is what `torch.save` or `pickle` writes, by its name or its first bytes."""
    with path.open("rb") as file:
        return path.suffix in PICKLED or file.read(2).startswith(PICKLE_BEGINS)


def conversion(path: Path) -> str:
    """A command that writes a pickled state dict as safetensors beside it."""
    return (
        'python -c "import torch; from safetensors.torch import save_file; '
        f"save_file({{k: v.clone() for k, v in torch.load('{path}', map_location='cpu', "
        f"weights_only=True).items()}}, '{path.with_suffix('.safetensors')}')\""
    )
