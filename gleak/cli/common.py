"""Options, configuration and messages that several commands share."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleak.core.errors import GleakError, SpecError

if TYPE_CHECKING:
    from gleak.core.settings import Settings

CONFIG = Path("config.yaml")
EXIT_FINDING = 3
WIDTH = 100
Command = Callable[[Namespace], int]
Add = Callable[[str, Command, str], ArgumentParser]


def add_config_option(command: ArgumentParser) -> None:
    """Add the option for another configuration file."""
    text = "configuration; default config.yaml"
    command.add_argument("--config", type=Path, default=CONFIG, metavar="FILE", help=text)


def read_settings(path: Path, changes: dict[str, Any]) -> Settings:
    """Read the configuration and replace some of its values.

    Raises:
        SpecError: the file is missing or not a mapping, or a key or value is invalid.
    """
    from gleak.core.plugins import use_plugins
    from gleak.core.settings import Settings
    from gleak.core.yaml_input import load_mapping

    if not path.is_file():
        raise SpecError(
            f"{path}: no such file; change to the folder of the Snakefile, or give --config FILE"
        )
    content = load_mapping(path, "configuration", "studies, scale, ...")
    settings = Settings.read({**content, **changes})
    use_plugins(settings.plugins)
    return settings


def use_configured_plugins() -> None:
    """Import the plug-ins of the configuration in the current folder, if there is one."""
    if CONFIG.is_file():
        read_settings(CONFIG, {})


def complain(error: GleakError) -> None:
    """Print an error as one line."""
    print("gleak:", *str(error).split(), file=sys.stderr)
