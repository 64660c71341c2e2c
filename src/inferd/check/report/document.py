"""Findings for programs: one JSON document."""

from collections.abc import Sequence
from typing import TextIO

import msgspec

from inferd.check.finding import Finding
from inferd.check.report.text import shown_path


def write_json(findings: Sequence[Finding], model_count: int, out: TextIO) -> None:
    """Write `findings` and how many there are as JSON. Fields that are not known are left out."""
    listed = [
        {
            name: value
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
