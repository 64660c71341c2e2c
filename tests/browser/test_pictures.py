"""Each view of a busy server: readable for everybody, at every width; its picture in out/.

The pictures are for people to look at; what a machine can say of them is tested here.
"""

import pytest
from strokes import DIGITS, draw

from conftest import PICTURES

VIEWS = {
    "overview": [],
    "models": ["models"],
    "model": ["models", "digits", "1"],
    "ensemble": ["models", "digits_of_two", "1"],
    "try": ["try", "digits", "1"],
    "choose": ["try"],
    "requests": ["requests"],
    "logs": ["logs"],
    "settings": ["settings"],
}
READY = {  # what stands there when the view has its figures
    "overview": ".plot canvas",
    "models": ".virtual tbody a.name",
    "model": "figure.histogram rect",
    "ensemble": "svg.graph",
    "try": "canvas.sheet",
    "choose": ".choices a",
    "requests": ".requests tbody tr, .empty",
    "logs": ".log li",
    "settings": "#format",
}
WIDTHS = (360, 768, 1440)
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? []
    : [...document.querySelectorAll('main *')]
        .filter((one) => one.getBoundingClientRect().right > innerWidth && !one.closest('.scroll'))
        .map((one) => one.outerHTML.slice(0, 120))"""
SERIOUS = ("serious", "critical")


def shown(visit, site, view, **how):
    page = visit(site.url, **how).go(*VIEWS[view])
    page.page.locator(READY[view]).first.wait_for()
    page.page.wait_for_load_state("load")
    if view == "try":
        draw(page.page, DIGITS[3])
        page.press("Send").see("Answered after")
    return page


def serious(page, axe):
    """What axe-core finds that keeps people out: its name, what to do, and where."""
    if axe is None:
        return []
    page.evaluate(f"() => {{ {axe} }}")
    found = page.evaluate("() => axe.run()")
    assert len(found["passes"]) > 20
    return [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]][:5])
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_for_everybody_and_every_screen(site, visit, axe, view, scheme):
    page = shown(visit, site, view, scheme=scheme).page
    PICTURES.mkdir(exist_ok=True)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("() => { scrollTo(0, 0); return new Promise(requestAnimationFrame); }")
        page.screenshot(path=PICTURES / f"{view}-{width}-{scheme}.png", full_page=True)
        wide = page.evaluate(TOO_WIDE)
        assert wide == [], "the page itself is not scrolled sideways"
    assert serious(page, axe) == []
