"""The files of the page: they ask for no more than their policy allows, and are small."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest

import inferd

STATIC = Path(inferd.__file__).parent / "ui/static"
VENDOR = STATIC / "vendor"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
OWN = [path for path in FILES if VENDOR not in path.parents]
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
MOST_BYTES = 120_000  # of the whole page, compressed
LONGEST_LINES = 400


def names(paths):
    return [str(path.relative_to(STATIC)) for path in paths]


def test_code_of_others_is_what_its_authors_built():
    rows = re.findall(
        r"^\| ([\w.-]+\.js) .* ([0-9a-f]{64}) \|$", (VENDOR / "README.md").read_text(), re.MULTILINE
    )
    hashes = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")
    }
    assert len(rows) == 2
    assert dict(rows) == hashes


def test_the_whole_page_is_small():
    sent = [path for path in FILES if path.suffix in (".html", ".js", ".css", ".svg")]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in sent) < MOST_BYTES


@pytest.mark.parametrize("path", SCRIPTS, ids=names(SCRIPTS))
def test_a_script_makes_no_markup_of_text_and_no_code_either(path):
    text = path.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in text
    assert not re.search(r"\bon(click|load|error)\s*=\s*[\"']", text)
    assert len(text.splitlines()) < LONGEST_LINES


@pytest.mark.parametrize("path", OWN, ids=names(OWN))
def test_no_file_names_another_host(path):
    hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", path.read_text()))
    assert hosts <= {"www.w3.org"}, "the namespace of SVG is no address"


def test_each_file_that_is_imported_is_there():
    for path in SCRIPTS:
        for name in re.findall(r"(?:from|import\()\s*'(\.[^']+)'", path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{name} in {path.name}"
    for name in re.findall(r'(?:src|href)="static/([^"]+)"', (STATIC / "index.html").read_text()):
        assert (STATIC / name).is_file(), name


def test_the_page_has_neither_scripts_nor_styles_of_its_own():
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert re.findall(r"<script[^>]*>", text) == ['<script type="module" src="static/app/main.js">']


def test_files_lie_where_the_server_looks_for_them():
    """It serves the page's folder, and the folders in it, no deeper."""
    assert {len(path.relative_to(STATIC).parts) for path in FILES} <= {1, 2}
