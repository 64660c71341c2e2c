"""Findings as annotations of a GitHub workflow: lines that its runner reads."""

from collections.abc import Sequence
from typing import TextIO

from inferd.check.finding import Finding
from inferd.check.report.text import shown_path, summary


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
