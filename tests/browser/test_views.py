"""The views with made-up events: states that a real server is seldom in, and hostile words."""

import json
import re

import pytest
from fake_site import model_row

HOSTILE = '<img src=x onerror="document.title=1">\u202e&amp;{{x}}'
LONG = "a_name_without_an_end_" * 12


def test_the_overview_says_how_the_server_is(fake, visit):
    told, site = fake
    told.rows.append(model_row(1, "broken", state="UNAVAILABLE", reason="line 1\nline 2 in full"))
    page = visit(site.url).go().title("The server is ready")
    page.see("14 models ready, 1 failed").see(re.compile("line 2 in full"))
    page.see("4243")
    for word in ("Requests", "Failed", "Latency p99", "CPU", "Memory", "GPU", "Up for"):
        assert page.page.locator("dl.tiles dt", has_text=word).count() >= 1, word
    assert page.text(".foot").startswith("inferd 0.1.0, compiled")


def test_a_server_in_its_first_second_has_no_figures_yet(fake, visit):
    told, site = fake
    told.is_new = True
    page = visit(site.url).go().title("The server is ready").see("14 models ready")
    page.see("4243")


@pytest.mark.parametrize(
    ("state", "why", "words"),
    [
        ("overloaded", "4,096 requests are under way", "The server is overloaded"),
        ("draining", "SIGTERM", "The server is draining"),
        ("starting", "2 of 9 models are loaded", "The server is starting"),
        ("not ready", "model 'x' failed", "The server is not ready"),
    ],
)
def test_what_keeps_a_server_from_answering_is_on_top(fake, visit, state, why, words):
    told, site = fake
    told.state, told.why = state, why
    page = visit(site.url).go().title(words)
    page.see(why)
    assert page.text(".state") == state


def test_charts_show_history_and_are_told_in_words(fake, visit):
    _, site = fake
    page = visit(site.url).go()
    page.page.locator(".plot canvas").first.wait_for()
    label = page.page.locator(".plot").first.get_attribute("aria-label")
    assert re.fullmatch(
        r"Requests, the last 5 minutes\. answered: now [\d,]+/s, highest [\d,]+/s; "
        r"failed: now .*; refused: now .*\.",
        label,
    )
    page.press("24 h")
    page.page.wait_for_function(
        "() => document.querySelector('.plot').ariaLabel.includes('the last 24 hours')"
    )
    drawn = page.page.evaluate(
        """() => {
            const canvas = document.querySelector('.plot canvas');
            const { width, height } = canvas;
            const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
            return data.some((value) => value > 0);
        }"""
    )
    assert drawn
    page.page.get_by_text("The newest figures as a table").click()
    rows = page.page.get_by_role("region", name="The newest figures").locator("tbody tr")
    rows.nth(11).wait_for()
    assert rows.count() == 12


def test_a_day_goes_on_while_it_is_shown(fake, visit):
    told, site = fake
    page = visit(site.url)
    page.page.clock.install()
    page.go().press("24 h")
    says = "(words) => document.querySelector('.plot').ariaLabel.includes(words)"
    page.page.wait_for_function(says, arg="answered: now 1,500/s")
    told.minute_success = 180_000
    with page.page.expect_request(re.compile("once=1")):  # a stream that begins anew is none
        page.page.clock.fast_forward("01:00")
    page.page.wait_for_function(says, arg="answered: now 3,000/s")


def test_a_broken_stream_is_said_and_comes_back(fake, visit):
    told, site = fake
    page = visit(site.url, may_fail=True).go().title("The server is ready")
    told.is_broken = True
    page.see("What you see is from before.")
    assert page.text(".state") == "no connection"
    assert page.text(".banner [role=status]") != ""
    page.title("The server is ready")  # the last figures stay
    told.is_broken = False
    page.page.wait_for_function("() => !document.querySelector('.banner')")
    assert page.text(".state") == "ready"


def test_a_page_asks_for_a_key_and_keeps_it_in_its_tab(fake, visit):
    told, site = fake
    told.key = "inferd_right"
    page = visit(site.url, may_fail=True).go().title("This server needs a key")
    field = page.page.get_by_label("API key")
    assert field.get_attribute("type") == "password"
    field.fill("inferd_wrong")
    page.press("Use it").title("This key does not open the page")
    page.page.get_by_label("API key").fill("inferd_right")
    page.press("Use it").title("The server is ready")
    page.page.reload()
    page.title("The server is ready")
    assert page.page.context.cookies() == []
    assert page.page.evaluate("() => Object.keys(localStorage).length") == 0


def test_names_and_reasons_are_shown_as_they_are_and_never_run(fake, visit):
    told, site = fake
    told.rows = [
        model_row(0, HOSTILE),
        model_row(1, LONG),
        model_row(2, "../..", state="UNAVAILABLE", reason=HOSTILE),
    ]
    told.log = [
        {"time": 1, "level": "error", "text": HOSTILE, "pid": 1, "source": "<b>x</b>"},
    ]
    page = visit(site.url, may_fail=True).go().title("The server is ready")
    page.see(HOSTILE)
    page.go("models")
    page.page.get_by_role("link", name=HOSTILE).click()
    page.title(HOSTILE)
    assert page.page.locator("h1 bdi").inner_text() == HOSTILE
    page.press("Unload").see(re.compile("Unload.*onerror"))
    page.press("Cancel")
    page.go("logs").see(HOSTILE)
    assert page.page.locator("img:not([src='static/icon.svg'])").count() == 0
    assert page.page.title() == "inferd"
    wide = page.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_a_thousand_models_are_a_few_rows_of_the_page(fake, visit):
    told, site = fake
    told.rows = [model_row(number, f"model_{number:04}") for number in range(1000)]
    page = visit(site.url).go("models").see("1,000 rows")
    table = page.page.get_by_role("table")
    assert table.get_attribute("aria-rowcount") == "1001"
    assert table.locator("tbody tr").count() < 60
    box = page.page.get_by_role("region", name="Models, scrollable")
    box.evaluate("(element) => { element.scrollTop = element.scrollHeight; }")
    page.see("model_0999")
    last = table.locator("tbody tr:not(.space)").last
    assert last.get_attribute("aria-rowindex") == "1001"
    page.page.get_by_label("Search by name, platform, reason").fill("07 python")
    expected = [row for row in told.rows if "07" in row["name"] and row["platform"] == "python"]
    page.see(f"{len(expected)} rows")
    page.press("p95")
    times = sorted((row["p95"] or -1 for row in expected), reverse=True)
    first = table.locator("tbody tr:not(.space) a").first.inner_text()
    assert first in {row["name"] for row in expected if (row["p95"] or -1) == times[0]}
    assert table.locator("th.col-p95").get_attribute("aria-sort") == "descending"


def test_rows_change_as_the_server_says(fake, visit):
    told, site = fake
    page = visit(site.url).go("models").see("14 rows")
    told.rows.append(model_row(99, "a_new_one"))
    page.see("a_new_one").see("15 rows")


def test_a_model_is_shown_with_all_that_is_known_of_it(fake, visit):
    told, site = fake
    told.rows[0] |= {"joined": "compared", "joined_reason": "two rows differ"}
    page = visit(site.url, may_fail=True).go("models", "model_00", "1").title("model_00")
    page.see(re.compile(r"compared before they are joined: two rows differ"))
    page.see("± 6.3 %").see("Batch sizes").see("Recent errors").see("Slow requests").see(
        "Sequences"
    )
    bars = page.page.locator("figure.histogram svg[role=img]")
    assert bars.count() == 2
    assert re.search(r"p50 .*, p95 .*, p99", bars.first.get_attribute("aria-label"))
    sizes = page.page.get_by_role("table", name="Batch sizes").locator("tbody tr")
    assert [one.split() for one in sizes.all_inner_texts()] == [
        ["1", "400"],
        ["2", "210"],
        ["4", "90"],
        ["8", "33"],
    ]


def test_the_log_is_filtered_paused_and_followed(fake, visit):
    told, site = fake
    told.log = [
        {"time": 5, "level": "warning", "text": f"line {i}", "pid": 7, "source": "a:1"}
        for i in range(3)
    ]
    page = visit(site.url).go("logs").see("63 lines")
    page.press("Errors").see("15 lines")
    page.press("Warnings").page.get_by_label("Search the log").fill("line 2")
    page.see("1 line")
    page.press("Pause")
    assert page.button("Follow").get_attribute("aria-pressed") == "false"
    with page.page.expect_download() as download:
        page.press("Download")
    assert "warning 7 a:1 line 2" in download.value.path().read_text()


def test_requests_are_shown_with_their_phases_and_saved_as_a_trace(fake, visit):
    _, site = fake
    page = visit(site.url).go("requests").see("40 requests")
    page.press("Failed").see("4 requests").see("the queue was full")
    bar = page.page.locator(".phases").first
    assert re.fullmatch(
        r"queue .+, hand over .+, gather .+, compute .+, send .+", bar.get_attribute("aria-label")
    )
    with page.page.expect_download() as download:
        page.press("Download as a trace")
    events = json.loads(download.value.path().read_text())["traceEvents"]
    whole = [one for one in events if one["name"].startswith("model_")]
    assert len(whole) == 4
    assert {one["name"] for one in events} >= {"queue", "compute", "send"}


def test_a_view_that_is_not_there_leads_back(fake, visit):
    _, site = fake
    page = visit(site.url).go("nowhere").title("There is no such view")
    page.page.get_by_role("link", name="overview", exact=True).click()
    page.title("The server is ready")


# --- acts ---


def test_a_model_is_unloaded_after_a_question_and_a_token(fake, visit):
    told, site = fake
    page = visit(site.url, may_fail=True).go("models", "model_00", "1").title("model_00")
    page.press("Unload").page.get_by_label(re.compile("^Token")).fill("wrong")
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Unload").click()
    page.see("this token is not valid")
    assert told.acts == []
    page.page.get_by_label(re.compile("^Token")).fill("right")
    dialog.get_by_role("button", name="Unload").click()
    page.see("unload is done")
    assert told.acts == [{"act": "unload", "model": "model_00"}]
    page.press("Reload")
    dialog.get_by_role("button", name="Reload").click()  # the token is used up, the session stays
    page.see("reload is done")


def test_a_page_that_may_only_read_says_so(fake, visit):
    told, site = fake
    told.mode = "read"
    page = visit(site.url, may_fail=True).go("models", "model_00", "1").title("model_00")
    page.press("Unload").see(re.compile("only shows. Start the server with --ui full"))
    page.press("Close")
    assert told.acts == []
    assert page.page.evaluate("() => document.activeElement.textContent") == "Unload"


def test_a_token_in_the_address_is_used_and_taken_away(fake, visit):
    _, site = fake
    page = visit(site.url, may_fail=True)
    page.page.goto(f"{site.url}#token=right")
    page.see("This page is unlocked")
    assert "token" not in page.page.evaluate("() => location.href")
    page.go("settings").see("It is unlocked")
    page.press("Lock it").see("It is locked.")


def test_what_a_server_says_instead_of_events_is_shown(fake, visit):
    told, site = fake
    told.refuses = "there are 64 streams of events, which is the most"
    page = visit(site.url, may_fail=True).go().see(told.refuses)
    told.refuses = ""
    page.title("The server is ready")
