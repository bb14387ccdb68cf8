"""Files of weights, where ``torch.hub`` keeps them; nothing here downloads one."""

from __future__ import annotations

import os
from pathlib import Path

PUBLISHED = "https://download.pytorch.org/models"


def checkpoint_path(name: str) -> Path:
    """Where ``torch.hub`` keeps the file of this name, whether it is there or not."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = Path(os.environ.get("TORCH_HOME", f"{cache_home}/torch")).expanduser()
    return home / "hub" / "checkpoints" / name


def fetch_command(name: str) -> str:
    """A command that downloads one of torchvision's files to that place."""
    return (
        'python -c "from torch.hub import load_state_dict_from_url as fetch; '
        f"fetch('{PUBLISHED}/{name}', check_hash=True)\""
    )
