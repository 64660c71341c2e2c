"""The page of answers to published weaknesses names tests that are there, one row for each."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security_answers.md"
ROW = re.compile(r"^\| (CVE-\d{4}-\d{4,}) \| (.+?) \| (yes|no) \| (.+?) \| (.+) \|$", re.MULTILINE)
NODE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PUBLISHED = 57


def names_in(file):
    """Return the names of the tests at the top of a file, as pytest finds them."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions)}


def rows():
    return ROW.findall(PAGE.read_text())


def test_each_test_that_is_named_is_there():
    named = set(NODE.findall(PAGE.read_text()))
    assert len(named) > 60
    files = {name: names_in(ROOT / name) for name, _ in named if (ROOT / name).is_file()}
    gone = sorted(f"{file}::{test}" for file, test in named if test not in files.get(file, ()))
    assert gone == [], "these are gone"


def test_nothing_that_looks_like_a_test_is_overlooked():
    text = PAGE.read_text()
    assert len(re.findall(r"\.py::", text)) == len(NODE.findall(text))


def test_each_weakness_has_one_row_and_tests_or_a_reason():
    found = rows()
    identifiers = [identifier for identifier, *_ in found]
    assert len(identifiers) == len(set(identifiers)) == PUBLISHED
    assert len(re.findall(r"^\| CVE-", PAGE.read_text(), re.MULTILINE)) == PUBLISHED
    for identifier, _, here, answer, tests in found:
        assert here == "no" or NODE.search(tests), f"{identifier} has a counterpart and no test"
        assert len(answer) > len("none"), identifier


def test_each_file_of_attacks_answers_a_weakness():
    named = {file for file, _ in NODE.findall(PAGE.read_text())}
    attacks = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/security").glob("test_*.py")}
    assert attacks - named == set()
