"""Each module of src has a test file in the same place, or a line in covered_by.txt.

Modules of inferd are named by their path in it, those of the other packages with the package.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from packages import PACKAGE, SIBLINGS, SRC

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGE = Path(__file__).parent / "covered_by.txt"
LINES = [line for line in PAGE.read_text().splitlines() if not line.startswith("#")]
COVERED = {line.split(" ", 1)[0]: line.split(" ", 2)[1:] for line in LINES}
MODULES = {
    str(path.relative_to(SRC if folder in SIBLINGS else PACKAGE))
    for folder in (PACKAGE, *SIBLINGS)
    for path in folder.rglob("*.py")
    if path.name != "__init__.py"
}


MOST_MODULES = 20


def mirror_of(module):
    return TESTS / Path(module).parent / f"test_{Path(module).name}"


def seen_by(test):
    """Return the text of a test file, and of the fixtures, helpers and models it can use."""
    helpers = [path for path in test.parent.rglob("*.py") if not path.name.startswith("test_")]
    above = [
        folder / "conftest.py" for folder in test.parents if TESTS in (folder, *folder.parents)
    ]
    files = {test, *helpers, *above, *(TESTS / "support").glob("*.py")}
    return "".join(file.read_text() for file in sorted(files) if file.is_file())


def is_imported(module, text):
    """Return whether `text` imports a module, given by its path, as a whole or names from it."""
    path = Path(module).with_suffix("")
    above = () if SRC / path.parts[0] in SIBLINGS else ("inferd",)
    package, _, name = ".".join((*above, *path.parts)).rpartition(".")
    whole = rf"from {re.escape(package)} import (\([^)]*|[^\n]*)\b{name}\b"
    return bool(re.search(rf"\b{re.escape(f'{package}.{name}')}\b|{whole}", text))


def test_each_module_has_its_tests():
    without = {module for module in MODULES if not mirror_of(module).exists()}
    assert without - COVERED.keys() == set(), "write tests/<same place>/test_<name>.py or a line"


def test_the_list_is_sorted_and_names_only_what_has_no_mirror():
    assert [line for line in LINES if LINES.count(line) > 1] == []
    assert list(COVERED) == sorted(COVERED)
    assert COVERED.keys() - MODULES == set(), "these are gone"
    assert [module for module in COVERED if mirror_of(module).exists()] == []


@pytest.mark.parametrize("module", COVERED)
def test_what_covers_a_module_imports_it_or_says_what_it_is_about(module):
    test, *word = COVERED[module]
    assert (ROOT / test).is_file(), test
    text = seen_by(ROOT / test)
    found = word[0] in text if word else is_imported(module, text)
    assert found, f"{test} does not {f'say {word[0]}' if word else 'import it'}"


def test_imports_are_found_in_each_form():
    for text in (
        "import inferd.a.b",
        "from inferd.a.b import C",
        "from inferd.a import (\n  b,\n)",
    ):
        assert is_imported("a/b.py", text), text
    assert is_imported("inferd_convert/b.py", "from inferd_convert.b import C")
    assert not is_imported("a/b.py", "from inferd.a.bc import b")


def test_no_folder_has_more_modules_than_a_reader_takes_in():
    counts = Counter(str(Path(module).parent) for module in MODULES)
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_helpers_of_tests_have_names_of_their_own():
    """Folders of tests are on sys.path, where the first of two modules of a name is found."""
    helpers = Counter(
        path.name
        for folder in TESTS.rglob("conftest.py")
        for path in folder.parent.glob("*.py")
        if not path.name.startswith(("test_", "conftest"))
    )
    assert [name for name, count in helpers.items() if count > 1] == []
