"""Findings for people: each with its line and what to do, in colours where a terminal is."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from inferd.check.finding import Finding

Piece = tuple[str, str]
"""Text and its style, as rich calls it."""

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""Characters of files and names that a terminal would obey."""

_MOST_SHOWN = 200
_MOST_NAMES = 5


def shown_path(path: Path) -> str:
    """Return a path as people would type it here."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def summary(findings: Sequence[Finding], model_count: int) -> str:
    """Return how much was found, in a few words."""
    counts = [
        _counted(sum(one.level == level for one in findings), level)
        for level in ("error", "warning", "note")
        if any(one.level == level for one in findings)
    ]
    return f"{_counted(model_count, 'model')}: {', '.join(counts) or 'nothing to mend'}"


def write_text(
    findings: Sequence[Finding], model_count: int, out: TextIO, unread: Sequence[str] = ()
) -> None:
    """Write the findings to `out`: with rich where that is a terminal, else as plain text.

    `unread` are models of which only their frameworks can tell more.
    """
    lines = [line for one in findings for line in _lines(one)]
    style = "bold red" if any(one.level == "error" for one in findings) else "bold green"
    lines.append([(summary(findings, model_count), style)])
    if unread:
        names = ", ".join(unread[:_MOST_NAMES])
        more = f" and {len(unread) - _MOST_NAMES} more" if len(unread) > _MOST_NAMES else ""
        text = f"not read without a framework, so only --load tells more: {names}{more}"
        lines.append([(text, "")])
    lines = [
        [(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text), style) for text, style in line]
        for line in lines
    ]
    if not _write_rich(lines, out):
        out.writelines("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _lines(finding: Finding) -> Iterator[list[Piece]]:
    place = shown_path(finding.file)
    if finding.line:
        place += f":{finding.line}:{finding.column}"
    level = finding.level
    yield [(f"{place}: ", "bold"), (f"{level}: ", _STYLES[level]), (finding.text, "")]
    if finding.line and (source := _source(finding)):
        number = f"{finding.line:>5} | "
        yield [(number, "dim"), (source[:_MOST_SHOWN], "")]
        if finding.column <= min(len(source) + 1, _MOST_SHOWN):
            before = "".join("\t" if one == "\t" else " " for one in source[: finding.column - 1])
            yield [(" " * 5 + " | ", "dim"), (f"{before}^", _STYLES[level])]
    if finding.fix:
        yield [("      fix: ", "green"), (finding.fix, "")]


def _source(finding: Finding) -> str:
    """Return the line of the file that a finding is about."""
    try:
        text = finding.file.read_bytes().decode(errors="replace")
    except OSError:
        return ""
    lines = text.split("\n")
    return lines[finding.line - 1].rstrip("\r") if finding.line <= len(lines) else ""


def _write_rich(lines: Sequence[Sequence[Piece]], out: TextIO) -> bool:
    """Write with rich; return False if `out` is no terminal for it, or rich is not there."""
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=out, highlight=False, no_color="NO_COLOR" in os.environ or None)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=False)
    return True
