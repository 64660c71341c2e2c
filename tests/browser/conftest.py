"""The page in Chromium: `make test-browser` runs these tests, in an environment of its own.

Every visit ends with what must not have happened: an error in the console, a violation of the
page's policy, a request to another host.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]

if find_spec("playwright"):
    from visits import ARGUMENTS, Visit

PICTURES = HERE / "out"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Debian's Chromium, with a profile of its own."""
    from playwright.sync_api import sync_playwright

    program = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    assert program, "Chromium is needed: apt-get install chromium, or CHROMIUM=its path"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """visit(url, ...) opens the page; see Visit. At the end, none may have had anything to say."""
    made = []

    def open_page(url, **how):
        made.append(Visit(browser, url, **how))
        return made[-1]

    yield open_page
    for one in made:
        one.close()
    assert [complaint for one in made for complaint in one.complaints] == []


@pytest.fixture
def fake():
    """What the fake server tells, and the server: (Fake, FakeSite)."""
    from fake_site import Fake, FakeSite

    with FakeSite(Fake()) as site:
        yield site.fake, site


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core; None where npm, with which make test-browser gets it, is missing."""
    path = Path(sys.prefix) / "axe/axe.min.js"
    return path.read_text() if path.is_file() else None


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folder with the models of real_models."""
    from real_models import write_models

    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def site(models):
    """A real server of these models, under load."""
    from real_site import busy, real_site

    with real_site(models, "--exit-on-error=false") as server, busy(server):
        yield server
