"""What no file of the repository says, and what each module says first."""

import ast
import re

import pytest

# In pieces, so that this file does not say them either.
FORBIDDEN = {
    "unfinished work": r"\b(" + "TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b",
    "a path of one machine": r"(?<![\w.])/(" + "home/|ro" + "ot/|Us" + "ers/|wo" + "rk/)",
    "a merge left half done": r"^(<{7} |>{7} )",
}


FORBIDDEN_IN_TESTS = {
    "a silenced test": r"pytest\.(sk" + r"ip|xf" + r"ail)\b|mark\.(sk" + "ip|xf" + "ail)",
    "a mock": r"\b(unittest\.mo" + r"ck|import mo" + r"ck|MagicMo" + r"ck)\b",
    # A poll may rest for a millisecond between two looks: a loop that never does starves threads.
    "a nap": r"\b(time|asyncio)\.sle" + r"ep\((?!0\)|0\.001\))",
}


def found(texts, pattern, folder=""):
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts.items()
        if path.startswith(folder)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(texts, what):
    assert found(texts, FORBIDDEN[what]) == []


# Programs that are no Python packages (curl, nghttp, h2load, node, redis-server): a machine may
# lack one, and the fixture that looks for it says so by name.
PROGRAMS = ("tests/conftest.py", "tests/clients_h2/conftest.py", "tests/clients_h2/test_node.py")


@pytest.mark.slow
@pytest.mark.parametrize("what", FORBIDDEN_IN_TESTS)
def test_no_unit_test_has(texts, what):
    places = found(texts, FORBIDDEN_IN_TESTS[what], "tests/")
    assert [place for place in places if not place.startswith(PROGRAMS)] == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("unfinished work", "# " + "TO" + "DO: later"),
        ("a path of one machine", "cd /ho" + "me/somebody"),
        ("a merge left half done", "<" * 7 + " HEAD"),
        ("a silenced test", "@pytest.mark.sk" + "ipif(True)"),
        ("a mock", "from unittest.mo" + "ck import patch"),
        ("a nap", "time.sle" + "ep(0.1)"),
    ],
)
def test_the_patterns_find_what_they_are_for(what, line):
    assert re.search((FORBIDDEN | FORBIDDEN_IN_TESTS)[what], line)


@pytest.mark.slow
def test_every_module_says_in_one_sentence_what_it_owns(texts):
    wrong = []
    for path, text in texts.items():
        if not path.startswith("src/") or not path.endswith(".py") or not text.strip():
            continue
        first = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
        if not first or not first.endswith("."):
            wrong.append(path)
    assert wrong == []
