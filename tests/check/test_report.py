"""Findings as people read them."""

import io
import json
import os
from pathlib import Path

import pytest

from inferd.check.finding import RULES, Finding
from inferd.check.report import shown_path, write_github, write_json, write_sarif, write_text


class Terminal(io.StringIO):
    """A terminal of which only the name is known."""

    def isatty(self):
        return True


@pytest.fixture
def findings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.pbtxt"
    file.write_text('name: "m"\n\tbackendd: "x"\n')
    return [
        Finding("error", "syntax", "there is no backendd", file, 2, 2, "m", "write backend"),
        Finding("warning", "surprise", "it is odd", tmp_path / "1", model="m"),
    ]


def test_each_finding_has_its_place_its_line_and_its_fix(findings):
    out = io.StringIO()
    write_text(findings, 2, out)
    assert out.getvalue() == (
        "config.pbtxt:2:2: error: there is no backendd\n"
        '    2 | \tbackendd: "x"\n'
        "      | \t^\n"
        "      fix: write backend\n"
        "1: warning: it is odd\n"
        "2 models: 1 error, 1 warning\n"
    )


def test_of_nothing_a_line_is_told():
    out = io.StringIO()
    write_text([], 1, out)
    assert out.getvalue() == "1 model: nothing to mend\n"


def test_a_file_that_has_gone_is_shown_without_its_line(findings):
    findings[0].file.unlink()
    out = io.StringIO()
    write_text(findings[:1], 1, out)
    assert out.getvalue().startswith("config.pbtxt:2:2: error: there is no backendd\n      fix")


def test_a_terminal_gets_colours_and_lines_that_fit(findings, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    write_text(findings, 2, out)
    assert "\x1b[1;31m" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    write_text(findings, 2, out)
    assert "\x1b[1;31m" not in out.getvalue()
    assert "31m" not in out.getvalue()


def test_a_terminal_that_can_do_nothing_gets_plain_text(findings, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    write_text(findings, 2, out)
    assert "\x1b" not in out.getvalue()


def test_a_path_is_shown_as_people_would_type_it_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b") == "a/b"
    assert shown_path(tmp_path.parent / "c") == str(tmp_path.parent / "c")


def test_what_a_terminal_would_obey_is_not_written(findings):
    findings[0].file.write_text("a\nb\x1b[2J\x9bc\r\n")
    out = io.StringIO()
    write_text([*findings[:1], Finding("error", "layout", "no \x07", Path("\x1b"))], 1, out)
    assert not set("\x1b\x07\x9b\r") & set(out.getvalue())
    assert "    2 | b\ufffd[2J\ufffdc\n" in out.getvalue()


def test_of_a_long_line_the_part_around_the_place_is_shown(findings, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    findings[0].file.write_text("\n" + "a" * 60 + "WRONG" + "b" * 60)
    for column, part in ((61, "..."), (1, "a" * 29 + "..."), (125, "...")):
        one = Finding("error", "syntax", "no", findings[0].file, 2, column)
        out = Terminal()
        write_text([one], 1, out)
        source, mark = out.getvalue().splitlines()[1:3]
        assert len(source) == 40
        assert part in source
        assert (source + " ")[mark.index("^")] == "aWb"[(column > 60) + (column > 65)]


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


def test_a_name_that_is_no_utf8_is_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [Finding("error", "layout", "it is not UTF-8", Path(os.fsdecode(b"m\xff")))]
    written = []
    for write in (write_text, write_json, write_github, write_sarif):
        out = io.StringIO()
        write(found, 1, out)
        written.append(out.getvalue().encode().decode())
    text, document, annotations, log = written
    assert text.startswith("m\\xff: error") and annotations.startswith("::error file=m\\xff,")
    assert json.loads(document)["findings"][0]["file"] == "m\\xff"
    [result] = json.loads(log)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "m%FF"


@pytest.mark.parametrize("write", [write_json, write_sarif])
def test_a_text_that_is_no_utf8_is_escaped(write):
    found = [Finding("error", "layout", os.fsdecode(b"not m\xff"), Path("m"))]
    out = io.StringIO()
    write(found, 1, out)
    assert r"not m\\xff" in out.getvalue()
