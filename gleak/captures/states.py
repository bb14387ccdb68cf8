"""State dicts in files: only safetensors, so that code in a file cannot run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gleak.artifacts.atomic import renamed
from gleak.core.errors import ArtifactError

PICKLED = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
PICKLE_BEGINS = (b"\x80", b"PK")
State = Mapping[str, Tensor]


def read_state(path: Path) -> State:
    """Read the tensors of a file by name.

    Raises:
        ArtifactError: the file is missing, pickled, or not a complete safetensors file.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    try:
        return load_file(path)
    except SafetensorError as error:
        if _is_pickled(path):
            raise ArtifactError(
                f"{path}: a pickle, which can run any code; if you trust it, convert it: "
                f"{conversion(path)}"
            ) from None
        raise ArtifactError(f"{path}: not a complete safetensors file ({error})") from None


def write_state(
    path: Path, values: Mapping[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write arrays or tensors by name, readable by their owner alone, without waiting for the disk.

    Raises:
        ArtifactError: no permission or no space; no partial file remains.
    """
    tensors = {name: torch.as_tensor(value) for name, value in values.items()}
    with renamed(path, private=True) as temporary:
        save_file(tensors, temporary, metadata)


def is_dense(value: Any) -> bool:
    """Return True for a tensor that holds all of its values, in a type that safetensors has."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.dtype != torch.complex128
        and not (value.is_quantized or value.is_nested or value.is_meta)
    )


def described(value: Any) -> str:
    """Return the type of a value, and of a tensor those of its values and its layout."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, {value.layout}, on {value.device.type}"
    return type(value).__name__


def _is_pickled(path: Path) -> bool:
    """Return True if name or first bytes are those of a file of `torch.save` or `pickle`."""
    with path.open("rb") as file:
        return path.suffix in PICKLED or file.read(2).startswith(PICKLE_BEGINS)


def conversion(path: Path) -> str:
    """Return a command that converts a pickled state dict to safetensors in the same folder."""
    code = (
        "import torch; from safetensors.torch import save_file; "
        f"save_file({{k: v.clone() for k, v in torch.load({str(path)!r}, map_location='cpu', "
        f"weights_only=True).items()}}, {str(path.with_suffix('.safetensors'))!r})"
    )
    return f"python -c {shlex.quote(code)}"
