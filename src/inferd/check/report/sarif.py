"""Findings for code scanning: SARIF 2.1.0, as GitHub and editors read it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import msgspec

import inferd
from inferd.check.finding import RULES, Finding
from inferd.check.report.text import shown_path

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
        "message": {"text": finding.text + fix},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: Path) -> str:
    shown = Path(shown_path(path))
    # A relative URI is one within the repository, which code scanning can show.
    return shown.as_uri() if shown.is_absolute() else quote(shown.as_posix())
