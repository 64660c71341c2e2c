"""Examples are run as their pages say, and what they print is compared: `make examples`."""

import sys
from pathlib import Path

import pytest
from typed import blocks_of, commands_of, same, typed

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "examples").glob("*/README.md"))
ELSEWHERE = {
    "notebook": "test_notebook.py",
    "transformers": "tests/platforms/test_transformers.py, where there is PyTorch",
}


@pytest.mark.timeout(300)  # scikit-learn is imported by three processes, one after the other
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name not in ELSEWHERE],
    ids=lambda page: page.parent.name,
)
def test_an_example_prints_what_its_page_says(page):
    [commands] = [
        commands_of(text)
        for language, text, _ in blocks_of(page.read_text())
        if language == "console"
    ]
    [(command, expected)] = commands
    printed = typed(command, ROOT)
    sys.stdout.write(f"\n\n$ {command}\n{printed}")  # make examples shows it
    assert same(printed) == same(expected)
