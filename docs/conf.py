"""What Sphinx makes of docs/: `make site` writes docs/site (docs/decisions/0053-site.md)."""

import posixpath
import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

project = "inferd"
author = "the authors of inferd"
version = release = version_of("inferd")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["pictures"]
root_doc = "index"

html_theme = "furo"
html_title = f"inferd {release}"
html_static_path: list[str] = []
html_show_sphinx = False
html_show_copyright = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# Commands, configurations and answers are shown as they are; some cannot be highlighted.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "description"
autodoc_member_order = "bysource"

_LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:|#|mailto:)[^)#\s]+)(#[^)]*)?\)")


def setup(app: Any) -> None:
    """Have links checked by Sphinx, except those that leave docs/."""
    app.connect("source-read", _without_links_to_elsewhere)


def _without_links_to_elsewhere(app: Any, name: str, source: list[str]) -> None:
    """Make plain words of links to files beside docs/ and to folders: the site does not have them.

    The repository shows these pages, too, and has what they name.
    """
    folder = posixpath.dirname(name)

    def told(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, link[2]))
        if place.startswith("..") or (Path(app.srcdir) / place).is_dir():
            return link[1]
        return link[0]

    source[0] = _LINK.sub(told, source[0])
