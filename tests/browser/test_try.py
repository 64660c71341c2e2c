"""Models of a real server, tried by hand: pictures, texts, streams, errors, a drawn digit."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from real_models import picture
from strokes import DIGITS, draw

MOVES = [("ArrowLeft", 5), (" ", 1), ("ArrowRight", 11), ("ArrowDown", 20), ("ArrowLeft", 11)]
MOVES += [("ArrowUp", 20)]  # a square nought
HAND_OVER = """(element, [bytes, [kind, name, data]]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(bytes)], 'a.png', { type: 'image/png' }));
    const options = { [data]: transfer, bubbles: true, cancelable: true };
    element.dispatchEvent(new globalThis[kind](name, options));
}"""


def table(page, output):
    """The first rows of an output, as lists of words."""
    rows = page.page.locator(f"section[aria-label='Output {output}'] tbody tr")
    rows.first.wait_for()
    return [row.split() for row in rows.all_inner_texts()]


@pytest.mark.parametrize("digit", DIGITS)
def test_a_drawn_digit_is_recognized(site, visit, digit):
    page = visit(site.url).go("try", "digits").title("Try digits")
    draw(page.page, DIGITS[digit])
    page.press("Send").see("Answered after")
    assert page.text("section[aria-label='Output digit'] .value") == str(digit)
    assert table(page, "probability")[0][0] == str(digit)


def test_a_digit_is_drawn_with_the_keyboard(site, visit):
    page = visit(site.url).go("try", "digits").title("Try digits")
    sheet = page.page.get_by_role("application")
    sheet.focus()
    for key, times in MOVES:
        for _ in range(times):
            page.page.keyboard.press(key)
    page.page.keyboard.press(" ")
    page.see("This is what the model gets.")
    page.page.keyboard.press("Tab")  # it is no trap
    assert page.page.evaluate("() => document.activeElement.textContent") == "Clear"
    page.press("Send").see("Answered after")
    assert page.text("section[aria-label='Output digit'] .value") == "0"


def test_text_goes_in_and_comes_out(site, visit):
    page = visit(site.url).go("try", "shout").title("Try shout")
    page.page.get_by_label("Text for text").fill("grüße <b>an</b> alle")
    page.press("Send").see("Answered after")
    assert page.text(".answer-text") == "GRüßE <B>AN</B> ALLE"


def test_an_error_of_the_model_is_shown_as_text(site, visit):
    page = visit(site.url, may_fail=True).go("try", "shout").title("Try shout")
    page.page.get_by_label("Text for text").fill("fail")
    page.press("Send").see("Failed after")
    assert "it was told to <b>fail</b>" in page.text("[role=alert].error-box")
    assert page.page.locator(".error-box b").count() == 1  # the status alone
    page.page.get_by_label("Text for text").fill("well")
    page.press("Send").see("WELL")


def test_what_is_not_filled_in_is_said_and_not_sent(site, visit):
    page = visit(site.url).go("try", "whole").title("Try whole")
    page.press("Send").see("x: Nothing is filled in yet.")
    page.page.get_by_label("Elements of x").fill("1.5, 2")
    page.see("1.5 is no integer, as INT64 wants.")


def test_integers_beyond_2_to_53_are_right(site, visit):
    page = visit(site.url).go("try", "whole").title("Try whole")
    page.page.get_by_label("Elements of x").fill("9007199254740993, -9223372036854775808")
    page.press("Send").see("Answered after")
    page.see("9007199254740993")
    assert table(page, "y") == [["0", "9007199254740993", "-9223372036854775808"]]


def test_answers_come_as_the_model_gives_them(site, visit):
    page = visit(site.url).go("try", "words").title("Try words")
    page.page.get_by_label("Text for text").fill("one word after <i>another</i>")
    page.press("Send, and show answers as they come").see("Answered after")
    assert page.text(".answer-text") == "one word after <i>another</i>"
    page.page.get_by_text("4 answers").click()
    assert page.page.locator("ol.stream li").count() == 4


@pytest.mark.parametrize("way", ["choose", "drop", "paste"])
def test_a_picture_becomes_the_input_as_it_is(site, visit, way):
    page = visit(site.url).go("try", "colours").title("Try colours")
    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "png")
    content = {"name": "a.png", "mimeType": "image/png", "buffer": file.getvalue()}
    if way == "choose":
        page.page.locator("input[type=file]").set_input_files(content)
    else:
        event = {
            "drop": ["DragEvent", "drop", "dataTransfer"],
            "paste": ["ClipboardEvent", "paste", "clipboardData"],
        }
        page.page.locator(".drop").evaluate(HAND_OVER, [list(file.getvalue()), event[way]])
    page.see("Shape 3 × 16 × 24")
    page.press("Send").see("Answered after")
    with page.page.expect_download() as download:
        page.press("Save .npy")
    answer = np.load(download.value.path())
    assert answer.dtype == np.uint8
    assert np.array_equal(answer, picture().transpose(2, 0, 1))


def test_pictures_are_shrunk_to_the_input(site, visit):
    page = visit(site.url).go("try", "colours").title("Try colours")
    file = io.BytesIO()
    large = Image.fromarray(np.kron(picture(), np.ones((10, 10, 1), np.uint8)))
    large.save(file, "png")
    content = {"name": "a.png", "mimeType": "image/png", "buffer": file.getvalue()}
    page.page.locator("input[type=file]").set_input_files(content)
    page.press("Send").see("Answered after")
    with page.page.expect_download() as download:
        page.press("Save .npy")
    difference = np.abs(np.load(download.value.path()).transpose(1, 2, 0).astype(int) - picture())
    assert difference.mean() < 4


def test_a_file_of_numpy_is_sent(site, visit, tmp_path):
    page = visit(site.url).go("try", "whole").title("Try whole")
    np.save(tmp_path / "x.npy", np.array([2**62 + 1, -3]))
    page.press("File").page.locator("input[type=file]").set_input_files(tmp_path / "x.npy")
    page.see("Shape 2, 16 B.")
    page.press("Send").see("Answered after")
    assert table(page, "y")[0][1:] == [str(2**62 + 1), "-3"]


def test_classes_have_their_labels(site, visit):
    page = visit(site.url).go("try", "classes").title("Try classes")
    page.page.get_by_label("Elements of x").fill("[0.1, 0.2, 0.6, 0.1]")
    page.press("Send").see("Answered after")
    assert table(page, "y")[0] == ["<i>bird</i>", "0.6"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_like_a_class_is_a_text(site, visit, stream):
    page = visit(site.url).go("try", "shout", "1").title("Try shout")
    page.page.get_by_label("Text for text").fill("12:30")
    if stream:
        page.page.get_by_text("Options of the request").click()
        page.page.get_by_label("stream: show answers as they come").check()
        page.page.get_by_role("button", name="Send, and show").click()
        page.see("Answered after")
        assert page.text("pre.running") == "12:30"
    else:
        page.press("Send").see("Answered after")
        assert page.text("section[aria-label='Output loud'] pre") == "12:30"


def test_an_ensemble_is_drawn_and_tried(site, visit):
    page = visit(site.url).go("models", "digits_of_two").title("digits_of_two")
    graph = page.page.locator("svg.graph")
    graph.wait_for()
    assert graph.get_attribute("aria-label") == "The ensemble: same, then digits"
    assert {"x", "same", "digits", "digit", "probability"} <= {
        text.partition("\n")[0] for text in graph.locator("text").all_text_contents()
    }
    page.page.get_by_role("link", name="Try it").last.click()
    page.title("Try digits_of_two")
    draw(page.page, DIGITS[3])
    page.press("Send").see("Answered after")
    assert page.text("section[aria-label='Output digit'] .value") == "3"


def test_a_form_is_shared_by_its_address(site, visit):
    first = visit(site.url, permissions=["clipboard-read", "clipboard-write"]).go(
        "try", "digits", "1"
    )
    draw(first.title("Try digits").page, DIGITS[4])
    first.press("Copy a link to this form").see("The link is copied")
    address = first.page.evaluate("() => location.href")
    assert "?form=" in address
    other = visit(site.url)
    other.page.goto(address)
    other.title("Try digits").see("This is what the model gets.")
    other.press("Send").see("Answered after")
    assert other.text("section[aria-label='Output digit'] .value") == "4"


def test_a_model_that_is_not_there_is_said(site, visit):
    page = visit(site.url, may_fail=True).go("try", "no_such_model").title("Try no_such_model")
    page.see(re.compile("unknown model|not found|no_such_model' is not", re.IGNORECASE))
