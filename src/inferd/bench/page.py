"""A result as one HTML page that needs nothing else: curves as SVG, tables, what to make of it."""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from inferd.bench.result import PointResult, RunResult
from inferd.bench.table import HEAD, remarks, rows, title

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
COLOURS = ("#2563eb", "#d97706", "#dc2626", "#7c3aed", "#059669", "#0891b2", "#be185d", "#4b5563")

Line = tuple[str, list[tuple[float, float, str]]]
"""A name, and points: x, y, and words for who looks closely."""

_STYLE = """
:root{color-scheme:light dark;--fg:#1f2937;--dim:#6b7280;--line:#d1d5db;--bg:#fff}
@media(prefers-color-scheme:dark){:root{--fg:#e5e7eb;--dim:#9ca3af;--line:#374151;--bg:#111827}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1360px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:1.5rem 0 .25rem}p{margin:.25rem 0}
.dim{color:var(--dim)}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));
gap:0 2rem}svg{width:100%;height:auto}svg text{fill:var(--fg);font:12px system-ui,sans-serif}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .8rem .2rem 0;
text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}.wide{overflow-x:auto}
"""


def page(result: RunResult) -> str:
    """Return the page."""
    body = "".join(_body(result))
    name = escape(result.model)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name} under load'
        f'</title><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _body(result: RunResult) -> Iterator[str]:
    yield f"<h1>{escape(result.model)} under load</h1>"
    yield f"<p>{escape(title(result))}</p>"
    yield (
        f'<p class="dim">{escape(result.server)}; {escape(result.began)}; '
        f"{result.cores} cores where the load came from</p>"
    )
    yield '<div class="plots">'
    known = [one for one in result.points if one.latency]
    if known:
        yield _figure("Latency and throughput", _latency_lines(known), "requests/s", "ms")
        yield _figure(
            "Latency by percentile", _curve_lines(known), "percentile", "ms", _nines, _nines_text
        )
    by_load = "requests a second" if known and known[0].rate else "requests at a time"
    if len(result.points) > 1:
        lines: list[Line] = [("answered", _points(result.points, lambda one: one.per_s))]
        yield _figure("Throughput", lines, by_load, "requests/s")
    if any(one.server for one in result.points):
        yield _figure("Where the server says time goes", _phase_lines(result.points), by_load, "ms")
    yield "</div>"
    yield f'<h2>All points</h2><div class="wide"><table>{"".join(_table(result))}</table></div>'
    yield "".join(f"<p>{escape(text)}</p>" for text in remarks(result))


def _table(result: RunResult) -> Iterator[str]:
    yield "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in HEAD) + "</tr>"
    for row in rows(result.points):
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"


def _load(one: PointResult) -> float:
    return one.rate or float(one.concurrency)


def _points(
    found: Sequence[PointResult], value: Callable[[PointResult], float | None]
) -> list[tuple[float, float, str]]:
    made = []
    for one in found:
        y = value(one)
        if y is not None:
            made.append((_load(one), y, f"{one.name}: {y:.4g}"))
    return made


def _latency_lines(found: Sequence[PointResult]) -> list[Line]:
    lines = []
    for percentile in (50.0, 95.0, 99.0):
        points = []
        for one in found:
            estimate = one.latency.at(percentile) if one.latency else None
            if estimate:
                words = f"load {one.name}: {one.per_s:.4g}/s, {estimate.value / 1e3:.4g} ms"
                points.append((one.per_s, estimate.value / 1e3, words))
        lines.append((f"p{percentile:g}", points))
    return lines


def _curve_lines(found: Sequence[PointResult]) -> list[Line]:
    return [
        (
            one.name,
            [
                (share, us / 1e3, f"{share:g} %: {us / 1e3:.4g} ms")
                for share, us in one.latency.curve
            ],
        )
        for one in found
        if one.latency
    ]


def _phase_lines(found: Sequence[PointResult]) -> list[Line]:
    kinds: dict[str, Callable[[PointResult], float | None]] = {
        "in all": lambda one: one.server.total_us / 1e3 if one.server else None,
        "queue": lambda one: one.server.queue_us / 1e3 if one.server else None,
        "compute": lambda one: one.server.infer_us / 1e3 if one.server else None,
    }
    return [(name, _points(found, value)) for name, value in kinds.items()]


def _nines(percentile: float) -> float:
    """Return where a percentile is drawn: each further 9 takes as much room."""
    # 100 % would be infinitely far to the right.
    return -math.log10(max(1 - percentile / 100, 1e-7))


def _nines_text(at: float) -> str:
    share = 100 * (1 - 10**-at)
    return f"{share:.6g} %"


def _figure(
    name: str,
    lines: Sequence[Line],
    x_name: str,
    y_name: str,
    place: Callable[[float], float] = float,
    place_text: Callable[[float], str] | None = None,
) -> str:
    """Return a plot with its title and what its colours mean."""
    keys = "".join(
        f'<span style="color:{COLOURS[at % len(COLOURS)]}">● </span>{escape(text)} &nbsp;'
        for at, (text, points) in enumerate(lines)
        if points
    )
    drawn = plot(lines, x_name, y_name, place, place_text)
    return (
        f'<figure style="margin:0"><h2>{escape(name)}</h2><p class="dim">{keys}</p>{drawn}</figure>'
    )


def plot(
    lines: Sequence[Line],
    x_name: str,
    y_name: str,
    place: Callable[[float], float] = float,
    place_text: Callable[[float], str] | None = None,
) -> str:
    """Return lines as SVG; `place` is where an x is drawn, `place_text` names places there."""
    placed = [
        [(place(x), y, words) for x, y, words in points if math.isfinite(x) and math.isfinite(y)]
        for _, points in lines
    ]
    every = [point for points in placed for point in points]
    if not every:
        return ""
    x_least, x_most = min(one[0] for one in every), max(one[0] for one in every)
    y_most = max(max(one[1] for one in every), 1e-9) * 1.05
    # A plain axis begins at 0; that of percentiles has no 0.
    if place is float:
        x_least = 0.0
    # A single point has no span.
    x_span = x_most - x_least or 1.0

    def x_at(x: float) -> float:
        return _LEFT + (x - x_least) / x_span * (WIDTH - _LEFT - _RIGHT)

    def y_at(y: float) -> float:
        return HEIGHT - _BOTTOM - y / y_most * (HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_name)}">']
    for y in ticks(0.0, y_most):
        parts.append(_rule(_LEFT, y_at(y), WIDTH - _RIGHT, y_at(y)))
        parts.append(_text(_LEFT - 6, y_at(y) + 4, f"{y:g}", "end"))
    at = ticks(x_least, x_least + x_span) if place_text is None else _whole(x_least, x_most)
    for x in at:
        text = f"{x:g}" if place_text is None else place_text(x)
        parts.append(_text(x_at(x), HEIGHT - _BOTTOM + 16, text, "middle"))
    parts.append(_text((WIDTH + _LEFT) / 2, HEIGHT - 6, x_name, "middle"))
    parts.append(_text(4, 12, y_name, "start"))
    for index, points in enumerate(placed):
        parts += _line(points, COLOURS[index % len(COLOURS)], x_at, y_at)
    return "".join([*parts, "</svg>"])


def _line(
    points: Sequence[tuple[float, float, str]],
    colour: str,
    x_at: Callable[[float], float],
    y_at: Callable[[float], float],
) -> Iterator[str]:
    path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y, _ in points)
    yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
    for x, y, words in points:
        yield (
            f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}">'
            f"<title>{escape(words)}</title></circle>"
        )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="var(--line)"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def ticks(least: float, most: float) -> list[float]:
    """Return some round numbers between two."""
    span = most - least
    step = 10.0 ** math.floor(math.log10(span / 4)) if span > 0 else 1.0
    step *= next(one for one in (1, 2, 5, 10) if span / (step * one) <= 6)
    first = math.ceil(least / step)
    return [round(number * step, 12) for number in range(first, int(most / step) + 1)]


def _whole(least: float, most: float) -> list[float]:
    return [float(one) for one in range(math.ceil(least), math.floor(most) + 1)]
