"""Sphinx directives whose content is generated from the code when the site is built.

Each writes Markdown, which Sphinx reads as if it stood in the page:

- ``catalogue``: the registered classes of some kinds, with their fields;
- ``file-formats``: the formats of artifacts, with their arrays and attributes;
- ``command-line``: the commands of ``gleak`` and their options;
- ``configuration``: the keys of ``config.yaml``.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs.extensions import catalogue, command_line, configuration, file_formats


class Catalogue(SphinxDirective):
    """Entries of the kinds that are given as arguments."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        """Return the entries of all kinds, with a heading for each kind if there are several."""
        level = 2 if len(self.arguments) == 1 else 3
        texts = [catalogue.describe_kind(kind, level) for kind in self.arguments]
        return parse(self, "\n".join(texts))


class FileFormats(SphinxDirective):
    """All formats of artifacts."""

    def run(self) -> list[nodes.Node]:
        """Return one section for each format and encoding."""
        return parse(self, file_formats.describe_formats())


class CommandLine(SphinxDirective):
    """All commands of ``gleak``."""

    def run(self) -> list[nodes.Node]:
        """Return one section for each command."""
        return parse(self, command_line.describe_commands())


class Configuration(SphinxDirective):
    """All keys of the configuration."""

    def run(self) -> list[nodes.Node]:
        """Return the table of keys."""
        return parse(self, configuration.describe_settings())


def parse(directive: SphinxDirective, text: str) -> list[nodes.Node]:
    """Parse Markdown, sections included."""
    return directive.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("catalogue", Catalogue)
    app.add_directive("file-formats", FileFormats)
    app.add_directive("command-line", CommandLine)
    app.add_directive("configuration", Configuration)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
