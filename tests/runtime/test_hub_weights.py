from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gleak.runtime.hub_weights import checkpoint_path, fetch_command


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
