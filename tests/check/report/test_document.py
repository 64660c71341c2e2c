import io
import json

from inferd.check.finding import Finding
from inferd.check.report.document import write_json


def test_findings_are_one_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = [
        Finding("error", "syntax", "it is wrong", tmp_path / "c", 2, 3, "m", "mend it"),
        Finding("warning", "layout", "it is odd", tmp_path / "d"),
    ]
    out = io.StringIO()
    write_json(findings, 4, out)
    assert json.loads(out.getvalue()) == {
        "models": 4,
        "errors": 1,
        "warnings": 1,
        "findings": [
            {
                "level": "error",
                "rule": "syntax",
                "text": "it is wrong",
                "file": "c",
                "line": 2,
                "column": 3,
                "model": "m",
                "fix": "mend it",
            },
            {"level": "warning", "rule": "layout", "text": "it is odd", "file": "d"},
        ],
    }
