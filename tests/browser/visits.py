"""A visit of the page: one tab of the browser, with a name for what tests do there."""

import re
from urllib.parse import quote, urlsplit

PATIENCE_MS = 15_000
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIOLATIONS = """
    document.addEventListener('securitypolicyviolation', (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
"""


class Visit:
    """A tab at `url`, which ends in /ui/.

    `complaints` collects what must not happen. `may_fail`: calls may be refused or broken off,
    which the console tells as errors, too.
    """

    def __init__(
        self, browser, url, *, may_fail=False, width=1280, height=900, scheme="light", **how
    ):
        self.url, self.may_fail, self.complaints = url, may_fail, []
        viewport = {"width": width, "height": height}
        self.context = browser.new_context(
            viewport=viewport, color_scheme=scheme, accept_downloads=True, **how
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", self._see)

    def _hear(self, message):
        is_known = self.may_fail and message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not is_known:
            self.complaints.append(f"{message.type}: {message.text}")

    def _see(self, request):
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws") and url.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"request to {request.url}")

    def go(self, *parts, query=""):
        """Go to a view, named by its parts, as a link there does."""
        path = "/".join(quote(part, safe="") for part in parts)
        self.page.goto(f"{self.url}#/{path}{query}")
        return self

    def title(self, text):
        """Wait for the view that has this title."""
        self.page.locator("h1", has_text=text).first.wait_for()
        return self

    def see(self, text):
        """Wait for this text anywhere; a pattern, too."""
        self.page.get_by_text(text).first.wait_for()
        return self

    def button(self, name):
        """The button of exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def press(self, name):
        """Press the button of exactly this name."""
        self.button(name).first.click()
        return self

    def text(self, selector):
        """What an element says, without needless spaces."""
        return re.sub(r"\s+", " ", self.page.locator(selector).first.inner_text()).strip()

    def module(self, path, code, *values):
        """What `code`, a function of a module of the page and of values, returns there."""
        if self.page.url == "about:blank":
            self.go()
        script = f"async (values) => ({code})(await import('./static/{path}'), ...values)"
        return self.page.evaluate(script, list(values))

    def problem(self, path, code, *values):
        """The words of the Error that `code` throws."""
        caught = "(...all) => { try { CODE(...all); } catch (error) { return error.message; } }"
        return self.module(path, caught.replace("CODE", f"({code})"), *values)

    def close(self):
        """Leave."""
        self.context.close()
