import io
import json
from pathlib import Path

from inferd.check.finding import RULES, Finding
from inferd.check.report.sarif import write_sarif


def test_findings_are_results_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = [
        Finding("error", "syntax", "it is wrong", tmp_path / "a b/c", 2, 3, "m", "mend it"),
        Finding("note", "foreign", "it is odd", Path("/elsewhere")),
    ]
    out = io.StringIO()
    write_sarif(findings, 4, out)
    log = json.loads(out.getvalue())
    [run] = log["runs"]
    assert log["version"] == "2.1.0"
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert rules == list(RULES)
    first, second = run["results"]
    assert rules[first["ruleIndex"]] == first["ruleId"] == "syntax"
    assert first["message"] == {"text": "it is wrong\nmend it"}
    [location] = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/c"},
        "region": {"startLine": 2, "startColumn": 3},
    }
    assert second["level"] == "note"
    place = second["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///elsewhere"}}
