"""What no file of the repository says, what each module says first, and what names are made of."""

import ast
import re

import pytest
from packages import PACKAGE, SRC

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
    # A file at a time, as most have none: a line at a time takes ten times as long.
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in texts.items()
        if path.startswith(folder)
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(texts, what):
    assert found(texts, FORBIDDEN[what]) == []


# Programs that are no Python packages (curl, nghttp, h2load, node, redis-server): a machine may
# lack one, and the fixture that looks for it says so by name.
PROGRAMS = ("tests/conftest.py", "tests/clients_h2/conftest.py", "tests/clients_h2/test_node.py")


# What sleeps by design: models that hang, and clients that pause as people do.
SLEEPERS = (
    "tests/backends/python/drill/ways.py",
    "tests/ray/follow_load.py",
    "tests/ray/head_away.py",
    "tests/support/fleet_under_load.py",
    "tests/support/route_silence.py",
    "tests/support/sequences_under_load.py",
    "tests/support/stop_under_load.py",
    "tests/support/under_load.py",
)


@pytest.mark.parametrize("what", FORBIDDEN_IN_TESTS)
def test_no_unit_test_has(texts, what):
    places = found(texts, FORBIDDEN_IN_TESTS[what], "tests/")
    assert [place for place in places if not place.startswith(PROGRAMS + SLEEPERS)] == []


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


# Words of our own that name many things, and so none, with words to use instead. Longer names may
# contain them as letters, not as parts: "lane" is banned, so is "lane_count", "plane" is not.
BANNED = {
    "told": "reason, status_text, as_json, reported",
    "asked": "requested, wanted, request",
    "came": "received, arrived",
    "lineup": "model_versions",
    "turnstile": "sequence_order",
    "dressing": "control_tensors",
    "likeness": "batch_key",
    "surroundings": "context",
    "trouble": "unavailable_reason, problem",
    "moment": "round_number, time",
    "paused": "suspended, driven, is_reading",
    "kept": "retained, stored, cached",
    "held": "buffered, retained, owned",
    "lane": "instance, offload",
    "lanes": "instances, offloads",
    "strip": "block, chunk",
    "strips": "blocks, chunks",
    "whither": "target",
    "whence": "source",
}
# Folders of src/inferd, and packages beside it, without such names; "." are the modules of inferd
# in no folder.
CLEAN = [
    ".",
    "aio",
    "api",
    "backends",
    "cache",
    "cli",
    "client",
    "config",
    "core",
    "engine",
    "formats",
    "forward",
    "inferd_convert",
    "inferd_worker",
    "memory",
    "observe",
    "ray",
    "repository",
    "schedulers",
    "server",
    "shm",
    "tensor",
    "transport",
    "values",
    "wire/json",
    "wire/proto",
    "wire/trtis",
    "wire/v2",
]
NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def names_given(tree):
    """Yield each name that a module gives to something, and the line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def banned_in(name):
    return BANNED.keys() & {part.lower() for part in NAME_PART.findall(name)}


def modules_of(folder):
    if folder == ".":
        return sorted(PACKAGE.glob("*.py"))
    return sorted(((SRC if folder.startswith("inferd_") else PACKAGE) / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", CLEAN)
def test_no_name_is_made_of_words_that_mean_too_much(folder):
    found = [
        f"{path.relative_to(SRC)}:{line}: {name}"
        for path in modules_of(folder)
        for name, line in [(path.stem, 0), *names_given(ast.parse(path.read_text()))]
        if banned_in(name)
    ]
    assert found == []


def test_words_are_found_in_names_of_all_kinds():
    text = """
import x as asked
class HeldPace: lane: int
def f(told_at, *strips):
    self._is_kept, came = 1, 2
    try: x.strip(came)
    except E as TROUBLE: keptness = lanes_of()
"""
    found = [name for name, _ in names_given(ast.parse(text)) if banned_in(name)]
    expected = ["asked", "HeldPace", "lane", "told_at", "strips", "_is_kept", "came", "TROUBLE"]
    assert sorted(found) == sorted(expected)


CARRIED = re.compile(r"infer(?!d(?![a-z])|dError)|model|tensor", re.IGNORECASE)


def own_words(tree):
    """Yield the identifiers and docstrings of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.arg):
            yield getattr(node, "id", None) or getattr(node, "attr", None) or node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_http_has_no_word_of_what_it_carries():
    found = [
        f"{path.relative_to(SRC)}: {word}"
        for path in modules_of("http")
        for word in own_words(ast.parse(path.read_text()))
        if CARRIED.search(word)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("word", "is_found"),
    [("is_model_busy", True), ("a tensor", True), ("InferRequest", True), ("InferdError", False)],
)
def test_words_of_what_is_carried_are_found(word, is_found):
    assert bool(CARRIED.search(word)) is is_found
