from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from gleak.cli.main import main
from gleak.core.errors import ArtifactError
from gleak.runtime.hub_weights import (
    DIGESTS,
    check_file,
    check_weights,
    checkpoint_path,
    download,
    read_weights,
)


@pytest.mark.parametrize("set_by", ["TORCH_HOME", "XDG_CACHE_HOME", None])
def test_the_folder_is_that_of_torch_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_by: str | None
) -> None:
    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if set_by:
        monkeypatch.setenv(set_by, str(tmp_path))
    assert checkpoint_path("a.pth") == Path(torch.hub.get_dir()) / "checkpoints" / "a.pth"


@pytest.mark.parametrize("name", DIGESTS)
def test_the_digests_begin_as_the_names_of_the_files_say(name: str) -> None:
    named, *_ = DIGESTS[name]
    assert name.endswith(f"-{named[:8]}.pth")
    assert {len(digest) for digest in DIGESTS[name]} == {64}


DIGEST = sha256(b"abcd").hexdigest()
FULL, PREFIX = "known-00000000.pth", f"named-{DIGEST[:8]}.pth"


@pytest.fixture(params=[FULL, PREFIX])
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of four bytes at an address on this machine, and an empty cache.

    Its digest is known, or only the digits in its name.
    """
    models = tmp_path / "models"
    models.mkdir()
    (models / request.param).write_bytes(b"abcd")
    monkeypatch.setattr("gleak.runtime.hub_weights.PUBLISHED", models.as_uri())
    monkeypatch.setitem(DIGESTS, FULL, (DIGEST,))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    checkpoint_path("any").parent.mkdir(parents=True)
    return str(request.param)


def test_weights_are_downloaded_once(name: str, tmp_path: Path) -> None:
    path = download(name)
    assert path == checkpoint_path(name)
    assert path.read_bytes() == b"abcd"
    (tmp_path / "models" / name).unlink()
    assert download(name) == path


@pytest.mark.parametrize("content", [b"", b"abce", b"abcdabcd"])
def test_an_altered_file_is_refused_and_the_command_replaces_it(
    name: str,
    content: bytes,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = checkpoint_path(name)
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as raised:
        read_weights(name)
    message = str(raised.value)
    assert str(path) in message and sha256(content).hexdigest() in message
    expected = (
        f"be {DIGEST}" if name == FULL else f"begin, by the name of the file, with {DIGEST[:8]}"
    )
    assert f"but should {expected}; replace it with: gleak weights {name}" in message
    assert main(["weights", name]) == 0
    assert path.read_bytes() == b"abcd"
    assert DIGEST[:8] in capsys.readouterr().out
    assert f"{path}: altered or truncated: its SHA-256 is" in caplog.text


def test_an_altered_file_stays_refused_if_it_cannot_be_replaced(name: str, tmp_path: Path) -> None:
    path = checkpoint_path(name)
    path.write_bytes(b"abce")
    (tmp_path / "models" / name).unlink()
    with pytest.raises(ArtifactError, match=re.escape(f"put it at {path}")):
        download(name)
    with pytest.raises(ArtifactError, match="altered or truncated"):
        check_file(name)


def test_a_download_of_another_digest_leaves_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "models" / name).write_bytes(b"other")
    with pytest.raises(ArtifactError, match=r"\.pth cannot be downloaded .*put it at"):
        download(name)
    assert list(checkpoint_path(name).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "is a folder"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("nothing"), "is a link to nothing"),
        (lambda path: None, "is missing"),
    ],
)
def test_what_is_in_place_of_a_file_is_said(
    name: str, make: Callable[[Path], None], words: str
) -> None:
    make(checkpoint_path(name))
    with pytest.raises(ArtifactError, match=f"{name} {words}; "):
        read_weights(name)
    if words == "is a folder":
        with pytest.raises(ArtifactError, match="is a folder; remove it"):
            download(name)
    else:
        assert download(name).read_bytes() == b"abcd"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({3: torch.ones(2)}, "bias has shape None"),
        ({"bias": torch.ones(2), 3: torch.ones(2)}, "3 has shape (2,), but in the network"),
        ({"bias": torch.ones(2).to_sparse()}, "bias is sparse, quantised or without values"),
        ({"bias": torch.ones(2, device="meta")}, "bias is sparse, quantised or without values"),
    ],
)
def test_tensors_that_no_network_takes_are_refused(found: Any, words: str) -> None:
    with pytest.raises(ArtifactError, match=re.escape(f"own.pth: {words}")):
        check_weights(Path("own.pth"), found, {"bias": torch.ones(2)})


@pytest.mark.parametrize(
    "other", ["own.pth", "../a-0123abcd.pth", "a-0123.pth", "a\0-0123abcd.pth"]
)
def test_only_files_whose_names_have_digits_are_downloaded(other: str) -> None:
    with pytest.raises(ArtifactError, match="not the name of a file of torchvision"):
        download(other)


def test_a_name_of_the_users_may_end_with_other_digits(name: str) -> None:
    own = checkpoint_path("net-20260101.pth")
    own.write_bytes(b"abcd")
    with pytest.raises(ArtifactError, match="rename the file"):
        check_file(own.name)
