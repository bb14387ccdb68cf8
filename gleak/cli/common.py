"""Options, configuration and messages that several commands share."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from gleak.core.errors import GleakError, SpecError
from gleak.core.plugins import use_plugins
from gleak.core.settings import SCALES, Settings
from gleak.core.yaml_input import load_mapping

CONFIG = Path("config.yaml")
EXIT_FINDING, EXIT_INCONCLUSIVE = 3, 4
WIDTH = 100


def add_config_option(command: ArgumentParser) -> None:
    text = "configuration; default config.yaml"
    command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help=text)


def add_scale_option(command: ArgumentParser) -> None:
    command.add_argument("--scale", metavar="SCALE", help=" or ".join(SCALES))


def read_settings(path: Path, changes: dict[str, Any]) -> Settings:
    """Read the configuration and replace some of its values."""
    if not path.is_file():
        raise SpecError(
            f"{path}: no such file; change to the folder of the Snakefile, or give --config FILE"
        )
    content = load_mapping(path, "configuration", "studies, scale, ...")
    settings = Settings.read({**content, **changes})
    use_plugins(settings.plugins)
    return settings


def settings_here(path: Path = CONFIG, changes: dict[str, Any] | None = None) -> Settings:
    """Read the configuration; that of the current folder need not exist."""
    if path == CONFIG and not path.is_file():
        return Settings.read(changes or {})
    return read_settings(path, changes or {})


def warn(text: str) -> None:
    """Print a warning as one line."""
    print("gleak: warning:", *text.split(), file=sys.stderr)


def complain(error: GleakError) -> None:
    """Print an error as one line."""
    print("gleak:", *str(error).split(), file=sys.stderr)
