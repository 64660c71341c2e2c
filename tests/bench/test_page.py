"""Results as a page."""

import math
from html.parser import HTMLParser

import pytest
from bench_results import UNKNOWN, point, run

from inferd.bench.page import page, plot, ticks


class Parser(HTMLParser):
    """Checks that elements are closed in order, and keeps what there is."""

    VOID = ("meta", "polyline", "circle", "line")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize(
    "points",
    [
        [point("1"), point("2"), point("4")],
        [point("100/s", rate=100.0), point("200/s", rate=200.0)],
        [point("1", verdict=UNKNOWN)],
        [point("1", server=None)],
    ],
)
def test_a_page_needs_nothing_else_and_is_well_formed(points):
    text = page(run(*points))
    found = Parser(text)
    assert found.links == [] and "script" not in found.tags and "http-equiv" not in text
    assert found.tags.count("tr") == 1 + len(points)
    assert "m<1> under load" in found.texts  # escaped in the source
    assert "m<1>" not in text
    assert "NaN" not in text and "nan" not in text.replace("finance", "")


def test_points_that_cannot_be_trusted_have_no_curve():
    good = Parser(page(run(point("1"), point("2")))).tags.count("svg")
    bad = Parser(page(run(point("1", verdict=UNKNOWN), point("2", verdict=UNKNOWN)))).tags.count(
        "svg"
    )
    assert good == 4 and bad == 2


def test_a_plot_stays_inside_its_picture():
    text = plot([("a", [(1.0, 5.0, "one"), (3.0, 1.0, "<two>")])], "x", "y")
    assert "&lt;two&gt;" in text and text.count("<circle") == 2
    assert plot([("a", [])], "x", "y") == ""
    assert "circle" not in plot([("a", [(math.nan, 1.0, "")])], "x", "y")


@pytest.mark.parametrize(
    ("least", "most"), [(0, 1), (0, 97), (3, 4.2), (0, 1e-5), (0, 123456), (5, 5)]
)
def test_ticks_are_a_few_round_numbers_inside(least, most):
    found = ticks(least, most)
    assert len(found) <= 8 and all(least - 1e-12 <= one <= most + 1e-12 for one in found)
    assert least == most or len(found) >= 2
