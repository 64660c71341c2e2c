"""Writes docs/reference/code_blocks.md: which code blocks of the pages no test runs, and why.

    python tools/build_blocks_doc.py            write it
    python tools/build_blocks_doc.py --check    fail if it is out of date

A block is run by tests/docs, unless a comment before it says why not. Comments before a block,
which neither the repository nor the site shows:

    <!-- not run: REASON -->        it is only read: is it valid shell, Python, JSON?
    <!-- test: output -->           it is what the block before prints
    <!-- test: save as FILE -->     it is the content of a file
    <!-- test: first COMMAND -->    what a reader has done before
    <!-- test: append WORDS -->     further words for each `inferd`, to be done sooner
    <!-- test: fails -->            its last command ends with an error
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs/reference/code_blocks.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "docs/index.md",
    ROOT / "docs/tour.md",
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/guide").glob("*.md")),
]
NOT_RUN = "not run"

WORDS = ("output", "save as ", "first ", "append ", "fails")
"""How the comments that begin with test: go on."""

_MARK = re.compile(r"<!--\s*(not run|test): (.+?)\s*-->")

_HEAD = """\
# Code blocks

{run} of the {all} code blocks of the README, the tutorials, the guides and the tour are run by
tests, each page from its beginning to its end: files are saved, commands typed, programs run,
configurations read, and what is printed is compared with what the page shows. Installing with pip
is left out; that the extras exist is checked.

These are not run. Where they are shell, Python, JSON, YAML or TOML, a test reads them.

| page | | language | why it is not run |
| --- | --- | --- | --- |
"""


class Block(NamedTuple):
    """A fenced code block of a page, which stands in `line`, below a `heading`.

    `marks` are the comments before it: kind and text.
    """

    page: Path
    line: int
    heading: str
    language: str
    text: str
    marks: tuple[tuple[str, str], ...] = ()

    @property
    def reason(self) -> str:
        """Why it is not run; "" if it is."""
        return next((text for kind, text in self.marks if kind == NOT_RUN), "")

    def word(self, name: str) -> str | None:
        """Return what a mark says after `name`; None if there is none."""
        for kind, text in self.marks:
            if kind == "test" and (text == name or text.startswith(f"{name} ")):
                return text.removeprefix(name).strip()
        return None


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, but for directives of the site."""
    heading, marks, level = "", [], 0
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type == "inline" and level:
            heading, level = token.content, 0
        elif token.type == "html_block":
            marks += _MARK.findall(token.content)
        elif token.type == "fence":
            if not token.info.startswith("{"):
                assert token.map is not None
                line, text = token.map[0] + 1, token.content
                yield Block(page, line, heading, token.info, text, tuple(marks))
            marks = []


def build() -> str:
    """Return the page."""
    blocks = [block for page in PAGES for block in blocks_of(page)]
    rows: Counter[tuple[Path, str, str, str]] = Counter()
    for block in blocks:
        if block.reason:
            rows[block.page, block.heading, block.language, block.reason] += 1
    count = sum(not block.reason for block in blocks)
    lines = [_HEAD.format(run=count, all=len(blocks))]
    for (page, heading, language, reason), times in rows.items():
        told = f"{language}, {times} times" if times > 1 else language
        lines.append(f"| {_link(page)} | {heading} | {told} | {reason} |\n")
    return "".join(lines)


def _link(page: Path) -> str:
    docs = ROOT / "docs"
    target = f"../{page.relative_to(docs)}" if docs in page.parents else f"../../{page.name}"
    return f"[{page.name}]({target})"


def main(arguments: list[str]) -> int:
    """Write the page; with --check, only return 1 if it is out of date."""
    built = build()
    if "--check" not in arguments:
        TARGET.write_text(built, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != built:
        sys.stderr.write(f"docs/reference/{TARGET.name} is out of date: run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
