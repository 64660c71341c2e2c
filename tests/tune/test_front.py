"""What no other trial beats, and the page that shows it."""

from xml.etree import ElementTree

from inferd.tune.front import TunePoint, front, page
from inferd.tune.goal import Cost, read_goal


def point(name, per_s, p99_ms):
    return TunePoint({"process": name}, Cost(per_s, {"p99": p99_ms}, 5e6))


QUICK, MOST, BETWEEN = point("quick", 100, 1), point("most", 900, 9), point("between", 500, 4)
BEATEN, EQUAL = point("beaten", 450, 5), point("equal", 400, 4)
ALL = [BEATEN, MOST, EQUAL, QUICK, BETWEEN]


def test_the_front_has_what_nothing_beats_in_both():
    assert front(ALL, "p99") == [QUICK, BETWEEN, MOST]
    assert front([], "p99") == []


def test_the_page_shows_all_trials_the_front_and_the_best():
    text = page("a<b", ALL, BETWEEN, read_goal("p99=5ms"), "p99")
    assert "a&lt;b: 5 settings measured" in text
    assert text.count("<circle") == 5
    assert text.count('class="chosen"') == text.count("<tr class=best>") == 1
    assert text.count("<tr") == 4
    assert 'class="limit"' in text
    assert "http" not in text
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def test_a_page_without_any_trial_is_a_page():
    assert "0 settings measured" in page("m", [], None, read_goal(""), "p99")
