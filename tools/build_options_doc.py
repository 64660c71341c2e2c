"""Writes docs/reference/options.md from the declaration of the options; --check only compares."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from inferd.config.options.option import Option, groups_of, options_of
from inferd.config.server import ServerConfig

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"

_TOP = """\
<!-- Written by tools/build_options_doc.py from src/inferd/config/server.py. Do not edit. -->

# Options of inferd serve

    inferd serve PATH... [options]

Each option can be set in three ways. A flag overrides a variable, a variable overrides the file,
and the file overrides the default.

| way | example | |
| --- | --- | --- |
| flag | `--http-port 8080`, `--http-port=8080` | booleans may stand alone: `--exit-on-error` |
| variable | `INFERD_HTTP_PORT=8080` | `;` separates items of a list; an empty variable is not set |
| TOML file | `http-port = 8080` | named with `--config FILE` or `INFERD_CONFIG` |

Booleans are true, on, 1, false, off or 0, in upper or lower case; in the file, true or false
without quotes. Options that may be repeated are arrays in the file. Relative paths start at the
working directory, also in the file.
"""
_WITHOUT_EFFECT = "*Accepted, but without effect in this version.*"


def build(kind: type = ServerConfig) -> str:
    """Return the page."""
    parts = [_TOP]
    for group, own in groups_of(kind).items():
        parts.append("\n".join([f"## {group}\n", *_table(own)]) + "\n")
    options = options_of(kind).values()
    parts.append("\n".join(["## Deprecated spellings\n", *_old_flags(options)]) + "\n")
    return "\n".join(parts)


def _table(options: list[Option]) -> Iterator[str]:
    yield "| flag | value | default | |"
    yield "| --- | --- | --- | --- |"
    for each in options:
        flags = ", ".join(f"`--{name}`" for name in (each.key, *each.aliases))
        text = each.help if each.acted_on else f"{each.help} {_WITHOUT_EFFECT}"
        text += f" Also: `{each.also}`." if each.also else ""
        yield f"| {flags} | {_cell(each.word)} | {_cell(each.shown)} | {_cell(text)} |"


def _old_flags(options: Iterable[Option]) -> Iterator[str]:
    yield "| flag | is now |"
    yield "| --- | --- |"
    for each in options:
        for name, template in each.old_flags.items():
            yield f"| `--{name} X` | `{each.flag} {template.format('X')}` |"
        for name, value in each.old_switches.items():
            yield f"| `--{name} true` | `{each.flag} {value}` |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page; with --check, only return 1 if it is out of date."""
    page = build()
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/reference/options.md is not up to date: run make docs\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
