"""Weight files in the cache of ``torch.hub``, downloaded on request only and checked when read."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO

from gleak.core.errors import ArtifactError, nearest
from gleak.core.lazy import torch
from gleak.core.spec import FILE_NAME
from gleak.runtime.user_cache import absence, check_home, exists, with_home

PUBLISHED = "https://download.pytorch.org/models"
NAMED_DIGEST = re.compile(r"-([0-9a-f]{8,})\.")
DIGESTS: Mapping[str, tuple[str, ...]] = {
    "squeezenet1_1-b8a52dc0.pth": (
        "b8a52dc049b60e4b6ab68ad0df457362afab8b6304b2febdc1650a5dab4d7e7b",
        "b54b6e9eee7d7ceeda397c80b4ee6bdc406d54ed2b7bd64e8978f44f3904bfb1",
    ),
    "alexnet-owt-7be5be79.pth": (
        "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",
    ),
    "vgg16-397923af.pth": ("397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",),
    "resnet18-f37072fd.pth": ("f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",),
    "resnet50-0676ba61.pth": ("0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",),
}
"""SHA-256 of torchvision's files, and of SqueezeNet's weights rounded to half precision, with which
the results in docs/results were measured: they change LPIPS by at most 3e-4."""
State = Mapping[str, "torch.Tensor"]
log = logging.getLogger(__name__)


def checkpoint_path(name: str) -> Path:
    """Return the path of a file in the cache of ``torch.hub``; it need not exist."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", f"{cache_home}/torch")
    return with_home(home) / "hub" / "checkpoints" / name


def address(name: str) -> str:
    """Return the address of one of torchvision's files."""
    return f"{PUBLISHED}/{name}"


def expected_digests(name: str) -> tuple[str, ...]:
    """Return what the SHA-256 of a file begins with, by its name: one of these; empty: unknown."""
    named = NAMED_DIGEST.search(name)
    return DIGESTS.get(name, (named[1],) if named else ())


def download(name: str) -> Path:
    """Download a file of torchvision to the cache of ``torch.hub``, unless it is there unaltered.

    Raises:
        ArtifactError: the name has no digits of a digest; no connection, no permission, or another
            digest. An altered file is replaced only by a download with the right digest.
    """
    from torch.hub import download_url_to_file

    path, expected = check_home(checkpoint_path(name)), expected_digests(name)
    if not expected or not re.fullmatch(FILE_NAME, name):
        raise ArtifactError(
            f"{name!r}: not the name of a file of torchvision, which ends with the first digits of "
            f"its SHA-256; those that gleak uses: {', '.join(DIGESTS)}"
        )
    if exists(path):
        try:
            check_file(name)
        except ArtifactError as error:
            log.warning("it is downloaded again: %s", error)
        else:
            return path
    try:
        if path.is_dir():
            raise ArtifactError(f"{path} is a folder; remove it, and run again")
        path.parent.mkdir(parents=True, exist_ok=True)
        download_url_to_file(address(name), str(path), hash_prefix=expected[0])
    except (OSError, RuntimeError) as error:
        raise ArtifactError(
            f"{address(name)} cannot be downloaded ({error}); download it on another machine and "
            f"put it at {path}"
        ) from None
    return path


def check_file(name: str) -> None:
    """Check that a file is there and, if its digest is known, unaltered.

    Raises:
        ArtifactError: it is not; the message contains the command that downloads it.
    """
    _opened(name).close()


def is_unaltered(name: str) -> bool:
    """Return whether a file is there and, if its digest is known, unaltered."""
    try:
        check_file(name)
    except ArtifactError:
        return False
    return True


def read_weights(name: str) -> tuple[Path, State]:
    """Return the path of a file in the cache of ``torch.hub``, and its tensors by name.

    Its digest, if that is known, is checked before its content is parsed.

    Raises:
        ArtifactError: the file is missing, unreadable or altered, or holds anything but tensors.
    """
    path = checkpoint_path(name)
    with _opened(name) as file:
        return path, read_tensors(path, file)


def _opened(name: str) -> BinaryIO:
    """Open a file whose digest is as expected, at its beginning."""
    path, expected, fetch = checkpoint_path(name), expected_digests(name), f"gleak weights {name}"
    if not exists(path):
        fault = f"{path} {absence(path)}"
        raise ArtifactError(
            f"{fault}; download it with: {fetch}"
            if name in DIGESTS
            else f"{fault}; put the file there, or set TORCH_HOME to the folder that "
            f"contains hub/checkpoints/{name}"
            + (f"; if it is one of torchvision, download it with: {fetch}" if expected else "")
        )
    try:
        file = path.open("rb")
        digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be read ({error.strerror}); replace it with: {fetch}"
        ) from None
    log.info("%s: sha256 %s", path, digest)
    if expected and not digest.startswith(expected):
        file.close()
        raise ArtifactError(
            f"{path}: altered or truncated: its SHA-256 is {digest}, but should "
            f"{'be' if name in DIGESTS else 'begin, by the name of the file, with'} {expected[0]}; "
            f"replace it with: {fetch}"
            + ("" if name in DIGESTS else "; if the digits mean something else, rename the file")
        )
    file.seek(0)
    return file


def check_weights(path: Path, found: State, own: State, kept: Collection[str] = ()) -> None:
    """Check that a file holds all tensors of a network, and no others, with finite values.

    Args:
        path: path of the file.
        found: tensors in the file.
        own: tensors of the network.
        kept: names of the network's tensors that may be missing or of another shape.

    Raises:
        ArtifactError: names the file, the tensor and the nearest unmatched name.
    """
    for name in {**own, **found}:
        theirs, ours = (tuple(s[name].shape) if name in s else None for s in (found, own))
        if theirs != ours and name not in kept:
            others = own.keys() - found.keys() if ours is None else found.keys() - own.keys()
            hint = f"{nearest(name, others)}; " if others and None in (theirs, ours) else ""
            raise ArtifactError(
                f"{path}: {name} has shape {theirs}, but in the network it has {ours}; {hint}"
                "choose the network these weights belong to, or another file"
            )
        if name not in found:
            continue
        value = found[name]
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise ArtifactError(
                f"{path}: {name} is sparse, quantised or without values; save dense tensors"
            )
        if not value.isfinite().all():
            raise ArtifactError(f"{path}: {name} contains values that are NaN or infinite")


def read_tensors(path: Path, file: BinaryIO) -> State:
    """Read tensors by name from an open file of `torch.save`; code in the file cannot run.

    Raises:
        ArtifactError: the file is truncated, or holds anything but tensors.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises errors of any type
        kind = type(error).__name__  # torch's message explains how to run the file's code
        raise ArtifactError(
            f"{path}: truncated, or contains anything but tensors ({kind})"
        ) from None
    if not isinstance(state, Mapping) or not all(map(torch.is_tensor, state.values())):
        raise ArtifactError(f"{path}: not a mapping of names to tensors (a state dict)")
    return dict(state)
