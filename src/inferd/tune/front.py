"""Front: the trials that none other beats in everything, and a plot of all of them."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from inferd.tune.goal import Cost, Goal
from inferd.tune.settings import Value


class TunePoint(NamedTuple):
    """A trial as people see it: the settings by name, and what they cost."""

    settings: Mapping[str, Value]
    cost: Cost

    @property
    def text(self) -> str:
        """Return the settings, as in "instances 2, batch 8"."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items())


def front(points: Iterable[TunePoint], quantile: str) -> list[TunePoint]:
    """Return the points that no other beats both in requests a second and in latency (Pareto).

    The order is from the lowest latency to the most requests.
    """
    found: list[TunePoint] = []
    # By latency, so a point is on the front if it serves more than all before it.
    for point in sorted(points, key=lambda one: (one.cost.latency_ms[quantile], -one.cost.per_s)):
        if not found or point.cost.per_s > found[-1].cost.per_s:
            found.append(point)
    return found


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 480, 80, 20, 20, 60
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right }
td:last-child, th:last-child { text-align: left } tr.best { font-weight: bold }
svg { width: 100%; height: auto } text { font: 13px system-ui, sans-serif; fill: currentColor }
.axis { stroke: currentColor; opacity: .25 } .dot { fill: #888 } .good { fill: #0072b2 }
.front { fill: none; stroke: #0072b2; stroke-width: 2 } .chosen { fill: #d55e00 }
.limit { stroke: #d55e00; stroke-dasharray: 6 4 }
:root { color-scheme: light dark }
"""


def page(
    model: str, points: Sequence[TunePoint], best: TunePoint | None, goal: Goal, quantile: str
) -> str:
    """Return an HTML page that needs nothing else: the plot, and a table of the front."""
    shown = front(points, quantile)
    rows = "".join(
        f"<tr{' class=best' if one == best else ''}><td>{one.cost.per_s:,.0f}</td>"
        f"<td>{one.cost.latency_ms[quantile]:.3g} ms</td>"
        f"<td>{one.cost.memory_bytes / 1e6:,.0f} MB</td><td>{html.escape(one.text)}</td></tr>"
        for one in shown
    )
    title = html.escape(f"{model}: {len(points)} settings measured")
    wanted = html.escape(goal.text or "the most requests a second")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1><p>Goal: {wanted}</p>"
        f"{_plot(points, shown, best, goal, quantile)}"
        f"<table><tr><th>requests/s</th><th>{quantile}</th><th>memory</th><th>settings</th></tr>"
        f"{rows}</table></html>\n"
    )


def _plot(
    points: Sequence[TunePoint],
    shown: Sequence[TunePoint],
    best: TunePoint | None,
    goal: Goal,
    quantile: str,
) -> str:
    # Room above the highest point.
    most_rate = 1.05 * max((one.cost.per_s for one in points), default=1.0)
    most_ms = 1.05 * max((one.cost.latency_ms[quantile] for one in points), default=1.0)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def at(rate: float, ms: float) -> tuple[float, float]:
        x = _LEFT + (right - _LEFT) * rate / most_rate
        return round(x, 1), round(_TOP + (bottom - _TOP) * (1 - ms / most_ms), 1)

    def place(point: TunePoint) -> tuple[float, float]:
        return at(point.cost.per_s, point.cost.latency_ms[quantile])

    label = f"{quantile} over requests a second"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        rate, ms = share * most_rate, share * most_ms
        x, y = at(rate, ms)
        parts += [
            _line("axis", (x, _TOP), (x, bottom)),
            _line("axis", (_LEFT, y), (right, y)),
            _text("middle", (x, bottom + 20), f"{rate:,.0f}"),
            _text("end", (_LEFT - 8, y + 4), f"{ms:.3g} ms"),
        ]
    parts.append(_text("middle", ((_LEFT + right) / 2, _HEIGHT - 12), "requests a second"))
    for limit in goal.limits:
        # A limit far above all points would press them into a corner, so it is left out.
        if limit.what == quantile and limit.most < most_ms:
            y = at(0, limit.most)[1]
            parts.append(_line("limit", (_LEFT, y), (right, y)))
    line = " ".join("{},{}".format(*place(one)) for one in shown)
    parts.append(f'<polyline class="front" points="{line}"/>')
    for one in points:
        x, y = place(one)
        kind = "chosen" if one == best else "good" if one in shown else "dot"
        words = html.escape(one.text)
        dot = f'<circle class="{kind}" cx="{x}" cy="{y}" r="{7 if one == best else 4}">'
        parts.append(f"{dot}<title>{words}</title></circle>")
    return "".join([*parts, "</svg>"])


_Place = tuple[float, float]


def _line(kind: str, begin: _Place, end: _Place) -> str:
    ends = f'x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}"'
    return f'<line class="{kind}" {ends}/>'


def _text(anchor: str, at: _Place, words: str) -> str:
    return f'<text x="{at[0]}" y="{at[1]}" text-anchor="{anchor}">{words}</text>'
