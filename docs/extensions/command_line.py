"""The commands of ``gleak``, from its argument parser."""

from __future__ import annotations

from argparse import Action, ArgumentParser, _HelpAction, _SubParsersAction

from docs.extensions.markdown import blocks, code, plain, table
from gleak.cli.main import build_parser


def describe_commands() -> str:
    """Return one section for each command, in the order of ``gleak --help``."""
    commands = next(
        action for action in build_parser()._actions if isinstance(action, _SubParsersAction)
    )
    return blocks(*(describe_command(name, each) for name, each in commands.choices.items()))


def describe_command(name: str, parser: ArgumentParser) -> str:
    """Return the section of a command: its purpose, usage and arguments."""
    actions = [action for action in parser._actions if not isinstance(action, _HelpAction)]
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    rows = [[code(argument(action)), plain(action.help or "")] for action in actions]
    purpose = plain(parser.description or "")
    return blocks(
        f"## `gleak {name}`",
        purpose[:1].upper() + purpose[1:] + ".",
        f"```text\n{usage}\n```",
        table(("argument", "meaning"), rows),
    )


def argument(action: Action) -> str:
    """Return an argument as it is written on the command line."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    return " ".join(filter(None, [", ".join(action.option_strings), str(value)]))
