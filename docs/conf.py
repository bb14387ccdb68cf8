"""Configuration of Sphinx: ``make docs`` builds the site without network access."""

from __future__ import annotations

import sys
from pathlib import Path

from gleak import __version__

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "gleak"
author = "the authors of gleak"
html_show_copyright = False
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # equations without network access
    "sphinx.ext.mathjax",
    "docs.extensions.generated",
]
exclude_patterns = ["results/peers/table.md", "_build", "report"]
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(collections|gleak\.\w+|numpy|pathlib|torch)\..*"),  # documented elsewhere
    (r"py:exc", r"\w+Error"),
    (r"py:class", r"nn\.Module|ShapeLike|ClientLike"),  # of a decorated __init__, as written
]
default_role = "code"  # docstrings write names between single backticks

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"gleak {version}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
