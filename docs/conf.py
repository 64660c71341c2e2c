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
exclude_patterns = ["pictures", "style"]
root_doc = "index"
smartquotes = False  # --flags stay as they are typed

html_theme = "furo"
html_title = f"inferd {release}"
html_static_path = ["style"]
html_css_files = ["site.css"]
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


_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n*")


def setup(app: Any) -> None:
    """Have links checked by Sphinx, but those that leave docs/; put the examples on their page."""
    app.connect("source-read", _with_examples, priority=400)
    app.connect("source-read", _without_links_to_elsewhere)
    app.connect("autodoc-process-docstring", _with_code)


def _with_examples(app: Any, name: str, source: list[str]) -> None:
    """Put the pages of all examples on the one that stands for them, in the order of their list."""
    if name != "examples":
        return
    folder = Path(app.srcdir).parent / "examples"
    text = (folder / "README.md").read_text(encoding="utf-8")
    pages = [text]
    for example in re.findall(r"\]\((\w+)/README\.md\)", text):
        page = (folder / example / "README.md").read_text(encoding="utf-8")
        title, _, rest = _PICTURE.sub("", page).partition("\n")
        pages.append(f"#{title}\n{rest}")
        anchor = re.sub(r"[^\w\- ]", "", title[2:].lower()).replace(" ", "-")
        pages[0] = pages[0].replace(f"({example}/README.md)", f"(#{anchor})")
    source[0] = _LINK.sub(_seen_from_docs, "\n".join(pages))


def _seen_from_docs(link: re.Match[str]) -> str:
    """Return a link of examples/NAME/README.md as one of docs/, or plain words if it leaves it."""
    inside = link[2].removeprefix("../../docs/")
    return link[1] if inside == link[2] else f"[{link[1]}]({inside}{link[3] or ''})"


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


def _with_code(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Have what is indented in a docstring shown as code: it is an example."""
    before = ""
    for number, line in enumerate(lines):
        if line.startswith("    ") and not before:
            lines[number - 1 : number] = ["", ".. code-block:: python", ""]
            return
        before = line
