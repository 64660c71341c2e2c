"""Findings as people and programs read them.

For people each has its line and what to do, in colours where a terminal is; for programs there are
JSON, SARIF 2.1.0, and the annotations of a GitHub workflow.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import msgspec

import inferd
from inferd.check.finding import RULES, Finding

Piece = tuple[str, str]
"""Text and its style, as rich calls it."""

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""Characters of files and names that a terminal would obey."""

_MOST_SHOWN = 200
_MARGIN = " " * 5 + " | "
_CUT = "..."
_MOST_NAMES = 5


def shown_path(path: Path) -> str:
    """Return a path as people would type it here, escaped where it is no UTF-8."""
    return _escaped(_near(path))


def _escaped(text: str) -> str:
    # No document and not every terminal takes the bytes of a name that is in no encoding.
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _near(path: Path) -> str:
    near = os.path.relpath(path)
    # A path outside of the working directory is clearer when it is whole.
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
    width = shutil.get_terminal_size().columns if out.isatty() else 0
    lines = [line for one in findings for line in _finding_lines(one, width)]
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


def _finding_lines(finding: Finding, width: int) -> Iterator[list[Piece]]:
    """Yield the lines of a finding, for a terminal with `width` columns; 0: as long as they are."""
    place = shown_path(finding.file)
    if finding.line:
        place += f":{finding.line}:{finding.column}"
    level = finding.level
    yield [(f"{place}: ", "bold"), (f"{level}: ", _STYLES[level]), (finding.text, "")]
    if finding.line and (source := _source(finding)):
        source, column = _window(source, finding.column, (width or _MOST_SHOWN) - len(_MARGIN))
        yield [(f"{finding.line:>5} | ", "dim"), (source, "")]
        if 1 <= column <= len(source) + 1:
            # A tab is as wide here as in the line above.
            before = "".join("\t" if one == "\t" else " " for one in source[: column - 1])
            yield [(_MARGIN, "dim"), (f"{before}^", _STYLES[level])]
    if finding.fix:
        yield [("      fix: ", "green"), (finding.fix, "")]


def _window(source: str, column: int, room: int) -> tuple[str, int]:
    """Return the part of a line around a column that has `room`, and the column in it."""
    room = max(room, 2 * len(_CUT) + 1)
    if len(source) <= room:
        return source, column
    begin = max(0, min(column - 1 - room // 2, len(source) - room))
    part = source[begin : begin + room]
    if begin:
        part = _CUT + part[len(_CUT) :]
    if begin + room < len(source):
        part = part[: -len(_CUT)] + _CUT
    return part, column - begin


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
    # Emacs's shell and others say so: they show escape sequences as text.
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return False
    # https://no-color.org; None leaves it to rich.
    console = Console(file=out, highlight=False, no_color="NO_COLOR" in os.environ or None)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=False)
    return True


def write_json(findings: Sequence[Finding], model_count: int, out: TextIO) -> None:
    """Write `findings` and how many there are as JSON. Fields that are not known are left out."""
    listed = [
        {
            name: _escaped(value) if isinstance(value, str) else value
            for name, value in msgspec.structs.asdict(one).items()
            if value or name in ("level", "rule", "text")
        }
        | {"file": shown_path(one.file)}
        for one in findings
    ]
    document = {
        "models": model_count,
        "errors": sum(one.level == "error" for one in findings),
        "warnings": sum(one.level == "warning" for one in findings),
        "findings": listed,
    }
    out.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def write_github(findings: Sequence[Finding], model_count: int, out: TextIO) -> None:
    """Write a workflow command for each finding, and the summary."""
    for one in findings:
        said = {"file": shown_path(one.file), "title": f"inferd check: {one.rule}"}
        if one.line:
            # GitHub counts columns from 1 and refuses 0.
            said |= {"line": str(one.line), "col": str(max(1, one.column))}
        properties = ",".join(f"{name}={_property(value)}" for name, value in said.items())
        text = f"{one.text}\n{one.fix}" if one.fix else one.text
        # GitHub's commands are error, warning and notice.
        command = "notice" if one.level == "note" else one.level
        out.write(f"::{command} {properties}::{_data(text)}\n")
    out.write(summary(findings, model_count) + "\n")


def _data(text: str) -> str:
    # Percent first, or it would escape the others' escapes (GitHub, workflow commands).
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    # Colons and commas separate properties.
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write_sarif(findings: Sequence[Finding], _model_count: int, out: TextIO) -> None:
    """Write `findings` as one run of a tool."""
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    driver = {"name": "inferd check", "version": inferd.__version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_result(one) for one in findings]}
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    out.write(msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n")


def _result(finding: Finding) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if finding.line:
        place["region"] = {"startLine": finding.line, "startColumn": max(1, finding.column)}
    fix = f"\n{finding.fix}" if finding.fix else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": list(RULES).index(finding.rule),
        # SARIF has the same three levels.
        "level": finding.level,
        "message": {"text": _escaped(finding.text + fix)},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: Path) -> str:
    near = Path(_near(path))
    # A relative URI is one within the repository, which code scanning can show. As bytes: a URI has
    # a way to write those that are no UTF-8.
    return near.as_uri() if near.is_absolute() else quote(os.fsencode(near.as_posix()))
