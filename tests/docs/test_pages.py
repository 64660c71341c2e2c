"""Pages are done as they are written: files saved, commands typed, what is printed compared."""

import ast
import json
import re
import subprocess
import tomllib

import pytest
import yaml
from build_blocks_doc import PAGES, ROOT, WORDS, blocks_of
from setups import SETUPS
from typist import Typist, is_as_shown

from inferd.check.places import check_paths
from inferd.repository.local import AS_USUAL

PROMPTED = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NOT_THERE = {"layout", "file", "ensemble"}
RUN = [page for page in PAGES if any(not block.reason for block in blocks_of(page))]
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}


def read_shell(text):
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def read_python(text):
    compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


READERS = {
    "sh": read_shell,
    "python": read_python,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}


@pytest.fixture
def typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Typist(tmp_path)
    yield made
    made.close()


def check_config(text, folder):
    """Expect nothing of `inferd check`, but that files and steps of ensembles are missing."""
    (folder / "model/1").mkdir(parents=True)
    (folder / "model/config.pbtxt").write_text(text)
    found = check_paths([folder / "model"], AS_USUAL).findings
    wrong = [one for one in found if one.level != "note" and one.rule not in NOT_THERE]
    assert not wrong, wrong


def run_console(typed, block):
    for command, shown in PROMPTED.findall(block.text):
        printed = typed.shell(command, may_fail=True)
        assert is_as_shown(printed, shown), f"$ {command}\n{printed}"


def run_block(typed, block, printed):
    """Do what a block says; return what it prints."""
    for kind, text in block.marks:
        if kind == "test" and text.startswith("first "):
            typed.shell(text.removeprefix("first "))
    file = block.word("save as")
    if file:
        typed.save(file, block.text)
    if block.word("output") is not None:
        assert is_as_shown(printed, block.text), printed
    elif block.language == "sh":
        appended, may_fail = block.word("append") or "", block.word("fails") is not None
        return typed.shell(block.text, appended=appended, may_fail=may_fail)
    elif block.language == "console":
        run_console(typed, block)
    elif block.language == "python" and not file:
        return typed.python(block.text)
    elif block.language == "pbtxt":
        check_config(block.text, typed.folder / f"read/{block.line}")
    elif block.language in READERS:
        READERS[block.language](block.text)
    else:
        assert file, f"a block in {block.language or 'no language'} without a mark"
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=NAMES.get)
def test_what_a_page_says_is_so(page, typed, request):
    SETUPS.get(NAMES[page], lambda *_: None)(typed, request)
    printed = ""
    for block in blocks_of(page):
        if not block.reason:
            try:
                printed = run_block(typed, block, printed)
            except AssertionError as error:
                error.add_note(f"{page}:{block.line}")
                raise


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_what_is_not_run_can_be_read(page):
    for block in blocks_of(page):
        assert block.language, f"{page}:{block.line} has no language"
        words = [text for kind, text in block.marks if kind == "test"]
        assert all(text.startswith(WORDS) for text in words), words
        if block.reason:
            READERS.get(block.language, str)(block.text)


@pytest.mark.parametrize(
    ("printed", "shown", "is_same"),
    [
        ("x, 1.9 ms\n [2., 4.0]", "x, 10 ms\n  [2., 4.]", True),
        ("a 1.0001 b", "a 1 b", True),
        ("a 2 b", "a 1 b", False),
        ("a 1", "a 1 b", False),
        ("a: (all of it).", "a: ...", True),
    ],
)
def test_figures_may_differ_and_words_may_not(printed, shown, is_same):
    assert is_as_shown(printed, shown) is is_same
