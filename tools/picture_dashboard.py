"""Makes the pictures of docs/guide/dashboard.md: a server of a few models, busy for a minute.

.venv-browser/bin/python tools/picture_dashboard.py
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/pictures"
BUSY_S = 75.0
VIEWS = {
    "dashboard-overview": ([], "light", 860),
    "dashboard-try": (["try", "digits", "1"], "light", 800),
    "dashboard-model": (["models", "digits", "1"], "dark", 800),
    "dashboard-requests": (["requests"], "light", 620),
}


def main() -> None:
    """Take them."""
    sys.path += [str(ROOT / "tests/browser"), str(ROOT / "tests/support")]
    from playwright.sync_api import sync_playwright
    from real_models import write_models
    from real_site import busy, real_site
    from strokes import DIGITS, draw
    from visits import ARGUMENTS, Visit

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        models = write_models(Path(place) / "models")
        shutil.rmtree(models / "broken")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        with real_site(models) as site, busy(site, clients=3):
            time.sleep(BUSY_S)
            for name, (parts, scheme, height) in VIEWS.items():
                page = Visit(browser, site.url, scheme=scheme, width=1280, height=height)
                page.go(*parts).page.locator("h1").first.wait_for()
                if "try" in parts:
                    draw(page.page, DIGITS[3])
                    page.press("Send").see("Answered after")
                page.page.wait_for_timeout(2500)
                page.page.screenshot(path=FOLDER / f"{name}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
