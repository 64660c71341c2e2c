"""What the pages say of the code is there: links, names in the tour, files, options."""

import ast
import configparser
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from inferd.cli.completion import help_of, options_of_help
from inferd.cli.verbs import VERBS
from inferd.config.options.option import options_of
from inferd.config.server import ServerConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_LINK = re.compile(r"\[`([A-Za-z0-9_./]+)`\]\((\S+\.py)\)")
METHOD = re.compile(r"`([A-Z]\w+)\.(\w+)`")
FILE = re.compile(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)(?!\w)")
FOREIGN_FLAGS = {
    "pip": {"no-deps", "index-url", "no-binary", "no-index", "find-links"},
    "make wheels": {"compiled", "python"},
    "perf_analyzer": {"streaming", "shared-memory", "collect-metrics"},
    "mlserver infer": {"binary-data"},
    "KServe's servers": {"nthread"},
    "OpenVINO Model Server": {"layout", "shape"},
    "helm": {"set"},
    "docker": {"build-arg", "cap-drop", "read-only", "time", "tmpfs"},
    "ray start": {"head", "address"},
}
OURS = {"help", "version", "config"} | {
    option for verb in VERBS for option in options_of_help(help_of(verb))
}


def anchors(page):
    """The names GitHub gives the headings of `page`."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def defined_in(file):
    """The names a module defines, those of methods and attributes as Class.name."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names.update(
                target.id
                for target in ast.walk(node)
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
            )
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names.update(
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", ["tour", "glossary"])
def test_what_a_page_about_the_code_names_is_there(name):
    page = ROOT / "docs" / f"{name}.md"
    named = NAMED_LINK.findall(page.read_text())
    assert len(named) > 20
    for name, link in named:
        file = page.parent / link
        assert "/" in name or name.endswith(".py") or name in defined_in(file), f"{name} in {link}"


def test_each_method_that_the_tour_names_without_a_link_is_of_a_class_that_it_links():
    page = ROOT / "docs/tour.md"
    text = page.read_text()
    linked = {page.parent / link for _, link in NAMED_LINK.findall(text)}
    known = set().union(*map(defined_in, linked))
    for kind, method in METHOD.findall(text):
        assert f"{kind}.{method}" in known, f"{kind}.{method}"


def test_the_floors_are_those_that_imports_are_checked_by():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:floors"]["layers"].split("\n")[1:]
    checked = [[room.strip() for room in layer.split("|")] for layer in reversed(layers)]
    page = (ROOT / "docs/decisions/0027-rooms.md").read_text()
    said = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)]
    assert said == checked


def test_the_glossary_is_short_enough_to_be_read():
    entries = re.findall(r"^- \*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert len(entries) <= 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_file_that_is_named_is_there(page):
    for name in FILE.findall(page.read_text()):
        places = (ROOT, ROOT / "src/inferd", ROOT / "src/inferd/backends/worker", page.parent)
        assert any((place / name).exists() for place in places), name


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/guide").glob("*.md")), ids=lambda page: page.name
)
def test_each_option_a_guide_names_is_one(page):
    options = options_of(ServerConfig).values()
    known = OURS.union(*FOREIGN_FLAGS.values())
    known |= {
        name
        for one in options
        for name in (one.key, *one.aliases, *one.old_flags, *one.old_switches)
    }
    for flag in FLAG.findall(page.read_text()):
        is_group = flag.endswith("-") and any(name.startswith(flag) for name in known)
        assert flag in known or is_group, flag


def test_each_row_of_where_do_i_change_it_names_a_place_that_is_there():
    tour = (ROOT / "docs/tour.md").read_text()
    _, _, rest = tour.partition("\n## Where do I change it?\n")
    rows = re.findall(r"^\| (?!I want|---)(.+?) \| (.+) \|$", rest, re.MULTILINE)
    assert len(rows) >= 20
    for what, where in rows:
        assert NAMED_LINK.search(where) or re.search(r"\]\(\S+/\)", where), what


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_picture_says_what_is_to_be_seen(page):
    for said, _ in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
        assert len(said.split()) >= 3, said


def test_each_drawing_is_shown_and_legible_on_any_background():
    shown = "".join(page.read_text() for page in PAGES)
    for drawing in (ROOT / "docs/pictures").glob("*.svg"):
        text = drawing.read_text()
        ElementTree.fromstring(text)
        assert f"pictures/{drawing.name})" in shown
        assert "<title>" in text and "<desc>" in text
        colours = set(re.findall(r"#[0-9a-f]{3,6}\b", text)) - {"#fff"}  # which stands in boxes
        for luminance in map(luminance_of, colours):
            assert 1.05 / (luminance + 0.05) > 3.5, "on white"
            assert (luminance + 0.05) / (luminance_of("#131416") + 0.05) > 2.5, "on black"


def luminance_of(colour):
    """The relative luminance of #rrggbb, as the accessibility guidelines (WCAG 2) have it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
