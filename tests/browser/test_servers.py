"""The page on real servers: acts, keys, a prefix, a thousand models, names that mean harm."""

import re
import shutil
import subprocess
import sys

import pytest
from prefix import Prefix
from real_models import DIGITS as DIGITS_MODEL
from real_models import write_many
from real_site import real_site
from strokes import DIGITS, draw

HOSTILE = "<img src=x onerror=alert(1)>&\u202etxt"
MANY = 1000
# Between the first byte asked for and the first paint, on a machine that others use as well.
SLOWEST_PAINT_MS = 3000
MOST_BYTES = 200_000


def test_models_are_loaded_and_unloaded_with_the_link_of_the_server(models, visit):
    explicit = ["--model-control-mode=explicit", "--load-model=digits"]
    with real_site(models, *explicit, full=True) as site:
        page = visit(site.url, may_fail=True)
        page.page.goto(site.link)
        page.see("This page is unlocked")
        assert "token" not in page.page.evaluate("() => location.href")
        dialog = page.page.get_by_role("dialog")

        def act(name, words):
            page.press(name)
            dialog.get_by_role("button", name=name, exact=True).click()
            page.see(words)

        page.go("models", "digits", "1").title("digits")
        page.page.locator(".title-line .pill.good").wait_for()
        act("Reload", "digits is loaded again")
        act("Unload", "digits is unloaded")
        page.page.locator(".title-line .pill", has_text="unloaded").wait_for()
        act("Load", "digits is loaded")
        page.page.locator(".title-line .pill.good").wait_for()

        page.go("models", "broken").title("broken")
        page.press("Load")
        dialog.get_by_role("button", name="Load", exact=True).click()
        dialog.get_by_text("Protobuf parsing failed").wait_for()
        page.press("Cancel")

        page.go("settings").title("Settings")
        page.page.get_by_label("Verbosity, 0 for none").fill("2")
        page.page.locator("section", has_text="Log").get_by_role(
            "button", name="Change…"
        ).first.click()
        dialog.get_by_text("log_verbose_level: 2").wait_for()
        dialog.get_by_role("button", name="Change", exact=True).click()
        page.see(re.compile("log", re.IGNORECASE))
        page.page.reload()
        page.title("Settings")
        page.page.wait_for_function("() => document.querySelector('#verbose')?.value === '2'")

        again = visit(site.url, may_fail=True)
        again.page.goto(site.link)  # it was good once
        again.see("The page stays locked.")


def test_without_explicit_control_the_page_says_why_nothing_is_loaded(models, visit):
    with real_site(models, "--exit-on-error=false", full=True) as site:
        page = visit(site.url, may_fail=True)
        page.page.goto(site.link)
        page.see("This page is unlocked")
        page.go("models", "digits", "1").title("digits")
        page.press("Unload")
        page.page.get_by_role("dialog").get_by_role("button", name="Unload").click()
        page.page.get_by_role("dialog").get_by_text("explicit").wait_for()


def test_a_server_with_keys_is_seen_with_a_key(visit, tmp_path):
    keys = tmp_path / "keys.txt"
    command = [sys.executable, "-m", "inferd", "key", "alice", str(keys)]
    key = re.search(r"inferd_\S+", subprocess.check_output(command, text=True))[0]
    with real_site(DIGITS_MODEL, f"--api-key-file={keys}") as site:
        page = visit(site.url, may_fail=True).go().title("This server needs a key")
        page.page.get_by_label("API key").fill(key)
        page.press("Use it").title("The server is ready")
        page.go("try", "digits").title("Try digits")
        draw(page.page, DIGITS[0])
        page.press("Send").see("Answered after")
        program = page.text("pre.program")
        assert key not in program
        assert "$INFERD_API_KEY" in program


def test_the_page_works_below_a_path_prefix(site, visit):
    with Prefix("/gpu/1", site.port) as proxy:
        page = visit(proxy.url).go().title("The server is")
        page.page.locator(".plot canvas").first.wait_for()
        page.go("try", "digits").title("Try digits")
        draw(page.page, DIGITS[0])
        page.press("Send").see("Answered after")
        assert f"{proxy.url.removesuffix('ui/')}v2/models/digits/infer" in page.text("pre.program")
        page.go("models").see("digits_of_two")


def test_a_thousand_models_of_a_real_server_are_shown(visit, tmp_path_factory):
    folder = write_many(tmp_path_factory.mktemp("many"), MANY)
    shutil.copytree(folder / "tiny_0000", folder / HOSTILE)
    explicit = ["--model-control-mode=explicit", "--load-model=tiny_0500"]
    with real_site(folder, *explicit, f"--load-model={HOSTILE}") as site:
        page = visit(site.url, may_fail=True).go("models").see(f"{MANY + 1:,} rows")
        assert page.page.locator(".virtual tbody tr").count() < 60
        page.page.get_by_label("Search by name, platform, reason").fill("0500")
        page.see("1 row")
        page.page.get_by_role("link", name="tiny_0500").click()
        page.title("tiny_0500").see("Inputs and outputs")
        page.go("models", HOSTILE, "1").title(HOSTILE)
        page.see("Inputs and outputs")
        page.page.get_by_role("link", name="Try it").last.click()
        page.page.get_by_label("Elements of x").fill("1 2 3 4")
        page.press("Send").see("Answered after")
        assert page.page.locator("main img").count() == 0


def test_the_page_is_small_and_painted_soon(site, visit):
    page = visit(site.url)
    sizes = []
    page.page.on("requestfinished", lambda one: sizes.append(one) if "/ui/" in one.url else None)
    page.go().title("The server is")
    page.page.locator(".plot canvas").first.wait_for()
    files = [one for one in sizes if "/static/" in one.url or one.url == site.url]
    sent = sum(one.sizes()["responseBodySize"] for one in files)
    paint = page.page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    said = f"first paint after {paint:.0f} ms; {len(files)} files, {sent:,} bytes on the wire"
    sys.stdout.write(f"\n{said}\n")
    assert 10_000 < sent < MOST_BYTES
    assert paint < SLOWEST_PAINT_MS


@pytest.mark.parametrize("view", ["", "models", "try", "requests", "logs", "settings"])
def test_the_tab_key_reaches_everything_and_is_never_caught(site, visit, view):
    page = visit(site.url).go(view) if view else visit(site.url).go()
    page.page.locator("h1").wait_for()
    keyboard = page.page.keyboard
    keyboard.press("Tab")
    assert page.page.evaluate("() => document.activeElement.className") == "skip"
    seen = []
    for _ in range(300):
        keyboard.press("Tab")
        where = page.page.evaluate(
            """() => {
                const one = document.activeElement;
                const style = getComputedStyle(one);
                const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
                const inner = one.closest('.drop') !== null;
                return [one.tagName, one.textContent.trim().slice(0, 40), ring || inner];
            }"""
        )
        if where[0] == "BODY" or where[1] == "Skip to the content":
            break
        seen.append(where)
    else:
        raise AssertionError(seen[-5:])
    texts = [text for _, text, _ in seen]
    assert texts[:7] == ["inferd", "Overview", "Models", "Try it", "Requests", "Logs", "Settings"]
    assert [one for one in seen if not one[2]] == [], "each shows where it is"


def test_the_skip_link_and_a_change_of_view_move_the_focus(site, visit):
    page = visit(site.url).go()
    page.title("The server is")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    assert page.page.evaluate("() => document.activeElement.tagName") == "H1"
    page.page.get_by_role("link", name="Logs", exact=True).press("Enter")
    page.title("Logs").see("is live at")
    page.page.wait_for_function("() => document.activeElement.tagName === 'H1'")
    assert page.page.evaluate("() => location.hash") == "#/logs"


def test_on_a_narrow_screen_the_tab_of_the_view_is_in_sight(site, visit):
    page = visit(site.url, width=320).go("settings").title("Settings")
    box = "document.querySelector('.tabs [aria-current]').getBoundingClientRect()"
    left, right = page.page.evaluate(f"(({{ left, right }}) => [left, right])({box})")
    assert left >= 0
    assert right < 321  # scrolled by whole pixels


def test_a_server_that_ends_is_said(models, visit):
    with real_site(DIGITS_MODEL) as site:
        page = visit(site.url, may_fail=True).go().title("The server is ready")
    page.see("What you see is from before.")
