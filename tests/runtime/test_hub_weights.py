from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from gleak.core.errors import ArtifactError
from gleak.runtime.hub_weights import PublishedWeights, checkpoint_path, fetch_command


@pytest.mark.parametrize("set_by", ["TORCH_HOME", "XDG_CACHE_HOME", None])
def test_the_folder_is_that_of_torch_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_by: str | None
) -> None:
    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if set_by:
        monkeypatch.setenv(set_by, str(tmp_path))
    assert checkpoint_path("a.pth") == Path(torch.hub.get_dir()) / "checkpoints" / "a.pth"


def test_the_command_is_valid_python_that_checks_the_digest() -> None:
    before, code, after = fetch_command("a-0123abcd.pth").split('"')
    assert (before, after) == ("python -c ", "")
    compile(code, "command", "exec")
    assert "/a-0123abcd.pth', check_hash=True" in code


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedWeights:
    """A file of four bytes at an address on this machine, and an empty cache."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.pth").write_bytes(b"abcd")
    monkeypatch.setattr("gleak.runtime.hub_weights.PUBLISHED", (tmp_path / "models").as_uri())
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    return PublishedWeights("a.pth", size=4, digest=sha256(b"abcd").hexdigest())


def test_weights_are_downloaded_once(published: PublishedWeights, tmp_path: Path) -> None:
    path = published.download()
    assert path == checkpoint_path("a.pth")
    assert path.read_bytes() == b"abcd"
    (tmp_path / "models" / "a.pth").unlink()
    assert published.download() == path


def test_a_download_of_another_digest_leaves_no_file(published: PublishedWeights) -> None:
    other = replace(published, digest=sha256(b"other").hexdigest())
    with pytest.raises(ArtifactError, match=r"a\.pth cannot be downloaded .*put it at"):
        other.download()
    assert list(checkpoint_path("a.pth").parent.iterdir()) == []


def test_without_a_connection_the_place_of_the_file_is_named(
    published: PublishedWeights, tmp_path: Path
) -> None:
    (tmp_path / "models" / "a.pth").unlink()
    with pytest.raises(ArtifactError, match=re.escape(f"put it at {checkpoint_path('a.pth')}")):
        published.download()
