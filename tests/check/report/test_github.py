import io

from inferd.check.finding import Finding
from inferd.check.report.github import write_github


def test_each_finding_is_a_command_of_the_workflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = [
        Finding("error", "syntax", "100% wrong", tmp_path / "a,b:c", 2, 3, "m", "mend it"),
        Finding("note", "foreign", "it is odd", tmp_path / "d"),
    ]
    out = io.StringIO()
    write_github(findings, 1, out)
    assert out.getvalue().splitlines() == [
        "::error file=a%2Cb%3Ac,title=inferd check%3A syntax,line=2,col=3::100%25 wrong%0Amend it",
        "::notice file=d,title=inferd check%3A foreign::it is odd",
        "1 model: 1 error, 1 note",
    ]
